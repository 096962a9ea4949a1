"""Reports that compare measured results with the printed numbers of published papers."""
