"""Training seeds until a comparison of methods is decided.

comparison.py     the plan of a comparison: batches of seeds, looks, and the next action; pure
state_file.py     comparison.json, the plan in a workdir, and the check of changed settings
settings.py       metric, data set and so on, checked against the configs
seed_scores.py    the scores of seeds from the records of finished runs, and device hours
references.py     the reference: a config, or finished runs of one method
chance.py         methods with decisions at chance
descriptions.py   looks and actions as lines of text

Nothing here trains a network or imports JAX. `jbias.until_decided` trains the batches of
`jbias train --until-decided`.
"""
