"""Removes prompts and generated text from captured data, and keeps what a record needs."""
