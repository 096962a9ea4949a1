"""Readers for files that others wrote, and that may be damaged or hostile."""
