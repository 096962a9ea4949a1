"""Benchmarks: each module is a command that writes its results with their conditions."""
