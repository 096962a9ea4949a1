"""Tables of scores whose names or types are ambiguous or wrong, for `jbias.stats`."""

import pathlib
from collections.abc import Iterator

from qa.hostile import attempt

_START = """
import sys
import numpy as np
import pandas as pd
from jbias import stats
rng = np.random.default_rng(0)
values = rng.uniform(20, 90, (4, 3))
sets, names = list("wxyz"), ["erm", "padain", "sagnet"]
frame = pd.DataFrame(values, sets, names)
tidy = frame.rename_axis("dataset").reset_index().melt(
    "dataset", var_name="algorithm", value_name="score"
)
try:
    {body}
except ValueError as error:
    sys.exit(f"stats: {{error}}")
"""
# Expression for a table, and a regular expression for the refusal; "": the table is valid.
_TABLES = (
    ("frame.rename_axis(columns='datasets')", "dataset"),
    ("frame.rename_axis(columns='test set')", ""),
    ("frame.rename_axis(index='method')", "method"),
    ("frame.rename_axis(index='algorithms')", "algorithm"),
    ("frame.T.rename_axis(index='algorithm', columns='dataset')", "dataset|algorithm"),
    (
        "frame.rename_axis(index='Algorithm', columns='Dataset')",
        "(?i)dataset|algorithm",
    ),
    ("frame.rename_axis(index='dataset', columns='algorithm')", ""),
    ("frame.rename_axis(index='dataset', columns='method')", ""),
    ("frame.rename_axis(index='seed')", ""),
    ("tidy.rename(columns={'algorithm': 'methods'})", "algorithm"),
    ("tidy.rename(columns={'algorithm': 'Method'})", "algorithm"),
    ("tidy.rename(columns={'dataset': 'test_set'})", "dataset"),
    ("tidy.rename(columns={'score': 'accuracy'})", "score"),
    ("tidy.rename(columns={'algorithm': 'model', 'score': 'value'})", "algorithm"),
    ("tidy.assign(score=tidy['score'].astype(str) + ' %')", "score"),
    ("tidy.assign(score=1j)", "score|number"),
    ("tidy.assign(score=True)", ""),
    ("tidy.assign(algorithm=None)", "algorithm"),
    ("tidy.assign(dataset=pd.NA)", "dataset"),
    ("tidy.assign(algorithm=pd.Categorical(tidy['algorithm']))", ""),
    ("tidy.assign(seed=tidy.index)", ""),
    ("pd.concat([tidy, tidy.assign(score=0)])", "run|twice|once"),
    ("tidy.iloc[:0]", "."),
    ("frame.iloc[:1]", "."),
    ("frame.assign(total='x')", "."),
    ("frame.assign(mean=np.inf)", "finite|inf"),
    ("frame.set_axis(pd.MultiIndex.from_product([['a'], sets]), axis=0)", "."),
    ("frame.set_axis([['a'], ['b'], ['c']], axis=1)", "."),
    ("frame.astype('Float64').mask(frame > 89)", ""),
    ("frame.astype(object)", ""),
    ("frame.to_numpy().astype('U9')", ""),
    ("np.ma.masked_less(values, 50)", "."),
    ("values.tolist() + [[1.0]]", "."),
    ("'scores.csv'", "."),
    ("None", "."),
    ("{'erm': [1, 2], 'padain': [2, 3]}", "."),
)


def cases() -> Iterator[attempt.Case]:
    """Yield every table."""
    for table, expects in _TABLES:
        body = f"print(stats.friedman({table}, larger_is_better=True).pvalue)"

        def write(root: pathlib.Path, body: str = body) -> list[str]:
            return ["-c", _START.format(body=body)]

        yield attempt.Case(table, write, expects)
