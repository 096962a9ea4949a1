"""Published studies: their printed numbers, and a report's beside them."""
