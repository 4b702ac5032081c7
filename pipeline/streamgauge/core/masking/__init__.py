"""Removes prompts and answers from what is captured, and keeps what a record needs."""
