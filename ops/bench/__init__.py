"""Benchmarks: each prints its figure next to its reference, measured in the same run on the same machine."""
