"""Study of biases: measured models, correlations of biases with generalisation, and the page.

After Gavrikov and Keuper, CVPR 2024, https://arxiv.org/abs/2404.01509; captions have the numbers
of figures and tables in that paper.
"""

import collections
import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from jbias.data import tables as data_tables
from jbias.report import bias_plots, document, network_frame, relations, tables
from jbias.report import network_records as records_lib

LEAST = 4  # Least number of models for correlations.
AT = network_frame.AT
VIT = "vision_transformers"
_DIGITS = dict.fromkeys(("shape", "shape_lower", "shape_upper", "low_freq"), 3)
_DIGITS |= {"high_freq": 4}
_SHAPE_DETAILS = (
    "shape_lower",
    "shape_upper",
    "shape_n",
)  # Columns after the shape bias.
Models, Study = network_frame.Models, relations.Correlations
Blocks = Iterator[document.Figure | tables.Table | None]
_LINES = "Thin lines are models, thick lines category means."
_GREY = "Grey: nothing to correlate."
_SIZED = "Markers grow with ε of adversarial training; without it they have one size."
_CAPTIONS = {
    "correlations": "Spearman's ρ of biases and averages of benchmarks (figure 2). {marked}",
    "benchmarks_correlations": "Spearman's ρ of benchmarks among themselves (figure 3). {marked}",
    "biases_correlations": "Spearman's ρ of biases among themselves (figure 12). {marked}",
    "models": "Averages of benchmarks in % against biases, one marker per model (figures 4, 5 "
    "and 6), with ρ above each panel.{sized}",
    "high_freq_trained": "Averages in % against high-frequency bias, adversarially trained "
    "models only (figure 10).{sized}",
    "benchmark_spread": "Accuracy of every model on each benchmark (figure 11), one lane per "
    "category; boxes span the quartiles.",
    "imagenet_a": "ImageNet-A in % against shape bias (figure 9).{sized}",
    "benchmark_pairs": "Every benchmark against every other (figure 15), each over its range in "
    "%. Above the diagonal: ρ.{sized}",
    "filters": "Accuracy on filtered images relative to clean ones, by the share of frequencies "
    f"that the filter keeps (figure 13). {_LINES}",
    "critical_bands": "Thresholds of the critical band: number of strengths of an octave's noise, "
    f"from the strongest down, at which recognition fails. {_LINES}",
    "critical_band": "The critical band from accuracies divided by the largest (norm.) against "
    "that from plain ones (figure 17), without the {none} of {all} models without a plain band.",
    "stimuli": "Photographs after the filters of the spectral biases (figures 7 and 14). High-pass "
    f"images lose their negative part, and are drawn {bias_plots.GAIN} times brighter.",
    "accuracy": "Accuracy in % of every model on each benchmark, and averages over benchmarks "
    "(Table 1): {members}.",
    "averages": "Means in % over the models of a category, without missing values.",
    "measured": "Settings of each benchmark and bias: options that differ from the published ones "
    "(an attack in any case), rule for answers of several classes, and number of images.",
    "biases": "Biases of every model (Table 2). Shape bias: share of shape decisions among both"
    "{interval}. Low- and high-frequency bias: mean ratio of accuracy on filtered to that on "
    "clean images. Bandwidth in octaves, centre frequency in nominal cycles per image.",
}


def title(name):
    """Return the title of a measure or category on a page; for a tuple, a tuple of titles."""
    if isinstance(name, tuple):
        return tuple(map(title, name))
    return network_frame.TITLES.get(name, name)


# Models.

# Models of the study by id; vision transformers (appendix) are a category each.
PUBLISHED = {
    one["id"]: {
        "name": one["name"],
        "training": one["name" if one["category"] == VIT else "category"],
        "epsilon": one.get("eps", math.nan),  # l2, or l-infinity in 1/255.
    }
    for one in data_tables.read("published_models")
}


def read(workdirs: Sequence[str], kinds=None, *, each_seed: bool = False) -> Models:
    """Return the models of workdirs (paths or globs), one row per run: means over its seeds.

    Runs that differ only in their seeds count as one run. each_seed: one row per seed instead;
    seeds of one run are not independent models, so that p is too small. kinds: frame of name,
    training and epsilon by run; default: those of the published study, else from the run's
    config. The last step of a run and seed counts. Raises ValueError as
    `network_records.read_records` does, and if models were measured with different options.
    """
    records, counted = records_lib.read_records(workdirs)
    unit = ["run", "seed"]
    last = records.groupby(unit, observed=True)["step"].transform("max")
    parts = list(records[records["step"] == last].groupby(unit, observed=True))
    of_run = _same_settings(records)
    seeds = collections.Counter(of_run[run] for (run, _), _ in parts)
    named = {} if kinds is None else kinds.to_dict("index")
    rows, methods = [], {}
    for (run, seed), part in parts:
        model, about = of_run[run], _about(run, part.iloc[0], PUBLISHED | named)
        one = f"{run} seed {seed}" if seeds[model] > 1 else model
        if each_seed and one != model:
            model, about["name"] = one, f"{about['name']} seed {seed}"
        measures = {}
        for workdir in part["workdir"].unique():
            measures |= records_lib.read_measures(workdir)
        cells, sizes = (records_lib.cells_of(part, key) for key in ("value", "n"))
        found, methods[one] = network_frame.row(cells, sizes, measures)
        rows.append({"model": model} | about | found)
    told, made = network_frame.compare_methods(methods)
    told = [*_measured_on(made), *told]
    if len(seeds) < len(parts):
        what = ": a model is the mean over the seeds of one run."
        if each_seed:
            what = (
                " count as models (--each-seed): seeds of one run are not independent,"
            )
            what += " so p is too small."
        runs = f"{len(seeds)} run" + "s" * (len(seeds) > 1)
        counted.append(f"{len(parts)} seeds of {runs}{what}")
    if unused := [name for name in named if name not in of_run]:
        told.append(f"In the table of kinds but not measured: {', '.join(unused)}.")
    by_model = pd.DataFrame(rows).set_index("model").groupby(level=0, sort=False)
    means = {model: _mean(of) for model, of in by_model}
    frame = pd.DataFrame.from_dict(means, orient="index")
    return network_frame.build_models(
        frame,
        source=" ".join(workdirs),
        counted=counted,
        notes=told,
        methods=made,
    )


def _same_settings(records: pd.DataFrame) -> dict[str, str]:
    """Return, for each run, the first run with the same settings apart from the seeds."""
    first: dict[str, str] = {}
    first_runs = {}
    for run, workdir in (
        records.groupby("run", observed=True)["workdir"].first().items()
    ):
        settings = records_lib.read_config(workdir).get("config", {})
        compared = {k: v for k, v in settings.items() if k not in ("seeds", "run")}
        known = json.dumps(compared, sort_keys=True) if settings else run
        first_runs[run] = first.setdefault(known, run)
    return first_runs


def _about(run: str, record: pd.Series, known: Mapping[str, dict]) -> dict:
    """Return name, training and epsilon of a run; known: those of some runs."""
    if run in known:
        return {**known[run]}
    config = records_lib.read_config(record["workdir"])
    algo = config.get("config", {}).get("algo", {})
    eps = algo.get("eps", math.nan) if algo.get("name") == "pgd" else math.nan
    kind = str(config.get("category", record["algorithm"]))
    if record["variant"]:
        kind += f" ({record['variant']})"  # Same name as in a report of runs.
    about = {"name": run, "training": AT if math.isfinite(eps) else kind}
    return about | {"epsilon": eps * (255 if algo.get("norm", "linf") == "linf" else 1)}


def _mean(seeds: pd.DataFrame) -> dict:
    """Return a model's row: means over its seeds, NaN if one seed has no value.

    shape_n is the smallest over seeds. Means have no intervals, since these hold for one
    network.
    """
    first = seeds.iloc[0].to_dict()
    if len(seeds) == 1:
        return first
    means = seeds.mean(numeric_only=True, skipna=False).to_dict()
    least = seeds["shape_n"].min() if "shape_n" in seeds else math.nan
    shape_details = dict(zip(_SHAPE_DETAILS, (math.nan, math.nan, least), strict=True))
    return first | {"seeds": len(seeds)} | means | shape_details


def _measured_on(made: pd.DataFrame) -> Iterator[str]:
    """Yield notes: data sets of the columns that are not named after a data set."""
    others = made[made["sets"] != made["column"]]
    for (on, how), part in others.groupby(["sets", "how"], sort=False):
        how = "" if how == network_frame.USUAL else f", {how}"
        yield f"Measured on {on}{how}: {', '.join(map(title, part['column']))}."


# Correlations.


def analyse(models: Models, **settings: Any) -> Study:
    """Correlate biases with averages, and benchmarks and biases among themselves.

    Over all models, and also within and without adversarially trained models if both have
    at least 4. settings: further fields of relations.Options. Raises ValueError for fewer than
    4 models.
    """
    frame = models.frame
    if len(frame) < LEAST:
        raise ValueError(
            f"{models.source}: must hold at least {LEAST} models to correlate, got "
            f"{len(frame)}; jbias report measured shows fewer"
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
        **settings,
    )
    return relations.analyse(frame, options, source=models.source)


def titled(study: Study) -> Study:
    """Return a study whose measures and categories have their titles as names."""

    def family(one):
        every = {key: getattr(one, key) for key in relations.NUMBERS}
        shown = {k: x.rename(index=title, columns=title) for k, x in every.items()}
        return dataclasses.replace(one, **shown)

    def named(frame: pd.DataFrame, *columns: str) -> pd.DataFrame:
        return frame.assign(**{name: frame[name].map(title) for name in columns})

    asked = ("x", "y", "split", "size", "among", "given")
    asked = {key: title(getattr(study.options, key)) for key in asked}
    return dataclasses.replace(
        study,
        options=dataclasses.replace(study.options, **asked),
        frame=named(study.frame, "training").rename(columns=title),
        families={title(name): family(one) for name, one in study.families.items()},
        pairs=named(study.pairs, "models", "x", "y"),
        influential=named(study.influential, "x", "y", "category"),
        among=tuple(map(family, study.among)),
        given=study.given and titled(study.given),
    )


# The page.


def report(models: Models, study: Study, *, images: Sequence = ()) -> document.Report:
    """Return the page; images: photographs to show after filtering."""
    shown = titled(study)
    caveats = [*relations.caveats(shown), *models.notes]
    if shown.options.split is None:
        caveats.append(
            "Correlations are not split by adversarial training: a split needs at least "
            f"{LEAST} adversarially trained models and {LEAST} others."
        )
    sections = (
        ("correlations", "Correlations", _correlations(shown)),
        ("models", "Models", _models(shown)),
        ("benchmarks", "Benchmarks", _benchmarks(models, shown)),
        ("biases", "Biases", _biases(models, shown, images)),
        ("caveats", "Caveats", [document.Text(caveats)]),
    )
    answer, basis = relations.headline(study)
    frame = models.frame.rename_axis("model").reset_index()
    facts = {"Models": len(frame), "Categories": frame["training"].nunique()}
    facts |= {"Biases": len(models.biases), "Benchmarks": len(models.benchmarks)}
    return document.Report(
        title="jbias study of biases",
        heading="Do biases correlate with generalisation?",
        subtitle=f"{len(models.biases)} biases and {len(models.benchmarks)} benchmarks of "
        f"{len(frame)} models, jbias report",
        answer=relations.headline(shown),
        facts=facts,
        sections=[document.Section(*x[:2], [*filter(None, x[2])]) for x in sections],
        results=relations.results(study)
        | {"headline": answer, "basis": basis, "caveats": caveats}
        | {"members": models.members, "biases": models.biases, "models": frame},
        source=f"Made from {models.source}. The study is that of Gavrikov and Keuper, Can "
        "Biases in ImageNet Models Explain Generalization?, CVPR 2024; numbers of figures "
        "and tables are those of that paper.",
        frames={"models": frame},
    )


def _figure(study: Study, name: str, drawn, **words: int) -> document.Figure:
    options = study.options
    level = f"p > {options.alpha:g} {relations.WORDS[options.adjust]}"
    words["marked"] = f"Hatched: {level} over the pairs of its table. {_GREY}"
    words["sized"] = f" {_SIZED}" if options.size else ""
    return document.Figure(name, _CAPTIONS[name].format(**words), drawn)


def _scatter(study: Study, frame: pd.DataFrame, grid, panel, rho=None):
    order = tuple(dict.fromkeys(study.frame["training"]))
    asked = dict(category="training", size=study.options.size, order=order)
    return relations.scatter(frame, grid, rho=rho, panel=panel, **asked)


def _among(study: Study, name: str, names: tuple[str, ...]) -> Blocks:
    for one in study.among:
        if tuple(one.statistic) == names:
            yield _figure(study, name, relations.heat(study, {"": one}))


def _correlations(study: Study) -> Blocks:
    yield _figure(study, "correlations", relations.heat(study, study.families))
    for _, table in relations.tables_of(study):
        if table and not table.name.startswith("among"):  # Which figures show.
            yield table


def _models(study: Study) -> Blocks:
    yield _figure(study, "models", relations.all_pairs(study))
    at, high = title((AT, "high_freq"))
    trained = study.frame[study.frame["training"] == at]
    if high in trained and len(trained) > 1:
        rho = study.families[at].statistic if at in study.families else None
        grid = [[(high, y) for y in study.options.y]]
        drawn = _scatter(study, trained, grid, (2.3, 2.1), rho)
        yield _figure(study, "high_freq_trained", drawn)


def _benchmarks(models: Models, study: Study) -> Blocks:
    frame, size, names = study.frame, study.options.size, title(models.benchmarks)
    every = frame, [*names], frame["training"]
    yield from _among(study, "benchmarks_correlations", names)
    drawn = bias_plots.spread(*every, x="accuracy in %")
    yield _figure(study, "benchmark_spread", drawn)
    shape, hard = title(("shape", "imagenet_a"))
    if {shape, hard} <= set(frame):
        drawn = _scatter(study, frame, [[(shape, hard)]], (4.8, 2.8))
        yield _figure(study, "imagenet_a", drawn)
    if len(names) > 2:
        sizes = frame[size] if size else pd.Series(index=frame.index)
        rho = study.among[0].statistic  # Biases come second.
        yield _figure(study, "benchmark_pairs", bias_plots.pairs(*every, sizes, rho))
    yield from (accuracy_table(models), average_table(models))
    if models.methods is not None:
        yield method_table(models.methods)


def _biases(models: Models, study: Study, images) -> Blocks:
    frame, kinds = models.frame, study.frame["training"]
    yield from _among(study, "biases_correlations", study.options.x)
    panels = {
        f"{kind}-pass": ([100 * cut for cut in cuts.values()], frame[[*cuts]])
        for kind in ("low", "high")
        if (cuts := models.places(kind))
    }
    if panels:
        labels = "cut-off in %", "ratio of clean accuracy"
        yield _figure(study, "filters", bias_plots.curves(panels, kinds, labels))
    if "cb_bw_raw" in frame:
        yield _normalised(frame, study)
    if octaves := models.places("threshold"):
        panels = {"": ([*octaves.values()], frame[[*octaves]])}
        labels = "nominal cycles per image", "threshold"
        drawn = bias_plots.curves(panels, kinds, labels, doubling=True)
        yield _figure(study, "critical_bands", drawn)
    if images:
        yield _figure(study, "stimuli", bias_plots.stimuli(images))
    yield bias_table(models)


def _normalised(frame: pd.DataFrame, study: Study) -> document.Figure | None:
    """Draw bands from normalised against bands from plain accuracies; None without any."""
    banded = (frame["cb_bw_raw"] <= network_frame.DEGENERATE).to_numpy()
    if not banded.any():
        return None
    names = [name for name in ("cb_bw", "cb_cf", "cb_pns") if f"{name}_raw" in frame]
    grid = [[(title(name), f"{title(name)}, norm.") for name in names]]
    titles = dict(grid[0]) | {title(f"{name}_raw"): title(name) for name in names}
    shown = study.frame[banded].rename(columns=titles)
    count = {"none": (~banded).sum(), "all": len(banded)}
    drawn = _scatter(study, shown, grid, (2.8, 2.4))
    return _figure(study, "critical_band", drawn, **count)


def accuracy_table(models: Models) -> tables.Table:
    """Return the table of accuracies and averages by model."""
    names = {one: title(one) for one in models.benchmarks}
    if models.methods is not None:  # Name options that differ from the published ones.
        for column, how in models.methods.set_index("column")["how"].items():
            if how != network_frame.USUAL and column in names:
                names[column] += f" ({how})"
    means = {k: tables.join([names[x] for x in of]) for k, of in models.members.items()}
    members = "; ".join(f"{name} is the mean of {of}" for name, of in means.items())
    columns = [*models.benchmarks, *models.members]
    return _model_table("accuracy", models.frame, columns, members=members)


def average_table(models: Models) -> tables.Table:
    """Return the table of averages by category."""
    groups, names = models.frame.groupby("training", sort=False), [*models.members]
    rows = groups[names].mean().assign(models=groups.size()).reset_index()
    columns = {"training": ("training", title)} | tables.columns("models:d")
    columns |= {name: (name, tables.digits(2)) for name in names}
    return tables.from_rows("averages", _CAPTIONS["averages"], rows, columns)


def method_table(made: pd.DataFrame) -> tables.Table:
    """Return the table of settings of benchmarks and biases."""
    counts = made[["images", "images_most"]].itertuples(index=False)
    images = [[f"{n:,.0f}" for n in ends if not pd.isna(n)] for ends in counts]
    told = [" to ".join(dict.fromkeys(ends)) or "–" for ends in images]
    heads = dict(sets="set", rules="rule", told="images")
    columns = {"column": ("measure", title)}
    columns |= tables.columns("sets how rules told models:d", **heads)
    caption, rows = _CAPTIONS["measured"], made.assign(told=told)
    return tables.from_rows("measured", caption, rows, columns, data=made)


def bias_table(models: Models) -> tables.Table:
    """Return the table of biases by model, with interval and decisions of the shape bias."""
    frame, names = models.frame, [*models.biases]
    bands = [f"{name}_raw" for name in names if f"{name}_raw" in frame]
    if "shape" in names:
        behind = names.index("shape") + 1
        names[behind:behind] = [name for name in _SHAPE_DETAILS if name in frame]
    seeds = ", of the seed with the fewest" * ("seeds" in frame)
    interval = f", with Wilson's interval of 95 %, and number of decisions{seeds} (*: fewer than "
    interval += f"{network_frame.FEW}, which is unreliable)"
    told = {"interval": interval * ("shape_n" in frame)}
    return _model_table("biases", frame, [*names, *bands], **told)


def _model_table(name: str, frame: pd.DataFrame, names, **words: str) -> tables.Table:
    """Return a table of measures by model; only the files include failed fits of bands."""
    data = frame[["name", "training", "epsilon", *names]]
    data = data.rename_axis("model").reset_index()
    shown = data.copy()
    if "cb_bw_raw" in data:
        none = data["cb_bw_raw"] > network_frame.DEGENERATE
        shown.loc[none, [one for one in names if one.endswith("_raw")]] = math.nan
    columns = {"name": ("model", str), "training": ("training", title)}
    columns |= {one: (title(one), tables.digits(_DIGITS.get(one, 2))) for one in names}
    columns |= {"shape_n": (title("shape_n"), network_frame.decisions_text)}
    caption = _CAPTIONS[name].format(**words)
    return tables.from_rows(name, caption, shown, columns, data=data)
