"""Networks whose reliance on shape, texture, colour and size is planted, and their measurement.

plans.py       the networks of a study: families, dials, levels of accuracy, shortcuts
rules.py       decision rules that read an image's known cues
streams.py     networks of two trained streams, whose mixing weight is the dial
training.py    the runs that trained networks and streams come from
verifying.py   reliance on each cue, counted on all combinations of cues
making.py      makes the networks of a plan and writes networks.csv
measuring.py   measures them on the suite of calibration and writes readings.csv

`jbias.calibrating` has the table of measures and reads the two tables.
"""
