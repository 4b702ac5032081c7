"""The capture format: segments and bundles, and their encoding."""
