"""The capture format, between taps and assembler.

segments.py  what a tap writes of a stream; bundles.py: segments of many streams as compressed bytes
"""
