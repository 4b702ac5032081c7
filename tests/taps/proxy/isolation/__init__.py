"""Isolation: no response reaches a request that was not its own. The oracles are the readers of real clients."""
