"""Networks out of the workdir of a run."""
