"""One measure in a workdir, as `jbias evaluate --suite` leaves it."""

import json

from jbias.evals import decisions
from jbias.runs import results


def write(folder, fields, measure, dataset, numbers, told, by):
    """Writes records of these fields and numbers, how they were made, and decisions.

    by: what was decided, by condition; None where nothing is kept.
    """
    prefix = "" if measure == "accuracy" else measure
    records = [
        results.Record(
            **fields,
            dataset=dataset,
            **number._replace(
                condition="/".join(filter(None, (prefix, number.condition)))
            )._asdict(),
        )
        for number in numbers
    ]
    results.write(folder / "evals" / f"{measure}@{dataset}.jsonl", records)
    path = folder / "measures" / f"{measure}@{dataset}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(told))
    if by:
        path = folder / "decisions" / dataset / f"{measure}.parquet"
        decisions.write_conditions(path, by)
