"""Forms in which encoded images are stored: folders and shards."""
