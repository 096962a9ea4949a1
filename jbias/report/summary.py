"""What a script needs of a report without parsing HTML."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from jbias.report import doubts, tables
from jbias.report import study as study_lib

_LISTED = (
    *("omnibus", "posthoc", "control", "strict", "stability", "differences"),
    *("power", "variability"),
)


def results(
    study: study_lib.Study,
    analysis: study_lib.Analysis,
    shown: Mapping[str, tables.Table],
    *,
    caveats: Sequence[str],
    methods: str,
) -> dict[str, Any]:
    """Gives what results.json says beside the answer.

    Tables of tests are listed by their names, with the numbers of their CSV files.
    """
    tested = analysis.friedman is not None
    tree = {
        "source": study.source,
        "metric": study.metric,
        "larger_is_better": study.larger_is_better,
        "selection": study.selection,
        "selection_rule": study.rule,
        "algorithms": list(study.algorithms),
        "datasets": list(study.datasets),
        "table": analysis.cells,
        "alpha": analysis.alpha,
        "tested": {
            "algorithms": list(analysis.algorithms) if tested else [],
            "datasets": list(analysis.datasets) if tested else [],
            "left_out": [{"name": n, "reason": r} for n, r in analysis.left_out],
            "why_not": analysis.why_not,
        },
        "friedman": _friedman(analysis, analysis.friedman) if tested else None,
        "friedman_uncorrected": _friedman(analysis, analysis.uncorrected)
        if tested
        else None,
        "permutation": {
            "p": analysis.permutation.pvalue,
            "exact": analysis.permutation.exact,
            "standard_error": analysis.permutation.standard_error,
        }
        if tested
        else None,
        "nemenyi": _nemenyi(analysis) if tested else None,
        "caveats": list(caveats),
        "twins": [{"names": names, "why": why} for *names, why in doubts.twins(study)],
        "at_chance": list(doubts.at_chance(study)),
        "methods": methods,
        "trained_on": sorted(map(list, study.trained)),
        **{name: shown[name].data for name in _LISTED if name in shown},
    }
    if study.is_runs:
        bias = shown.get("shape_bias")
        tree["shape_bias"] = [] if bias is None else bias.data
        tree["diverged"] = study.diverged
        tree["other_selections"] = {
            name: study_lib.cells_of(v, study.algorithms, study.datasets)
            for name, v in study.others
        }
        tree["runs"] = [{"workdir": r.workdir, "label": r.label} for r in study.runs]
    return tree


def _friedman(analysis: study_lib.Analysis, result) -> dict:
    return {
        "chi2": result.chi2,
        "chi2_p": result.chi2_pvalue,
        "F": result.statistic,
        "F_is_infinite": math.isinf(result.statistic),
        "p": result.pvalue,
        "df": list(result.df),
        "kendall_w": result.kendall_w,
        "mean_ranks": dict(
            zip(analysis.algorithms, result.ranks.tolist(), strict=True)
        ),
    }


def _nemenyi(analysis: study_lib.Analysis) -> dict:
    names, result = analysis.algorithms, analysis.nemenyi
    p = {
        name: dict(zip(names, row, strict=True))
        for name, row in zip(names, result.pvalues.tolist(), strict=True)
    }
    alphas = sorted({0.05, 0.1, analysis.alpha})
    return {
        "p": p,
        "critical_difference": {
            f"{alpha:g}": result.critical_difference(alpha) for alpha in alphas
        },
        "significant": [
            {"better": a, "worse": b, "p": pvalue}
            for a, b, pvalue in analysis.significant
        ],
        "cliques": [[names[i] for i in clique] for clique in analysis.cliques],
    }
