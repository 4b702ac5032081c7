"""Makes the record of a stream from its captured segments."""
