"""What a tap captures, and its bytes: segments and bundles."""
