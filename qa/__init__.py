"""Checks of jbias: injected faults, malformed and hostile input, mutants, other libraries."""
