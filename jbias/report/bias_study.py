"""The study of biases: measured models, how biases go with generalisation, and its page.

After Gavrikov and Keuper, CVPR 2024, https://arxiv.org/abs/2404.01509, whose numbers the
figures have in captions.
"""

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from jbias.data import tables as data_tables
from jbias.report import (
    bias_plots,
    document,
    network_frame,
    network_records,
    relations,
    tables,
)

LEAST = 4  # Models of a choice.
AT = network_frame.AT
VIT = "vision_transformers"
_DIGITS = dict.fromkeys(("shape", "shape_lower", "shape_upper", "low_freq"), 3)
_DIGITS |= {"high_freq": 4}
_RESTS = ("shape_lower", "shape_upper", "shape_n")  # Behind the shape bias.
Blocks = Iterator[document.Figure | tables.Table | None]


def title(name):
    """Gives what a measure or a category is called on a page; of several, each."""
    if isinstance(name, tuple):
        return tuple(map(title, name))
    return network_frame.TITLES.get(name, name)


# Models.

# Those of the study by their ids; vision transformers, its appendix, are a category each.
PUBLISHED = {
    one["id"]: {
        "name": one["name"],
        "training": one["name" if one["category"] == VIT else "category"],
        "epsilon": one.get("eps", math.nan),  # l2, or l-infinity in 1/255.
    }
    for one in data_tables.read("published_models")
}


def read(
    workdirs: Sequence[str],
    kinds: pd.DataFrame | None = None,
    *,
    each_seed: bool = False,
) -> network_frame.Models:
    """Gives the models of workdirs (paths or globs), one row a run: means over its seeds.

    Runs with the same settings but other seeds are one. Seeds of one run are no independent
    models: as rows of their own, which `each_seed` makes them, they make p too small.
    kinds: name, training and epsilon by run; without one they are those of the published
    study, or of the run's own config. Of several steps of a run and seed the last counts.
    Raises ValueError as `network_records.read_records` does, and where a benchmark or a
    bias was measured in several ways.
    """
    records, counted = network_records.read_records(workdirs)
    unit = ["run", "seed"]
    last = records.groupby(unit, observed=True)["step"].transform("max")
    records = records[records["step"] == last]
    parts = dict([*records.groupby(unit, observed=True)])
    of_run = _same_settings(records)
    models = [of_run[run] for run, _ in parts]
    named = {} if kinds is None else kinds.to_dict("index")
    rows, methods = [], {}
    for (run, seed), part in parts.items():
        model = of_run[run]
        about = _about(str(run), part.iloc[0], PUBLISHED | named)
        several = models.count(model) > 1
        one = f"{run} seed {seed}" if several else model
        if each_seed and several:
            model, about["name"] = one, f"{about['name']} seed {seed}"
        measures = {}
        for workdir in part["workdir"].unique():
            measures |= network_records.read_measures(workdir)
        cells, sizes = (network_records.cells_of(part, key) for key in ("value", "n"))
        found, methods[one] = network_frame.row(cells, sizes, measures)
        rows.append({"model": model} | about | found)
    told, made = network_frame.compare_methods(methods)
    told = [*_measured_on(made), *told]
    counted += _seeds(models, each_seed)
    unused = [name for name in named if name not in of_run]
    if unused:
        told.append(f"Named by the table of kinds and not here: {', '.join(unused)}.")
    by_model = pd.DataFrame(rows).set_index("model").groupby(level=0, sort=False)
    return network_frame.build_models(
        pd.DataFrame.from_dict({m: _mean(of) for m, of in by_model}, orient="index"),
        source=" ".join(map(str, workdirs)),
        counted=counted,
        told=told,
        made=made,
    )


def _same_settings(records: pd.DataFrame) -> dict[str, str]:
    """Gives the run that stands for each: the first with its settings but for the seeds."""
    first: dict[str, str] = {}
    found = {}
    workdirs = records.groupby("run", observed=True)["workdir"].first()
    for run, workdir in workdirs.items():
        settings = network_records.read_config(workdir).get("config", {})
        kept = {k: v for k, v in settings.items() if k not in ("seeds", "run")}
        known = json.dumps(kept, sort_keys=True) if settings else run
        found[run] = first.setdefault(known, run)
    return found


def _about(run: str, record: pd.Series, known: Mapping[str, dict]) -> dict:
    """Gives name, training and epsilon of a run."""
    if run in known:
        return {**known[run]}
    config = network_records.read_config(record["workdir"])
    algo = config.get("config", {}).get("algo", {})
    eps = algo.get("eps", math.nan) if algo.get("name") == "pgd" else math.nan
    kind = str(config.get("category", record["algorithm"]))
    if record["variant"]:
        kind += f" ({record['variant']})"  # As a report of runs calls it.
    return {
        "name": run,
        "training": AT if math.isfinite(eps) else kind,
        "epsilon": eps * (255 if algo.get("norm", "linf") == "linf" else 1),
    }


def _mean(seeds: pd.DataFrame) -> dict:
    """Gives a model's row; what one of its seeds lacks it lacks.

    Decisions for either cue are those of the seed with the fewest. Intervals are of one
    network: means have none.
    """
    first = seeds.iloc[0].to_dict()
    if len(seeds) == 1:
        return first
    means = seeds.mean(numeric_only=True, skipna=False).to_dict()
    least = seeds["shape_n"].min() if "shape_n" in seeds else math.nan
    rests = {"shape_lower": math.nan, "shape_upper": math.nan, "shape_n": least}
    return first | {"seeds": len(seeds)} | means | rests


def _measured_on(made: pd.DataFrame) -> Iterator[str]:
    """Says on which sets was measured what is no set of its own."""
    others = made[made["sets"] != made["column"]]
    for (on, how), part in others.groupby(["sets", "how"], sort=False):
        how = "" if how == network_frame.USUAL else f", {how}"
        yield f"Measured on {on}{how}: {', '.join(map(title, part['column']))}."


def _seeds(models: Sequence[str], each_seed: bool) -> list[str]:
    """Says what is made of several seeds of one model."""
    runs = len(set(models))
    if runs == len(models):
        return []
    told = f"{len(models)} seeds of {runs} run" + "s" * (runs > 1)
    if not each_seed:
        return [f"{told}: a model is the mean over the seeds of one run."]
    told += " are models of their own, as asked: those of one run are not independent, "
    return [f"{told}and p is too small."]


# Correlations.


def analyse(models: network_frame.Models, **asked: Any) -> relations.Study:
    """Correlates biases with averages, and benchmarks and biases among themselves.

    Over all models, and where there are enough of both over the adversarially trained
    and the others. asked: further fields of relations.Options. Raises ValueError for fewer
    than 4 models.
    """
    if asked.get("seed", 0) < 0:
        raise ValueError(f"--seed: must be 0 or larger, got {asked['seed']}")
    frame = models.frame
    if len(frame) < LEAST:
        raise ValueError(
            f"{models.source}: must hold at least {LEAST} models to correlate, got "
            f"{len(frame)}; python -m jbias.report.measured shows fewer"
            f"{''.join(f' ({one})' for one in models.counted)}"
        )
    trained = (frame["training"] == AT).sum()
    among = (models.benchmarks, models.biases)
    options = relations.Options(
        x=models.biases,
        y=tuple(models.members),
        category="training",
        among=tuple(names for names in among if len(names) > 1),
        split=AT if LEAST <= trained <= len(frame) - LEAST else None,
        size="epsilon" if frame["epsilon"].notna().any() else None,
        **asked,
    )
    return relations.analyse(frame, options, source=models.source)


def titled(study: relations.Study) -> relations.Study:
    """Gives a study with titles for the names of measures and categories, to be shown."""

    def family(one):
        kinds = ("statistic", "pvalue", "holm", "bh")
        shown = {
            key: getattr(one, key).rename(index=title, columns=title) for key in kinds
        }
        return dataclasses.replace(one, **shown)

    def named(frame: pd.DataFrame, *columns: str) -> pd.DataFrame:
        return frame.assign(**{name: frame[name].map(title) for name in columns})

    options = study.options
    asked = {key: title(getattr(options, key)) for key in ("x", "y", "split", "size")}
    return dataclasses.replace(
        study,
        options=dataclasses.replace(options, **asked, among=title(options.among)),
        frame=named(study.frame, "training").rename(columns=title),
        families={title(name): family(one) for name, one in study.families.items()},
        pairs=named(study.pairs, "models", "x", "y"),
        influential=named(study.influential, "x", "y", "category"),
        among=tuple(map(family, study.among)),
    )


# The page.


def report(
    models: network_frame.Models,
    study: relations.Study,
    *,
    images: Sequence[np.ndarray] = (),
) -> document.Report:
    """Gives the page. images: photographs, to show what filters leave of them."""
    shown = titled(study)
    caveats = [*relations.caveats(shown), *models.told]
    if shown.options.split is None:
        caveats.append(
            "Adversarially trained models are not told apart: that needs at least "
            f"{LEAST} of them and as many others."
        )
    sections = (
        ("correlations", "What goes with what", _correlations(shown)),
        ("models", "Models", _models(shown)),
        ("benchmarks", "Benchmarks", _benchmarks(models, shown)),
        ("biases", "Biases", _biases(models, shown, images)),
        ("caveats", "What to keep in mind", [document.Text(caveats)]),
    )
    answer, basis = relations.headline(study)
    frame = models.frame.rename_axis("model").reset_index()
    return document.Report(
        title="jbias study of biases",
        heading="Do biases go with generalisation?",
        subtitle=f"{len(models.biases)} biases and {len(models.benchmarks)} benchmarks of "
        f"{len(frame)} models, jbias report",
        answer=relations.headline(shown),
        facts={
            "Models": len(frame),
            "Categories": frame["training"].nunique(),
            "Biases": len(models.biases),
            "Benchmarks": len(models.benchmarks),
        },
        sections=[
            document.Section(name, words, [block for block in blocks if block])
            for name, words, blocks in sections
        ],
        results=relations.results(study)
        | {"headline": answer, "basis": basis, "caveats": caveats}
        | {"members": models.members, "biases": models.biases, "models": frame},
        source=f"Made from {models.source}. The study is that of Gavrikov and Keuper, Can "
        "Biases in ImageNet Models Explain Generalization?, CVPR 2024; numbers of figures "
        "and tables are those of that paper.",
        frames={"models": frame},
    )


def _marked(study: relations.Study) -> str:
    options = study.options
    level = f"p > {options.alpha:g} {relations.WORDS[options.adjust]}"
    return f"Hatched: {level} over the pairs of its table. Grey: nothing to correlate."


def _sized(study: relations.Study) -> str:
    more = (
        " Markers grow with ε of adversarial training; without it they have one size."
    )
    return more if study.options.size else ""


def _among(study: relations.Study, names: tuple[str, ...], what: str) -> Blocks:
    for one in study.among:
        if tuple(one.statistic) == names:
            yield document.Figure(
                f"{what.partition(' ')[0]}_correlations",
                f"Spearman's ρ of {what}. {_marked(study)}",
                relations.heat(study, {"": one}),
            )


def _scatter(study: relations.Study, frame: pd.DataFrame, grid, panel, rho=None):
    order = tuple(dict.fromkeys(study.frame["training"]))
    asked = dict(category="training", size=study.options.size, order=order)
    return relations.scatter(frame, grid, rho=rho, panel=panel, **asked)


def _correlations(study: relations.Study) -> Blocks:
    yield document.Figure(
        "correlations",
        f"Spearman's ρ of biases and averages of benchmarks (figure 2). {_marked(study)}",
        relations.heat(study, study.families),
    )
    for _, table in relations.tables_of(study):
        if table and not table.name.startswith("among"):  # Which figures show.
            yield table


def _models(study: relations.Study) -> Blocks:
    yield document.Figure(
        "models",
        "Averages of benchmarks in % against biases, one marker per model (figures 4, 5 and "
        f"6), with ρ above each panel.{_sized(study)}",
        relations.all_pairs(study),
    )
    at, high = title((AT, "high_freq"))
    trained = study.frame[study.frame["training"] == at]
    if high in trained and len(trained) > 1:
        rho = study.families[at].statistic if at in study.families else None
        grid = [[(high, y) for y in study.options.y]]
        yield document.Figure(
            "high_freq_trained",
            "Averages in % against high-frequency bias, adversarially trained models only "
            f"(figure 10).{_sized(study)}",
            _scatter(study, trained, grid, (2.3, 2.1), rho),
        )


def _benchmarks(models: network_frame.Models, study: relations.Study) -> Blocks:
    frame, size, names = study.frame, study.options.size, title(models.benchmarks)
    yield from _among(study, names, "benchmarks among themselves (figure 3)")
    yield document.Figure(
        "benchmark_spread",
        "Accuracy of every model on each benchmark (figure 11), one lane per category. Boxes "
        "span the quartiles; lines are medians.",
        bias_plots.spread(frame, [*names], frame["training"], x="accuracy in %"),
    )
    shape, hard = title(("shape", "imagenet_a"))
    if {shape, hard} <= set(frame):
        yield document.Figure(
            "imagenet_a",
            f"ImageNet-A in % against shape bias (figure 9).{_sized(study)}",
            _scatter(study, frame, [[(shape, hard)]], (4.8, 2.8)),
        )
    if len(names) > 2:
        sizes = frame[size] if size else pd.Series(index=frame.index)
        rho = study.among[0].statistic  # Biases come second.
        yield document.Figure(
            "benchmark_pairs",
            "Every benchmark against every other (figure 15): the row's upwards, the "
            "column's to the right, each over its range in %, which the diagonal gives. "
            f"Above the diagonal: ρ.{_sized(study)}",
            bias_plots.pairs(frame, [*names], frame["training"], sizes, rho),
        )
    yield from (accuracy_table(models), average_table(models))
    if models.made is not None:
        yield method_table(models.made)


def _biases(models: network_frame.Models, study: relations.Study, images) -> Blocks:
    frame, kinds = models.frame, study.frame["training"]
    yield from _among(study, study.options.x, "biases among themselves (figure 12)")
    lines = "Thin lines are models, thick lines category means."
    panels = {
        f"{kind}-pass": ([100 * cut for cut in cuts.values()], frame[[*cuts]])
        for kind in ("low", "high")
        if (cuts := models.places(kind))
    }
    if panels:
        yield document.Figure(
            "filters",
            "Accuracy on filtered images relative to clean ones, by the share of frequencies "
            f"that the filter keeps (figure 13). {lines}",
            bias_plots.curves(
                panels, kinds, x="cut-off in %", y="ratio of clean accuracy"
            ),
        )
    if "cb_bw_raw" in frame:
        yield _normalised(models, study)
    if octaves := models.places("threshold"):
        yield document.Figure(
            "critical_bands",
            "Thresholds of the critical band: how many strengths of an octave's noise, from "
            f"the strongest down, break recognition. {lines}",
            bias_plots.curves(
                {"": ([*octaves.values()], frame[[*octaves]])},
                kinds,
                x="nominal cycles per image",
                y="threshold",
                doubling=True,
            ),
        )
    if images:
        yield document.Figure(
            "stimuli",
            "What the spectral biases show: photographs after low- and high-pass filters "
            "that keep the inner or outer share of frequencies (figures 7 and 14). "
            "High-pass images have mean zero and lose their negative part; they are drawn "
            f"{bias_plots.GAIN} times brighter than a network sees them.",
            bias_plots.stimuli(images),
        )
    yield bias_table(models)


def _normalised(models, study: relations.Study) -> document.Figure | None:
    """Draws bands with over those without division of accuracies, where there are any."""
    frame = models.frame
    banded = (frame["cb_bw_raw"] <= network_frame.DEGENERATE).to_numpy()
    if not banded.any():
        return None
    names = [name for name in ("cb_bw", "cb_cf", "cb_pns") if f"{name}_raw" in frame]
    grid = [[(title(name), f"{title(name)}, norm.") for name in names]]
    titles = {before: after for before, after in grid[0]}
    titles |= {title(f"{name}_raw"): title(name) for name in names}
    return document.Figure(
        "critical_band",
        "The critical band from accuracies divided by the largest (norm.) against that from "
        f"plain accuracies (figure 17). {(~banded).sum()} of {len(banded)} models have no "
        "band without the division and are left out.",
        _scatter(study, study.frame[banded].rename(columns=titles), grid, (2.8, 2.4)),
    )


def accuracy_table(models: network_frame.Models) -> tables.Table:
    """Shows accuracies, and averages over benchmarks."""
    names = {one: title(one) for one in models.benchmarks}
    if models.made is not None:  # What is not as published is named.
        ways = zip(models.made["column"], models.made["how"], strict=True)
        names |= {
            one: f"{title(one)} ({how})"
            for one, how in ways
            if how != network_frame.USUAL
        }
    members = "; ".join(
        f"{name} is the mean of {tables.join([names[one] for one in ones])}"
        for name, ones in models.members.items()
    )
    return _model_table(
        "accuracy",
        "Accuracy in % of every model on each benchmark, and averages over benchmarks "
        f"(Table 1): {members}.",
        models.frame,
        [*models.benchmarks, *models.members],
    )


def average_table(models: network_frame.Models) -> tables.Table:
    """Shows averages by category."""
    groups, names = models.frame.groupby("training", sort=False), [*models.members]
    table = tables.from_rows(
        "averages",
        "Means in % over the models of a category, by average of benchmarks.",
        groups[names].mean().assign(models=groups.size()).reset_index(),
        {"training": ("Training", title), "models": ("models", tables.whole)}
        | {name: (name, tables.digits(2)) for name in names},
    )
    return dataclasses.replace(table, texts=1)


def method_table(made: pd.DataFrame) -> tables.Table:
    """Shows how benchmarks and biases were measured, and of how many images."""
    counts = made[["images", "images_most"]].itertuples(index=False)
    images = (
        dict.fromkeys(f"{n:,.0f}" for n in ends if not pd.isna(n)) for ends in counts
    )
    table = tables.from_rows(
        "measured",
        "How each benchmark and bias was measured: on which set, what is not as published "
        "(an attack in any case), by which rule answers of several classes count, and of "
        "how many images, each of them in every condition.",
        made.assign(told=[" to ".join(ends) or "–" for ends in images]),
        {"column": ("Measure", title), "sets": ("set", str), "how": ("how", str)}
        | {"rules": ("rule", str), "told": ("images", str)}
        | {"models": ("models", tables.whole)},
    )
    return dataclasses.replace(table, data=made, texts=4)


def bias_table(models: network_frame.Models) -> tables.Table:
    """Shows biases, and behind the shape bias what it rests on."""
    frame, names = models.frame, [*models.biases]
    bands = [f"{name}_raw" for name in names if f"{name}_raw" in frame]
    if "shape" in names:
        behind = names.index("shape") + 1
        names[behind:behind] = [name for name in _RESTS if name in frame]
    interval = ""
    if "shape_n" in frame:
        seeds = ", of the seed with the fewest" if "seeds" in frame else ""
        interval = (
            f", with Wilson's interval of 95 %, of so many{seeds} (*: fewer than "
            f"{network_frame.FEW}, which says next to nothing)"
        )
    caption = (
        "Biases of every model (Table 2). Shape bias: share of shape decisions among shape "
        f"and texture decisions{interval}. Low- and high-frequency bias: mean ratio of "
        "accuracy on filtered to that on clean images. Bandwidth in octaves, centre "
        "frequency in nominal cycles per image. –: none."
    )
    return _model_table("biases", caption, frame, [*names, *bands])


def _model_table(
    name: str, caption: str, frame: pd.DataFrame, names: Sequence[str]
) -> tables.Table:
    """Makes a table of measures, a row a model; CSV has bands that are none, too."""
    data = frame[["name", "training", "epsilon", *names]]
    data = data.rename_axis("model").reset_index()
    shown = data.copy()
    if "cb_bw_raw" in data:
        none = data["cb_bw_raw"] > network_frame.DEGENERATE
        shown.loc[none, [one for one in names if one.endswith("_raw")]] = math.nan
    columns = {"name": ("Model", str), "training": ("training", title)}
    columns |= {one: (title(one), tables.digits(_DIGITS.get(one, 2))) for one in names}
    columns |= {"shape_n": (title("shape_n"), network_frame.decisions_text)}
    table = tables.from_rows(name, caption, shown, columns)
    return dataclasses.replace(table, data=data, texts=2)
