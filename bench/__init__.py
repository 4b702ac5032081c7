"""Benchmarks. Each prints ratios against a floor or a peer that was measured in the same run."""
