"""Captured reads of a stream become its record."""
