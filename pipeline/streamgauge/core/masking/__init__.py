"""Removes prompts and generated text from captured data, and keeps what a record needs.

masker.py  whole events, by the allowlist of their dialect
frames.py  many events that differ only in texts and numbers, without decoding them
"""
