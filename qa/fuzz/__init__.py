"""Fuzzing: malformed input for every command."""
