"""Bias cards: the numbers of a measured model with the decisions that they are computed from.

folders.py          reads measured/NAME
tables.py           the tables of decisions of a card: write, read, find changed rows
published.py        the published sets that a card may name
stimuli.py          the entry of a set of images, and its check
words.py            a model's own words, and their check
asked.py            the question of `jbias ask`
paths.py            what MODEL is, by its path
numbers.py          tables of decisions to numbers
card.py             the card: facts, numbers and digest; writes the folder
badge.py            the SVG badge
section.py          the section of a model card, in Markdown
eval_results.py     the YAML that the Hugging Face Hub reads
schema.py           checks a card against card.schema.json
verify.py           computes a card again and lists all differences
cli.py              the command line
"""
