"""Questions to models behind a chat endpoint, and the table of their answers.

stimuli.py     the images of a folder, their classes, and the order in which they are asked about
questions.py   the published questions, with options drawn for each image
pictures.py    an image as the data address of a request
token_counts.py  estimates of a request's tokens
settings.py    what is asked, which must not change between the runs into one folder
ledger.py      all requests and answers on disk; budgets
plan.py        the images to ask about, and the lines of a dry run
summary.py     the lines at the end of a run
pacing.py      when the next request may be sent, how long to wait after a failure
keys.py        the key, which endpoints get it, and texts without it
client.py      one request, by the package openai; failures and what to do about them
asker.py       all requests, several at a time
answer_table.py  the answers as a table, decisions.csv

Nothing here imports JAX.
"""
