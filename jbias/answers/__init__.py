"""Tables of decisions that others published, read and scored without images.

observers.py   Observer: the decisions of one model or person on one set; Panel: of several
columns.py     the columns of a table, recognised by their names
same_images.py  the same images under several names, and sessions of one observer
table_rows.py  the rows of CSV and Parquet files as texts
stimulus_names.py
               the set that images are of, and their correct classes, from their names
parsing.py     raw responses such as "D. bird" -> a class, or no answer
tables.py      files -> observers
scores.py      shape bias and accuracy of the observers of a panel, counted by image
letter_answers.py
               the answers of the standing table, stored/answers.csv, a symbol per image
submission.py  folders of decisions that others send in -> observers, problems, warnings; with
               submission_info.py, their submission.json, and submission_tables.py

Nothing here imports JAX.
"""
