"""Readers of tables of scores: cells, headers, layouts and names in any spelling."""
