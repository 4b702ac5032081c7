"""The relay's pump, in C: moves the middle of responses (README.md here)."""
