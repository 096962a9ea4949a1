"""Data sets: parsers of their layouts, and the table that names them."""
