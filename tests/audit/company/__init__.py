"""A year of a company: five providers, two clouds, three currencies. `python -m tests.audit.company DIR` writes it there."""
