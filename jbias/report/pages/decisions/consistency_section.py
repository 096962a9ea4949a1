"""Section on error consistency: do observers make the same errors?"""

import numpy as np
import pandas as pd

from jbias.report import document, tables
from jbias.report.pages.decisions import decision_plots
from jbias.report.pages.decisions import standing as standing_lib

Standing, Blocks = standing_lib.Standing, document.Blocks


def consistency_section(standing: Standing) -> Blocks:
    """Yield the table of error consistency with people, and the heat map of all pairs.

    Without people, there is no table. Nothing is yielded for a single observer.
    """
    if len(standing.names) < 2:
        return
    result = standing.consistency
    right = "the shape" if standing.panel.texture is not None else "its class"
    yield document.Text(
        "Error consistency is Cohen's kappa of the errors of two observers on the same images, "
        f"with the class of {right} as the right one and no answer as an error: 0 is agreement as "
        "by chance, 1 is errors on the same images."
    )
    yield people_table(standing)
    if result.among_people is not None:
        value, lower, upper = result.among_people
        yield document.Text(
            f"Among people, the mean over pairs is {value:.3f} [{lower:.3f}, {upper:.3f}]."
        )
    order = sorted(
        range(len(standing.names)),
        key=lambda i: (standing.kinds[i], standing.order.index(i)),
    )
    names = [standing.names[i] for i in order]
    kappa = result.kappa[np.ix_(order, order)]
    if np.isfinite(kappa[~np.eye(len(names), dtype=bool)]).any():
        yield document.Figure(
            f"error_consistency{standing.suffix}",
            "Error consistency of all pairs, by group, and by decreasing "
            f"{standing.main_name} in a group. A number above a column is that of the row.",
            lambda: decision_plots.kappas(names, kappa),
        )


def people_table(standing: Standing) -> tables.Table | None:
    """Return the table of mean error consistency with people; None without people."""
    people = standing.consistency.people
    frame = people.assign(observer=standing.names, group=standing.kinds).sort_values(
        "value", ascending=False, kind="stable", na_position="last"
    )
    frame = frame[["observer", "group", "value", "lower", "upper", "images"]]
    if frame["value"].isna().all():
        return None
    columns = tables.columns(
        "observer group value:.3[] images:d",
        ends=("_lower", "_upper"),
        value="kappa with people",
    )
    columns["value"] = columns["value"]._replace(argument_keys=("lower", "upper"))
    return tables.from_rows(
        f"people{standing.suffix}",
        "Mean error consistency with people, for a person with the other people. In brackets: "
        f"{standing_lib.LEVEL} bootstrap intervals over images; people are not drawn.",
        frame,
        columns,
    )


def pair_frame(standing: Standing) -> pd.DataFrame:
    """Return the error consistency of all pairs: first, second, kappa and num_images."""
    result = standing.consistency
    rows, columns = np.triu_indices(len(standing.names), 1)
    return pd.DataFrame(
        {
            "first": [standing.names[i] for i in rows],
            "second": [standing.names[i] for i in columns],
            "kappa": result.kappa[rows, columns],
            "num_images": result.num_images[rows, columns],
        }
    )
