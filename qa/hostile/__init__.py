"""Hostile input for every command: inputs that are made to do harm."""
