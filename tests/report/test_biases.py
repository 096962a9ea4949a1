"""`jbias report biases`: correlation of biases of measured networks with generalisation."""

import html.parser
import json
import math

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from jbias.measures import corruption_error
from jbias.report import biases, network_frame
from jbias.report.pages.biases import bias_models, bias_plots, biases_page
from jbias.runs import results
from jbias.runtime import cli

CUTS = (0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99)


def test_points_of_pairs_fill_their_cells():
    """Models with the largest and the smallest values are at the ends of the cells."""
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [30.0, 10.0, 20.0]})
    kinds = pd.Series(["x", "y", "y"])
    fig = bias_plots.pairs(
        frame,
        ["a", "b"],
        kinds,
        sizes=pd.Series([np.nan] * 3),
        rho=frame.rank().corr(),
    )
    (axes,) = fig.axes
    first, second = (
        np.asarray(points.get_offsets()) for points in axes.collections[-2:]
    )
    assert first[0] == pytest.approx([0.1, 1.1])
    assert second == pytest.approx(np.array([[0.5, 1.9], [0.9, 1.5]]))
    texts = [text.get_text() for text in axes.texts]
    assert {"a", "1.0 to 3.0", "10.0 to 30.0", "−0.50"} <= set(texts)


def test_filters_keep_the_selected_frequencies():
    rng = np.random.default_rng(0)
    image = rng.uniform(0.3, 0.7, (32, 32, 3))
    np.testing.assert_allclose(bias_plots.filtered(image, 1.0, high=False), image)
    flat = np.full((32, 32, 3), 0.4)
    np.testing.assert_allclose(bias_plots.filtered(flat, 0.3, high=False), flat)
    assert bias_plots.filtered(flat, 0.3, high=True).max() < 1e-12
    # A wave below the radius passes the low-pass filter and not the high-pass filter.
    wave = 0.5 + 0.1 * np.cos(2 * np.pi * 3 * np.arange(32) / 32)
    image = np.broadcast_to(wave[:, None, None], (32, 32, 3))
    low = bias_plots.filtered(image, 0.5, high=False)
    high = bias_plots.filtered(image, 0.5, high=True)
    np.testing.assert_allclose(low, image, atol=1e-12)
    assert high.max() < 1e-12


def test_photographs_are_shown_after_filtering(tmp_path):
    rng = np.random.default_rng(0)
    for name, size in (("a.png", (300, 260)), ("b.jpg", (224, 224))):
        pixels = rng.integers(0, 255, (*size, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / name)
    images = bias_plots.read_photographs(str(tmp_path))
    assert [image.shape for image in images] == [(224, 224, 3)] * 2
    drawn = bias_plots.stimuli(images)
    assert len([axes for axes in drawn.axes if axes.images]) == 2 * 11


RUNS = ("erm", "padain", "sagnet", "mixup", "pgd1", "pgd2", "pgd4", "pgd8")


def records(run, seed=0, *, band=True):
    """Yield records like those of `jbias evaluate` on the embedded set."""
    rng = np.random.default_rng([len(run), ord(run[-1]), seed])
    base = dict(run=run, algorithm=run.rstrip("1248"), variant="", model="resnet18")
    base |= dict(train_data="shapes", stage=0, seed=seed, step=100, epoch=5.0)
    rise = rng.uniform(0.3, 0.9)

    def record(dataset, condition, metric, value):
        return results.Record(
            **base, dataset=dataset, condition=condition, metric=metric, value=value
        )

    for name in ("test", *network_frame.OTHERS["Concepts"], "corrupted"):
        yield record(name, "", "accuracy", float(rise * rng.uniform(0.6, 1)))
    yield record("cue-conflict", "shape_bias", "shape_bias", float(rng.uniform()))
    yield record("cue-conflict", "shape_bias/class=3", "shape_bias", 0.5)
    for kind in ("low", "high"):
        yield record("test", "spectral", f"{kind}_freq_bias", float(rng.uniform()))
        for cut in CUTS:
            yield record("test", f"spectral/{kind} {cut:g}", "accuracy", 0.1)
            yield record("test", f"spectral/{kind} {cut:g}", "accuracy_ratio", cut)
    for metric in ("bandwidth", "center_frequency", "peak_noise_sensitivity"):
        value = float(rng.uniform(2, 9)) if band else None
        yield record("test", "critical_band", f"critical_band_{metric}", value)
    for frequency, value in ((2, 0.0), (4, 3.0), (8, 4.0), (16, 2.0)):
        name = f"critical_band/noise at {frequency}"
        yield record("test", name, "critical_band_threshold", value)
    yield record("test", "imagenet_c", "corruption_accuracy_without_frost", 0.5 * rise)
    yield record("test", "pgd/linf 0.5/255", "pgd_accuracy", float(rng.uniform()))


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("measured")
    for run in RUNS:
        for seed in (0, 1) if run == "erm" else (0,):
            workdir = folder / f"{run}-seed{seed}"
            path = workdir / "evals" / "accuracy@test.jsonl"
            results.write(path, records(run, seed, band=run != "mixup"))
            config = {"category": run}
            if run.startswith("pgd"):
                eps = float(run[3:]) / 255
                config["config"] = {"algo": {"name": "pgd", "norm": "linf", "eps": eps}}
            (workdir / "config.json").write_text(json.dumps(config))
    return folder


def test_each_model_is_a_row_of_its_records(measured):
    models = bias_models.read([f"{measured}/*"], each_seed=True)
    assert list(models.frame.index) == [
        *("erm seed 0", "erm seed 1", *sorted(RUNS)[1:]),
    ]
    assert models.members["ID"] == ("test",)
    assert models.members["Robustness"] == ("corrupted", "imagenet_c")
    trained = models.frame[models.frame["training"] == network_frame.AT]
    assert trained["epsilon"].tolist() == pytest.approx([1, 2, 4, 8])
    cells = {(r.dataset, r.condition, r.metric): r.value for r in records("padain")}
    padain_row = models.frame.loc["padain"]
    assert padain_row["test"] == 100 * cells["test", "", "accuracy"]
    assert padain_row["shape"] == cells["cue-conflict", "shape_bias", "shape_bias"]
    assert padain_row["pgd"] == 100 * cells["test", "pgd/linf 0.5/255", "pgd_accuracy"]
    assert padain_row["Robustness"] == pytest.approx(
        padain_row[["corrupted", "imagenet_c"]].mean()
    )
    assert [padain_row[name] for name in models.curve_columns("low")] == list(CUTS)
    assert models.curve_columns("threshold") == {
        f"threshold_{at}": at for at in (2, 4, 8, 16)
    }
    notes = " ".join(models.notes)
    assert "Measured on test, without frost: ImageNet-C." in notes
    assert (
        "1 of 9 models have no value and are left out of analyses of it: mixup."
        in notes
    )
    assert "9 seeds of 8 runs count as models (--each-seed)" in notes


def records_with_shape_interval(run, n, seed=0):
    """Yield records with the number of decisions and the interval of the shape bias."""
    for record in records(run, seed):
        if record.condition == "shape_bias":
            yield record._replace(value=0.25, count=n // 4, n=n)
            yield record._replace(metric="shape_bias_lower", value=0.1, n=n)
            yield record._replace(metric="shape_bias_upper", value=0.5, n=n)
        else:
            yield record


def test_shape_biases_have_their_number_of_decisions(tmp_path):
    for run, n, seed in (("a", 8, 0), ("b", 1200, 0), ("c", 40, 0), ("c", 16, 1)):
        path = tmp_path / f"{run}{seed}" / "evals" / "shape_bias@cue-conflict.jsonl"
        results.write(path, records_with_shape_interval(run, n, seed))
    models = bias_models.read([f"{tmp_path}/*"])
    assert models.frame["shape_n"].to_dict() == {"a": 8, "b": 1200, "c": 16}
    warning = (
        "A shape bias from fewer than 10 decisions for either cue is unreliable: a (8)."
    )
    assert warning in models.notes
    table = biases_page.bias_table(models)
    assert table.head[2:6] == ("shape bias", "from", "to", "of")
    assert [row[2:6] for row in table.rows] == [
        ("0.250", "0.100", "0.500", "8*"),
        ("0.250", "0.100", "0.500", "1,200"),
        ("0.250", "–", "–", "16"),
    ]


@pytest.mark.slow
def test_a_model_is_the_mean_over_the_seeds_of_a_run(measured, tmp_path):
    """A measure missing for one seed is missing for the run; one seed is its own mean."""
    patterns = [f"{measured}/*"]
    models = bias_models.read(patterns)
    seed_frame = bias_models.read(patterns, each_seed=True).frame
    assert list(models.frame.index) == sorted(RUNS)
    numbers = [
        name for name in seed_frame if name not in ("name", "training", "epsilon")
    ]
    erm_seeds = seed_frame.loc[["erm seed 0", "erm seed 1"], numbers]
    assert erm_seeds["shape"].nunique() == 2
    for name in numbers:
        assert models.frame.loc["erm", name] == pytest.approx(erm_seeds[name].mean()), (
            name
        )
        assert models.frame.loc["pgd2", name] == seed_frame.loc["pgd2", name], name
    assert models.frame.loc["erm", ["name", "training"]].tolist() == ["erm", "erm"]
    assert models.frame["seeds"].dropna().to_dict() == {"erm": 2}
    note = "9 seeds of 8 runs: a model is the mean over the seeds of one run."
    assert models.notes[0] == note
    sizes = bias_models.analyse(models, permutations=20).pairs.set_index(
        ["models", "x"]
    )
    assert set(sizes.loc[("all", "shape"), "n"]) == {8}
    incomplete = pd.DataFrame([shape_row(1.0), shape_row(math.nan)])
    assert math.isnan(bias_models._mean(incomplete)["shape"])


def test_runs_that_differ_only_by_seed_are_one_model(tmp_path):
    for run, rate, seed in (("a", 1, 0), ("b", 1, 1), ("c", 2, 2)):
        results.write(
            tmp_path / run / "evals" / "accuracy@test.jsonl", records(run, seed)
        )
        settings = {"algo": {"name": "erm"}, "rate": rate, "seeds": [seed]}
        settings["run"] = {"devices": seed}
        (tmp_path / run / "config.json").write_text(json.dumps({"config": settings}))
    models = bias_models.read([f"{tmp_path}/*"])
    assert list(models.frame.index) == ["a", "c"]
    assert "3 seeds of 2 runs: " in models.notes[0]
    seed_frame = bias_models.read([f"{tmp_path}/*"], each_seed=True).frame
    assert list(seed_frame.index) == ["a seed 0", "b seed 1", "c"]
    assert models.frame.loc["a", "shape"] == pytest.approx(
        seed_frame["shape"].iloc[:2].mean()
    )


def shape_row(shape):
    return {"name": "a", "training": "a", "epsilon": math.nan, "shape": shape}


def test_networks_with_equal_weights_are_one_model(tmp_path):
    """The network with more measures counts if two networks have equal weights."""
    for run, digest in (("a", "1"), ("copy", "1"), ("b", "2"), ("c", "3"), ("d", "")):
        stored = list(records(run))[: None if run != "a" else 4]
        results.write(tmp_path / run / "evals" / "accuracy@test.jsonl", stored)
        identity = {"digest": digest, "path": run} if digest else {"workers": 0}
        (tmp_path / run / "config.json").write_text(json.dumps({"run": identity}))
    models = bias_models.read([f"{tmp_path}/*"])
    assert list(models.frame.index) == ["b", "c", "copy", "d"]
    assert models.notes[0] == (
        "Networks with the same weights, of which the first counts: copy seed 0 step 100, a seed 0 step 100."
    )


def test_variants_are_separate_methods(tmp_path):
    """ERM with MixUp is separate from ERM; adversarial training of any variant is one kind."""
    for run, variant in (("erm", ""), ("mixup", "mixup"), ("pgd1", "mixup")):
        stored = [r._replace(algorithm="erm", variant=variant) for r in records(run)]
        results.write(tmp_path / run / "evals" / "accuracy@test.jsonl", stored)
        algo = {"name": run.rstrip("1"), "eps": 1 / 255}
        config = {"category": "erm", "config": {"algo": algo}}
        (tmp_path / run / "config.json").write_text(json.dumps(config))
    frame = bias_models.read([f"{tmp_path}/*"]).frame
    assert frame["training"].tolist() == ["erm", "erm (mixup)", network_frame.AT]


def test_unmeasured_models_in_the_table_of_kinds_have_a_note(measured):
    lines = {"misspelt": {"name": "x", "training": "baseline", "epsilon": float("nan")}}
    kinds = pd.DataFrame.from_dict(lines, orient="index")
    models = bias_models.read([f"{measured}/*"], kinds)
    assert "In the table of kinds but not measured: misspelt." in models.notes


def test_the_table_of_kinds_names_models(measured, tmp_path):
    path = tmp_path / "kinds.csv"
    path.write_text("model,name,training,epsilon\nerm,Plain,baseline,\nmixup,,aug,2\n")
    kinds = network_frame.read_kinds(str(path))
    models = bias_models.read([f"{measured}/*"], kinds, each_seed=True)
    columns = models.frame[["name", "training", "epsilon"]]
    assert columns.loc["erm seed 1"].tolist()[:2] == ["Plain seed 1", "baseline"]
    assert columns.loc["mixup"].tolist() == ["mixup", "aug", 2.0]
    assert columns.loc["padain", "training"] == "padain"


class Page(html.parser.HTMLParser):
    """Parser that records open tags, ids, links and text."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.links, self.words = [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "br"):
            self.open.append(tag)
        self.handle_startendtag(tag, attrs)

    def handle_startendtag(self, tag, attrs):
        self.ids += [value for name, value in attrs if name == "id"]
        names = ("href", "xlink:href", "src")
        self.links += [value for name, value in attrs if name in names]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


@pytest.mark.slow
def test_the_report_has_a_page_figures_and_tables(measured, tmp_path, capsys):
    args = [f"--measured={measured}/*", f"--out={tmp_path}", "--permutations=99"]
    assert biases.main(args) == 0
    assert capsys.readouterr().out.endswith(f"written: {tmp_path / 'index.html'}\n")
    page = Page((tmp_path / "index.html").read_text())
    assert page.open == []
    assert len(set(page.ids)) == len(page.ids)
    assert {link[1:] for link in page.links if link[0] == "#"} <= set(page.ids)
    assert not [link for link in page.links if not link.startswith(("#", "data:"))]
    words = " ".join(page.words)
    assert "adversarial training" in words
    assert "ReaL" not in words  # ReaL is a remark on the published numbers only.
    drawn = {path.stem for path in (tmp_path / "figures").glob("*.svg")}
    assert {"correlations", "models", "filters", "critical_bands"} <= drawn
    assert {"critical_band", "imagenet_a", "vit", "stimuli"}.isdisjoint(drawn)
    tree = json.loads((tmp_path / "results.json").read_text())
    assert tree["members"]["Concepts"] == list(network_frame.OTHERS["Concepts"])
    assert {row["models"] for row in tree["correlations"]} == {
        *("all", network_frame.AT, f"not {network_frame.AT}"),
    }
    sizes = {
        row["x"]: row["n"] for row in tree["correlations"] if row["models"] == "all"
    }
    assert (sizes["shape"], sizes["cb_bw"]) == (8, 7)
    table = pd.read_csv(tmp_path / "tables" / "models.csv", index_col="model")
    assert table.loc["padain", "low_0.5"] == 0.5


@pytest.mark.parametrize("form", ["--measured={}", "--measured {}"])
def test_globs_expanded_by_the_shell_are_accepted(measured, tmp_path, form):
    """A shell passes --measured=runs/* as one argument or as several."""
    argv = form.format(" ".join(map(str, sorted(measured.glob("pgd*"))))).split()
    args = biases.parser().parse_args(
        cli.split_values(argv + ["--out=o"], "--measured")
    )
    assert args.measured == [str(path) for path in sorted(measured.glob("pgd*"))]
    assert args.out == "o"


@pytest.mark.slow
def test_bad_input_is_refused_in_one_line(measured, tmp_path, capsys):
    for args, message in (
        (
            [f"--measured={measured}/*", "--kinds=no.csv"],
            "no.csv: no such file or directory",
        ),
        ([f"--measured={measured}/pgd*", "--seed=-1"], "--seed: must be 0 or larger"),
        (
            [f"--measured={measured}/pgd1*"],
            "at least 4 models to correlate, got 1; jbias report measured",
        ),
        ([f"--measured={measured}/erm*"], "(2 seeds of 1 run: a model is the mean"),
        (
            [f"--measured={measured}/*", f"--images={measured}"],
            "must hold .jpg or .png",
        ),
    ):
        assert biases.main([*args, f"--out={tmp_path / 'out'}"]) == 2
        error = capsys.readouterr().err
        assert error.startswith("biases: ")
        assert error.count("\n") == 1
        assert message in error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("flag", ["--benchmark=x", "--printed=x"])
def test_flags_of_the_published_study_name_the_new_command(flag, capsys):
    with pytest.raises(SystemExit) as exit_info:
        biases.main([flag, "--out=o"])
    assert exit_info.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert f"{flag[:-2]}: this flag has moved; use `jbias papers biases`" in error


def test_the_attack_in_the_row_is_named():
    """An attack of another strength counts only if it is the only measured attack."""
    base = {("test", "", "accuracy"): 0.5}
    weak = ("test", "pgd/linf 0.25/255", "pgd_accuracy")
    standard = ("test", "pgd/linf 0.5/255", "pgd_accuracy")
    values, settings = network_frame.row(base | {weak: 0.25})
    assert (values["pgd"], settings["pgd"].text) == (25, "test, linf 0.25/255")
    values, settings = network_frame.row(base | {weak: 0.25, standard: 0.125})
    assert (values["pgd"], settings["pgd"].text) == (12.5, "test, linf 0.5/255")
    strong = ("test", "pgd/linf 1/255", "pgd_accuracy")
    values, _ = network_frame.row(base | {weak: 0.25, strong: 0.0})
    assert "pgd" not in values


OPTIONS = {"pgd": ("pgd", {}), "spectral": ("spectral", {})}
OPTIONS["shape_bias"] = ("shape_bias", {})
OPTIONS["imagenet_c"] = ("corruptions", {"names": "imagenet_c"})


def write_workdir(workdir, stored_records, options=OPTIONS, n=480, images=96):
    """Write records and descriptions of their measures like `jbias evaluate`."""
    stored_records = list(stored_records)
    results.write(workdir / "evals" / "all.jsonl", stored_records)
    (workdir / "measures").mkdir()
    for measure, dataset in {
        (r.condition.partition("/")[0], r.dataset) for r in stored_records
    }:
        probe, probe_options = options.get(measure, ("plain", {}))
        settings = {"probe": probe, "options": probe_options}
        settings["aggregates"] = ["mean_prob"]
        settings["images"] = None if probe == "plain" else images
        description = {"measure": settings, "images": n, "seconds": 1.0}
        description["dataset"] = {"fingerprint": f"{dataset}{n}", "n": n}
        name = f"{measure or 'accuracy'}@{dataset}.json"
        (workdir / "measures" / name).write_text(json.dumps(description))


def test_measures_are_identified_by_their_probes(tmp_path):
    """The names of measures in a suite have no effect."""
    names = {"spectral": "filters", "pgd": "attack", "imagenet_c": "weather"}
    names |= {"shape_bias": "cues"}

    def rename(record):
        measure, slash, condition = record.condition.partition("/")
        renamed = names.get(measure, measure) + slash + condition
        return record._replace(condition=renamed)

    usual = list(records("a"))
    options = {names[name]: OPTIONS[name] for name in names}
    write_workdir(tmp_path / "a", map(rename, usual), options)
    write_workdir(tmp_path / "b", (record._replace(run="b") for record in usual))
    frame = bias_models.read([f"{tmp_path}/*"]).frame
    numbers = frame.drop(columns=["name", "training"])
    pd.testing.assert_series_equal(
        numbers.loc["a"], numbers.loc["b"], check_names=False
    )
    assert numbers.loc["a", ["shape", "low_0.5", "pgd", "imagenet_c"]].notna().all()
    other_probes = {**OPTIONS, "spectral": ("calibration", {})}
    write_workdir(
        tmp_path / "c", (record._replace(run="c") for record in usual), other_probes
    )
    frame = bias_models.read([f"{tmp_path}/*"]).frame
    assert math.isnan(frame.loc["c", "low_freq"]), (
        "the name of a measure is not its probe"
    )


def test_a_measure_with_published_settings_has_priority():
    cells = {("test", "a", "low_freq_bias"): 0.1, ("test", "b", "low_freq_bias"): 0.2}
    options_by_measure = {"a": {"symmetric": True}, "b": {}}
    measures = {
        (name, "test"): {"measure": {"probe": "spectral", "options": options}}
        for name, options in options_by_measure.items()
    }
    values, settings = network_frame.row(cells, measures=measures)
    assert (values["low_freq"], settings["low_freq"].how) == (0.2, "")
    del cells["test", "b", "low_freq_bias"]
    values, settings = network_frame.row(cells, measures=measures)
    assert (values["low_freq"], settings["low_freq"].how) == (0.1, "symmetric True")


def rename_records(stored_records, run, old="", new=""):
    for record in stored_records:
        condition = record.condition.replace(old, new) if old else record.condition
        yield record._replace(run=run, condition=condition)


def test_measures_with_different_settings_are_refused(tmp_path):
    usual = list(records("a"))
    write_workdir(tmp_path / "a", rename_records(usual, "a"))
    for setting, stored_records, options, message in (
        (
            "steps",
            rename_records(usual, "b", "0.5/255", "0.5/255 2 steps"),
            OPTIONS,
            r"PGD: .*got linf 0.5/255 \(a\); linf 0.5/255 2 steps \(b\); measure",
        ),
        (
            "symmetric",
            rename_records(usual, "b"),
            {**OPTIONS, "spectral": ("spectral", {"symmetric": True})},
            r"low-frequency bias: .*as published \(a\); symmetric True \(b\)",
        ),
        (
            "frost",
            (
                record._replace(metric=record.metric.removesuffix("_without_frost"))
                for record in rename_records(usual, "b")
            ),
            OPTIONS,
            r"ImageNet-C: .*got without frost \(a\); as published \(b\)",
        ),
    ):
        write_workdir(tmp_path / setting, stored_records, options)
        with pytest.raises(ValueError, match=message):
            bias_models.read([str(tmp_path / "a"), str(tmp_path / setting)])


def test_models_measured_on_other_images_are_named(tmp_path):
    usual = list(records("a"))
    write_workdir(tmp_path / "a", rename_records(usual, "a"))
    write_workdir(tmp_path / "b", rename_records(usual, "b"))
    assert "different images or rules" not in " ".join(
        bias_models.read([f"{tmp_path}/*"]).notes
    )
    write_workdir(tmp_path / "c", rename_records(usual, "c"), images=16)
    write_workdir(tmp_path / "d", rename_records(usual, "d"), n=1000)
    models = bias_models.read([f"{tmp_path}/*"])
    start = "PGD has different images or rules: "
    (line,) = [line for line in models.notes if line.startswith(start)]
    assert line.removeprefix(start) == (
        "96 images, files test480 (a, b); 16 images, files test480 (c);"
        " 96 images, files test1000 (d)."
    )
    table = biases_page.settings_table(models.settings)
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["PGD"] == ("test", "linf 0.5/255", "mean_prob", "16 to 96", "4")
    table = biases_page.accuracy_table(models)
    assert "Adversarial is the mean of PGD (linf 0.5/255)" in table.caption
    assert rows["test"] == ("test", "as published", "mean_prob", "480 to 1,000", "4")


def test_published_corruptions_have_priority():
    """Generated corruptions are used only where the published files are missing."""
    cells = {("imagenet", "", "accuracy"): 0.75}
    for metric in ("corruption_accuracy", "corruption_accuracy_without_frost"):
        cells["imagenet", "imagenet_c", metric] = 0.5
    assert network_frame.row(cells)[0]["imagenet_c"] == 50
    for i, name in enumerate(corruption_error.CORRUPTED["imagenet_c"]):
        for severity in range(1, 6):
            cells[f"{name}_{severity}", "", "accuracy"] = (i + severity) / 100
            condition = f"imagenet_c/{name}-{severity}"
            cells["imagenet", condition, "accuracy"] = 0.5
    values, settings = network_frame.row(cells)
    assert values == {"imagenet": 75, "imagenet_c": pytest.approx(9 + 3)}
    assert settings["imagenet_c"].text == "published files"
    del cells["fog_5", "", "accuracy"]
    values, settings = network_frame.row(cells)
    fog = list(corruption_error.CORRUPTED["imagenet_c"]).index("fog") + 5
    assert values["imagenet_c"] == pytest.approx(12 + (50 - fog) / 95)
    assert settings["imagenet_c"].text == "94 published files and imagenet"


def test_nearly_equal_bandwidths_tie():
    """Two fits of the same bandwidth differ in the last digits; their ranks must be equal."""
    key = ("test", "critical_band", "critical_band_bandwidth")
    widths = [
        network_frame.row({key: w})[0]["cb_bw"] for w in (1.954117479, 1.954117487)
    ]
    assert widths[0] == widths[1] == pytest.approx(1.954117)


def test_imagenet_models_use_the_data_sets_of_the_study():
    """Other measured data sets, such as sketches of 16 classes, are ignored."""
    names = (
        *sum(network_frame.MEMBERS.values(), ()),
        *network_frame.OTHERS["Concepts"],
    )
    rows = {
        model: {name: 10.0 * i + j for j, name in enumerate(names)} | {"shape": 0.1 * i}
        for i, model in enumerate("abcd")
    }
    frame = pd.DataFrame.from_dict(rows, orient="index").assign(training="x")
    models = network_frame.build_models(frame, source="s")
    assert models.members == dict(network_frame.MEMBERS)
    lacking = network_frame.build_models(frame.drop(columns="imagenet_r"), source="s")
    assert lacking.members["Concepts"] == ("imagenet_sketch", "stylized16")
    assert "Not measured, or undefined for every model: " in lacking.notes[0]
    assert "ImageNet-R" in lacking.notes[0]
    frame.loc["b", "imagenet_r"] = np.nan
    incomplete = network_frame.build_models(frame, source="s")
    assert incomplete.frame["Concepts"].isna().tolist() == [False, True, False, False]
    study = bias_models.analyse(incomplete, permutations=20)
    sizes = study.pairs.set_index("y")["n"]
    assert (sizes["Concepts"], sizes["ID"]) == (3, 4)


def test_a_centre_outside_the_octaves_gives_no_bias():
    """Records of earlier versions may have such centres."""
    place = "critical_band"
    cells = {
        ("test", f"{place}/noise at {at}", "critical_band_threshold"): 1.0
        for at in (2, 4, 8, 16)
    }
    names = ("bandwidth", "center_frequency", "peak_noise_sensitivity")
    for centre, expected in ((8.0, True), (276205.5, False), (1.0, False)):
        for name, value in zip(names, (2.0, centre, 0.5), strict=True):
            cells["test", place, f"critical_band_{name}"] = value
        values, _ = network_frame.row(cells)
        is_defined = [
            not math.isnan(values[key]) for key in ("cb_bw", "cb_cf", "cb_pns")
        ]
        assert is_defined == [expected] * 3
