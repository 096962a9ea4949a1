"""Measure one model on the images that are there: `jbias measure`, and jbias.measure.

cli.py        the command line
models.py     what MODEL names: a file, a function, a module, a table of decisions
sets.py       the suite of the folders that are given
arguments.py  messages name the arguments of Python beside the flags
run.py        opens, measures, and returns what was measured
"""
