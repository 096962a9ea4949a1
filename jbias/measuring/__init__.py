"""Measurement of one model on the user's images: `jbias measure`, and jbias.measure.

cli.py        the command line
named_sets.py the data sets that --data names
models.py     opens MODEL: a file, a function, a module or a table of decisions
sets.py       makes the suite for the user's folders
arguments.py  adds the arguments of jbias.measure to messages that name flags
run.py        measures a model and returns the results
"""
