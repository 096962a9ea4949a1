"""Calibration of measures of shape bias on networks whose reliance on cues is planted.

measures.py   the table of measures: the records that each is read from, direction and scale
rows.py       the two tables of a study, networks.csv and readings.csv

Nothing here makes or shows a network, or imports JAX: `jbias.planting` does, and writes the tables.
"""
