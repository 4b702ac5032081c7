"""Taps: where streams are captured. Each hands `messages` to a `recorder`, and never waits for it."""
