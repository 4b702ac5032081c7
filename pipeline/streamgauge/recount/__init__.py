"""Recounts the output tokens of captured streams with public tokenizers, and compares them with what was reported."""
