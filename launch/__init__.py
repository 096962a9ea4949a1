"""Starts many runs: searches over config fields, on this machine or on a cluster."""
