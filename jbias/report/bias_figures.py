"""Which figures the study of biases has, and what they show.

Their numbers in captions are those of Gavrikov and Keuper, CVPR 2024.
"""

from collections.abc import Iterator

import pandas as pd
from matplotlib import figure as mpl_figure

from jbias.report import bias_models, bias_plots, relations

Drawn = Iterator[tuple[str, str, mpl_figure.Figure, str]]
_TITLES = bias_models.TITLES
_AT = _TITLES[bias_models.AT]


def draw(models: bias_models.Models, study: relations.Study) -> Drawn:
    """Gives names, sections, figures and captions. `study` has titles in place of names."""
    yield from _correlations(study)
    yield from _scatters(models, study)
    yield from _benchmarks(models, study)
    yield from _biases(models, study)


def appendix(study: relations.Study) -> Drawn:
    """Gives the scatter of the appendix's models, each a category of its own."""
    pairs = study.pairs[study.pairs["models"] == "all"]
    alpha = study.options.alpha
    yield (
        "vit",
        "vit",
        _all_pairs(study),
        (
            f"The {len(study.frame)} ViT-B/16 of the paper's appendix (figure 8): averages of "
            "benchmarks in % over biases. The number over each is ρ; "
            f"{(pairs['pvalue'] <= alpha).sum()} of {len(pairs)} have p ≤ {alpha:g} without "
            f"adjustment, {(pairs['holm'] <= alpha).sum()} after Holm's."
        ),
    )


def _correlations(study: relations.Study) -> Drawn:
    options = study.options
    marked = (
        f"Hatched: p > {options.alpha:g} {relations.WORDS[options.adjust]} over the pairs "
        "of its table. Grey: nothing to correlate."
    )
    panels = {
        f"{name} (n = {family.n})": (family.statistic, study.tested(family))
        for name, family in study.families.items()
    }
    yield (
        "correlations",
        "correlations",
        relations.heat(panels),
        f"Spearman's ρ of biases and averages of benchmarks (figure 2). {marked}",
    )
    for name, number in (("benchmarks", 3), ("biases", 12)):
        of = benchmarks_of(study) if name == "benchmarks" else biases_of(study)
        if of is not None:
            panel = {f"n = {of.n}": (of.statistic, study.tested(of))}
            yield (
                f"{name}_correlations",
                name,
                relations.heat(panel),
                f"Spearman's ρ of {name} among themselves (figure {number}). {marked}",
            )


def benchmarks_of(study: relations.Study):
    """Gives the correlations among benchmarks, or None where there is but one."""
    return next((o for o in study.among if tuple(o.statistic) != study.options.x), None)


def biases_of(study: relations.Study):
    """Gives the correlations among biases, or None where there is but one."""
    return next((o for o in study.among if tuple(o.statistic) == study.options.x), None)


def _all_pairs(study: relations.Study) -> mpl_figure.Figure:
    options = study.options
    return relations.scatter(
        study.frame,
        [[(x, y) for x in options.x] for y in options.y],
        rho=study.families["all"].statistic,
        category=options.category,
        size=options.size,
    )


def _scatters(models: bias_models.Models, study: relations.Study) -> Drawn:
    options, frame = study.options, study.frame
    asked = dict(category=options.category, size=options.size)
    sized = _sized(study)
    yield (
        "models",
        "models",
        _all_pairs(study),
        (
            "Averages of benchmarks in % over biases, one marker a model (figures 4, 5 and 6). "
            f"The number over each is ρ.{sized}"
        ),
    )
    trained = frame[frame[options.category] == _AT]
    high = _TITLES["high_freq"]
    if high in frame and len(trained) > 1:
        rho = study.families[_AT].statistic if _AT in study.families else None
        grid = [[(high, y) for y in options.y]]
        yield (
            "high_freq_trained",
            "models",
            relations.scatter(
                trained, grid, rho=rho, panel=(2.3, 2.1), order=_order(study), **asked
            ),
            (
                "Averages in % over high-frequency bias, adversarially trained models alone "
                f"(figure 10).{sized}"
            ),
        )


def _order(study: relations.Study) -> list[str]:
    return list(dict.fromkeys(study.frame[study.options.category]))


def _sized(study: relations.Study) -> str:
    if not study.options.size:
        return ""
    return (
        " Markers grow with ε of adversarial training; models without it have one size."
    )


def _benchmarks(models: bias_models.Models, study: relations.Study) -> Drawn:
    frame, options = study.frame, study.options
    asked = dict(category=options.category, size=options.size)
    names = [_TITLES.get(name, name) for name in models.benchmarks]
    yield (
        "benchmark_spread",
        "benchmarks",
        bias_plots.spread(frame, names, frame[options.category], label="accuracy in %"),
        (
            "Accuracy of every model on each benchmark (figure 11), a category a lane; the box "
            "goes from quartile to quartile, its line is the median."
        ),
    )
    shape, hard = _TITLES["shape"], _TITLES["imagenet_a"]
    if {shape, hard} <= set(frame):
        yield (
            "imagenet_a",
            "benchmarks",
            relations.scatter(frame, [[(shape, hard)]], panel=(4.8, 2.8), **asked),
            f"ImageNet-A in % over shape bias (figure 9).{_sized(study)}",
        )
    if len(names) > 2:
        sizes = frame[options.size] if options.size else pd.Series(index=frame.index)
        yield (
            "benchmark_pairs",
            "benchmarks",
            bias_plots.pairs(
                frame,
                names,
                frame[options.category],
                sizes,
                benchmarks_of(study).statistic,
            ),
            (
                "Every benchmark over every other (figure 15): the one of the row upwards, "
                "that of the column to the right, each over its range in %, told on the diagonal. "
                f"Above the diagonal ρ.{_sized(study)}"
            ),
        )


def _biases(models: bias_models.Models, study: relations.Study) -> Drawn:
    kinds = study.frame[study.options.category]
    panels = {}
    for kind in ("low", "high"):
        cuts = models.places(kind)
        if cuts:
            places = [100 * cut for cut in cuts.values()]
            panels[f"{kind}-pass"] = (places, models.frame[list(cuts)])
    if panels:
        yield (
            "filters",
            "biases",
            bias_plots.by_category(
                panels, kinds, label="cut-off in %", height="ratio of clean accuracy"
            ),
            (
                "Accuracy on filtered images by accuracy on clean ones, over the share of "
                "frequencies that the filter keeps (figure 13). Thin lines are models, thick ones "
                "means of a category."
            ),
        )
    raw = [
        name for name in ("cb_bw", "cb_cf", "cb_pns") if f"{name}_raw" in models.frame
    ]
    if raw and _banded(models).any():
        yield _normalised(models, study, raw)
    octaves = models.places("threshold")
    if octaves:
        panel = {"": (list(octaves.values()), models.frame[list(octaves)])}
        yield (
            "critical_bands",
            "biases",
            bias_plots.by_category(
                panel,
                kinds,
                label="nominal cycles per image",
                height="threshold",
                doubling=True,
            ),
            (
                "Thresholds of the critical band: how many strengths of noise of an octave, "
                "from the strongest, break recognition. Thin lines are models, thick ones "
                "means of a category."
            ),
        )


def _banded(models: bias_models.Models) -> pd.Series:
    """Says which models have a band from accuracies as they are; NaN is none."""
    return models.frame["cb_bw_raw"] <= bias_models.DEGENERATE


def _normalised(models, study: relations.Study, names: list[str]):
    banded = _banded(models).to_numpy()
    titles = {_TITLES[name]: f"{_TITLES[name]}, norm." for name in names}
    titles |= {_TITLES[f"{name}_raw"]: _TITLES[name] for name in names}
    frame = study.frame[banded].rename(columns=titles)
    grid = [[(_TITLES[name], f"{_TITLES[name]}, norm.") for name in names]]
    third = (
        " The third form, the original stimuli with 16 classes, is not among the published "
        "results."
    )
    return (
        "critical_band",
        "biases",
        relations.scatter(
            frame,
            grid,
            category=study.options.category,
            size=study.options.size,
            panel=(2.8, 2.4),
            order=_order(study),
        ),
        (
            "The critical band's numbers from accuracies divided by the largest (norm.) over "
            "those from accuracies as they are (figure 17). "
            f"{(~banded).sum()} of {len(banded)} models have no band without the division "
            f"and are left out.{third if models.anomalies else ''}"
        ),
    )
