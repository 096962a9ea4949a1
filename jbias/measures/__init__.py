"""Measures: functions from decisions to numbers, one file a measure; without JAX."""
