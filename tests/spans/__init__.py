"""Spans: what they say of a record, and how they reach a receiver."""
