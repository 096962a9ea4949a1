"""Malformed input for every command, and what comes of it."""
