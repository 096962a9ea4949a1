"""Files that are there whole or not at all, on disk or in an object store, and locks."""
