"""Calibration of measures of shape bias on networks whose reliance on cues is planted.

measures.py         the table of measures: the records that each is read from, direction and scale
rows.py             the two tables of a study, networks.csv and readings.csv
flags.py            reasons why a network is not ranked, such as accuracy at chance
curves.py           calibration curves: the dial that a value stands for; their file
rules.py            bounds and limits of a study, and the seal that proves when they were fixed
recovery.py         statistics from arrays: rho, errors, coverage, ranges
study.py            the two tables with flags
measure_results.py  all results of one measure
analysis.py         the tables and curves of a study; the definitions

Nothing here makes or shows a network, or imports JAX: `jbias.planting` does, and writes the tables.
"""
