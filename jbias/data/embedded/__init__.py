"""Data sets that are drawn by code and need no download."""
