"""Each provider's scenarios, after its own documentation of streaming."""
