"""Real clients in the same scripted conversation directly and through `up`: what differs, and how much time is added."""
