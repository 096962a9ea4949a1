"""Studies: each module is a command that writes a page, a table or a figure of the docs."""
