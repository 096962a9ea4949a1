"""What networks are called on a page: shortly, and no two alike."""

import collections
from collections.abc import Mapping

import pandas as pd

from jbias.report import measured_records

# What tells networks apart whose names are alike, the first that does before others.
_TOLD = (
    " on {train_data}",
    " [{hash}]",
    " seed {seed}",
    " step {step}",
    " in {workdir}",
)


def of(parts: Mapping[str, pd.DataFrame]) -> dict[str, str]:
    """Gives each workdir a name, by its records.

    That of a file is the file's. That of a run's seed is model, method (with the variant)
    and seed; its training data, hash and step stand behind it only where they tell it from
    others of that name.
    """
    fields, names = {}, {}
    for workdir, part in parts.items():
        one = part.iloc[0].astype(str).to_dict()
        fields[workdir] = one | {"hash": one["run"].rpartition("-")[2]}
        names[workdir] = one["run"]
        if "config" in measured_records.config(workdir):  # It was trained here.
            variant = f" ({one['variant']})" if one["variant"] else ""
            method = one["algorithm"] + variant
            names[workdir] = f"{one['model']} {method} seed {one['seed']}"
    for told in _TOLD:
        alike = collections.defaultdict(dict)
        for workdir, name in names.items():
            alike[name][workdir] = name + told.format_map(fields[workdir])
        for longer in alike.values():
            if len({*longer.values()}) > 1:
                names |= longer
    return names
