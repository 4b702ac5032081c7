"""The relay's native pump, in C. It moves the middle of responses; see README.md in this folder."""
