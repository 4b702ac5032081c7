"""Benchmarks. Each prints ratios to a floor or a peer that is measured in the same run."""
