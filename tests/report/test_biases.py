"""`jbias report biases`: do biases of measured checkpoints go with generalisation?"""

import html.parser
import json
import math

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from jbias.evals import corruption_error
from jbias.report import bias_plots, bias_study, biases, network_frame
from jbias.runs import results
from jbias.runtime import cli

CUTS = (0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99)


def test_pairs_stand_in_their_cells():
    """Models of the largest and smallest values lie at the ends of each cell."""
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
    first, second = (np.asarray(one.get_offsets()) for one in axes.collections[-2:])
    assert first[0] == pytest.approx([0.1, 1.1])
    assert second == pytest.approx(np.array([[0.5, 1.9], [0.9, 1.5]]))
    texts = [text.get_text() for text in axes.texts]
    assert {"a", "1.0 to 3.0", "10.0 to 30.0", "−0.50"} <= set(texts)


def test_filters_keep_their_share():
    rng = np.random.default_rng(0)
    image = rng.uniform(0.3, 0.7, (32, 32, 3))
    np.testing.assert_allclose(bias_plots.filtered(image, 1.0, high=False), image)
    flat = np.full((32, 32, 3), 0.4)
    np.testing.assert_allclose(bias_plots.filtered(flat, 0.3, high=False), flat)
    assert bias_plots.filtered(flat, 0.3, high=True).max() < 1e-12
    # With the same radius both add up to the image, where neither is clipped.
    wave = 0.5 + 0.1 * np.cos(2 * np.pi * 3 * np.arange(32) / 32)
    image = np.broadcast_to(wave[:, None, None], (32, 32, 3))
    low = bias_plots.filtered(image, 0.5, high=False)
    high = bias_plots.filtered(image, 0.5, high=True)
    np.testing.assert_allclose(low, image, atol=1e-12)
    assert high.max() < 1e-12


def test_photographs_are_shown_as_filters_leave_them(tmp_path):
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
    """Gives what `evaluate` writes of the embedded set."""
    rng = np.random.default_rng([len(run), ord(run[-1]), seed])
    base = dict(run=run, algorithm=run.rstrip("1248"), variant="", model="resnet18")
    base |= dict(train_data="shapes", stage=0, seed=seed, step=100, epoch=5.0)
    rise = rng.uniform(0.3, 0.9)

    def one(dataset, condition, metric, value):
        return results.Record(
            **base, dataset=dataset, condition=condition, metric=metric, value=value
        )

    for name in ("test", *network_frame.OTHERS["Concepts"], "corrupted"):
        yield one(name, "", "accuracy", float(rise * rng.uniform(0.6, 1)))
    yield one("cue-conflict", "shape_bias", "shape_bias", float(rng.uniform()))
    yield one("cue-conflict", "shape_bias/class=3", "shape_bias", 0.5)
    for kind in ("low", "high"):
        yield one("test", "spectral", f"{kind}_freq_bias", float(rng.uniform()))
        for cut in CUTS:
            yield one("test", f"spectral/{kind} {cut:g}", "accuracy", 0.1)
            yield one("test", f"spectral/{kind} {cut:g}", "accuracy_ratio", cut)
    for metric in ("bandwidth", "center_frequency", "peak_noise_sensitivity"):
        value = float(rng.uniform(2, 9)) if band else None
        yield one("test", "critical_band", f"critical_band_{metric}", value)
    for at, value in ((2, 0.0), (4, 3.0), (8, 4.0), (16, 2.0)):
        name = f"critical_band/noise at {at}"
        yield one("test", name, "critical_band_threshold", value)
    yield one("test", "imagenet_c", "corruption_accuracy_without_frost", 0.5 * rise)
    yield one("test", "pgd/linf 0.5/255", "pgd_accuracy", float(rng.uniform()))


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("measured")
    for run in RUNS:
        for seed in (0, 1) if run == "erm" else (0,):
            workdir = folder / f"{run}-seed{seed}"
            made = records(run, seed, band=run != "mixup")
            results.write(workdir / "evals" / "accuracy@test.jsonl", made)
            config = {"category": run}
            if run.startswith("pgd"):
                eps = float(run[3:]) / 255
                config["config"] = {"algo": {"name": "pgd", "norm": "linf", "eps": eps}}
            (workdir / "config.json").write_text(json.dumps(config))
    return folder


def test_records_become_rows(measured):
    models = bias_study.read([f"{measured}/*"], each_seed=True)
    assert list(models.frame.index) == [
        *("erm seed 0", "erm seed 1", *sorted(RUNS)[1:]),
    ]
    assert models.members["ID"] == ("test",)
    assert models.members["Robustness"] == ("corrupted", "imagenet_c")
    trained = models.frame[models.frame["training"] == network_frame.AT]
    assert trained["epsilon"].tolist() == pytest.approx([1, 2, 4, 8])
    cells = {(r.dataset, r.condition, r.metric): r.value for r in records("padain")}
    mine = models.frame.loc["padain"]
    assert mine["test"] == 100 * cells["test", "", "accuracy"]
    assert mine["shape"] == cells["cue-conflict", "shape_bias", "shape_bias"]
    assert mine["pgd"] == 100 * cells["test", "pgd/linf 0.5/255", "pgd_accuracy"]
    assert mine["Robustness"] == pytest.approx(mine[["corrupted", "imagenet_c"]].mean())
    assert [mine[name] for name in models.curve_columns("low")] == list(CUTS)
    assert models.curve_columns("threshold") == {
        f"threshold_{at}": at for at in (2, 4, 8, 16)
    }
    told = " ".join(models.notes)
    assert "Measured on test, without frost: ImageNet-C." in told
    assert (
        "1 of 9 models have no value and are left out of analyses of it: mixup." in told
    )
    assert "9 seeds of 8 runs count as models (--each-seed)" in told


def few(run, n, seed=0):
    """Records with the number of decisions, and the interval, of the shape bias."""
    for one in records(run, seed):
        if one.condition == "shape_bias":
            yield one._replace(value=0.25, count=n // 4, n=n)
            yield one._replace(metric="shape_bias_lower", value=0.1, n=n)
            yield one._replace(metric="shape_bias_upper", value=0.5, n=n)
        else:
            yield one


def test_a_shape_bias_says_of_how_many_decisions_it_is(tmp_path):
    for run, n, seed in (("a", 8, 0), ("b", 1200, 0), ("c", 40, 0), ("c", 16, 1)):
        path = tmp_path / f"{run}{seed}" / "evals" / "shape_bias@cue-conflict.jsonl"
        results.write(path, few(run, n, seed))
    models = bias_study.read([f"{tmp_path}/*"])
    assert models.frame["shape_n"].to_dict() == {"a": 8, "b": 1200, "c": 16}
    told = (
        "A shape bias from fewer than 10 decisions for either cue is unreliable: a (8)."
    )
    assert told in models.notes
    table = bias_study.bias_table(models)
    assert table.head[2:6] == ("shape bias", "from", "to", "of")
    assert [row[2:6] for row in table.rows] == [
        ("0.250", "0.100", "0.500", "8*"),
        ("0.250", "0.100", "0.500", "1,200"),
        ("0.250", "–", "–", "16"),
    ]


@pytest.mark.slow
def test_a_model_is_the_mean_over_the_seeds_of_a_run(measured, tmp_path):
    """What a seed lacks its run lacks; a run of one seed stays as it is."""
    asked = [f"{measured}/*"]
    mine = bias_study.read(asked)
    each = bias_study.read(asked, each_seed=True).frame
    assert list(mine.frame.index) == sorted(RUNS)
    numbers = [name for name in each if name not in ("name", "training", "epsilon")]
    two = each.loc[["erm seed 0", "erm seed 1"], numbers]
    assert two["shape"].nunique() == 2
    for name in numbers:
        assert mine.frame.loc["erm", name] == pytest.approx(two[name].mean()), name
        assert mine.frame.loc["pgd2", name] == each.loc["pgd2", name], name
    assert mine.frame.loc["erm", ["name", "training"]].tolist() == ["erm", "erm"]
    assert mine.frame["seeds"].dropna().to_dict() == {"erm": 2}
    said = "9 seeds of 8 runs: a model is the mean over the seeds of one run."
    assert mine.notes[0] == said
    sizes = bias_study.analyse(mine, permutations=20).pairs.set_index(["models", "x"])
    assert set(sizes.loc[("all", "shape"), "n"]) == {8}
    lacking = pd.DataFrame([row_of(1.0), row_of(math.nan)])
    assert math.isnan(bias_study._mean(lacking)["shape"])


def test_runs_that_differ_by_their_seeds_alone_are_one_model(tmp_path):
    for run, rate, seed in (("a", 1, 0), ("b", 1, 1), ("c", 2, 2)):
        results.write(
            tmp_path / run / "evals" / "accuracy@test.jsonl", records(run, seed)
        )
        settings = {"algo": {"name": "erm"}, "rate": rate, "seeds": [seed]}
        settings["run"] = {"devices": seed}
        (tmp_path / run / "config.json").write_text(json.dumps({"config": settings}))
    mine = bias_study.read([f"{tmp_path}/*"])
    assert list(mine.frame.index) == ["a", "c"]
    assert "3 seeds of 2 runs: " in mine.notes[0]
    each = bias_study.read([f"{tmp_path}/*"], each_seed=True).frame
    assert list(each.index) == ["a seed 0", "b seed 1", "c"]
    assert mine.frame.loc["a", "shape"] == pytest.approx(each["shape"].iloc[:2].mean())


def row_of(shape):
    return {"name": "a", "training": "a", "epsilon": math.nan, "shape": shape}


def test_the_same_weights_are_one_model(tmp_path):
    """Names are no networks: of two the one counts of which more was measured."""
    for run, digest in (("a", "1"), ("copy", "1"), ("b", "2"), ("c", "3"), ("d", "")):
        made = list(records(run))[: None if run != "a" else 4]
        results.write(tmp_path / run / "evals" / "accuracy@test.jsonl", made)
        identity = {"digest": digest, "path": run} if digest else {"workers": 0}
        (tmp_path / run / "config.json").write_text(json.dumps({"run": identity}))
    models = bias_study.read([f"{tmp_path}/*"])
    assert list(models.frame.index) == ["b", "c", "copy", "d"]
    assert models.notes[0] == (
        "Networks with the same weights, of which the first counts: copy seed 0 step 100, a seed 0 step 100."
    )


def test_methods_are_told_apart_by_their_variants(tmp_path):
    """As erm with MixUp and erm with CutMix are; an attack of any kind is one."""
    for run, variant in (("erm", ""), ("mixup", "mixup"), ("pgd1", "mixup")):
        made = [r._replace(algorithm="erm", variant=variant) for r in records(run)]
        results.write(tmp_path / run / "evals" / "accuracy@test.jsonl", made)
        algo = {"name": run.rstrip("1"), "eps": 1 / 255}
        config = {"category": "erm", "config": {"algo": algo}}
        (tmp_path / run / "config.json").write_text(json.dumps(config))
    frame = bias_study.read([f"{tmp_path}/*"]).frame
    assert frame["training"].tolist() == ["erm", "erm (mixup)", network_frame.AT]


def test_a_table_of_kinds_that_names_another_model_is_told(measured):
    lines = {"misspelt": {"name": "x", "training": "baseline", "epsilon": float("nan")}}
    kinds = pd.DataFrame.from_dict(lines, orient="index")
    models = bias_study.read([f"{measured}/*"], kinds)
    assert "In the table of kinds but not measured: misspelt." in models.notes


def test_kinds_name_checkpoints(measured, tmp_path):
    path = tmp_path / "kinds.csv"
    path.write_text("model,name,training,epsilon\nerm,Plain,baseline,\nmixup,,aug,2\n")
    kinds = network_frame.read_kinds(str(path))
    models = bias_study.read([f"{measured}/*"], kinds, each_seed=True)
    told = models.frame[["name", "training", "epsilon"]]
    assert told.loc["erm seed 1"].tolist()[:2] == ["Plain seed 1", "baseline"]
    assert told.loc["mixup"].tolist() == ["mixup", "aug", 2.0]
    assert told.loc["padain", "training"] == "padain"


class Page(html.parser.HTMLParser):
    """Notes what is open, ids and links."""

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
def test_a_zoo_is_reported(measured, tmp_path, capsys):
    asked = [f"--measured={measured}/*", f"--out={tmp_path}", "--permutations=99"]
    assert biases.main(asked) == 0
    assert capsys.readouterr().out.endswith(f"written: {tmp_path / 'index.html'}\n")
    page = Page((tmp_path / "index.html").read_text())
    assert page.open == []
    assert len(set(page.ids)) == len(page.ids)
    assert {link[1:] for link in page.links if link[0] == "#"} <= set(page.ids)
    assert not [one for one in page.links if not one.startswith(("#", "data:"))]
    words = " ".join(page.words)
    assert "adversarial training" in words
    assert "ReaL" not in words  # Faults of the published numbers alone.
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
def test_globs_that_the_shell_expands_are_workdirs(measured, tmp_path, form):
    """--measured=runs/* is one argument or several, as a shell leaves it."""
    argv = form.format(" ".join(map(str, sorted(measured.glob("pgd*"))))).split()
    asked = biases.parser().parse_args(
        cli.split_values(argv + ["--out=o"], "--measured")
    )
    assert asked.measured == [str(path) for path in sorted(measured.glob("pgd*"))]
    assert asked.out == "o"


@pytest.mark.slow
def test_refuses_in_one_line(measured, tmp_path, capsys):
    for asked, told in (
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
        assert biases.main([*asked, f"--out={tmp_path / 'out'}"]) == 2
        error = capsys.readouterr().err
        assert error.startswith("biases: ")
        assert error.count("\n") == 1
        assert told in error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("flag", ["--benchmark=x", "--printed=x"])
def test_what_is_about_the_published_study_is_another_command(flag, capsys):
    with pytest.raises(SystemExit) as ended:
        biases.main([flag, "--out=o"])
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert f"{flag[:-2]}: this flag has moved; use `jbias papers biases`" in error


def test_other_attacks_and_corruptions_are_told():
    """An attack of another strength counts where it is the only one."""
    base = {("test", "", "accuracy"): 0.5}
    weak = ("test", "pgd/linf 0.25/255", "pgd_accuracy")
    asked = ("test", "pgd/linf 0.5/255", "pgd_accuracy")
    found, made = network_frame.row(base | {weak: 0.25})
    assert (found["pgd"], made["pgd"].text) == (25, "test, linf 0.25/255")
    found, made = network_frame.row(base | {weak: 0.25, asked: 0.125})
    assert (found["pgd"], made["pgd"].text) == (12.5, "test, linf 0.5/255")
    strong = ("test", "pgd/linf 1/255", "pgd_accuracy")
    found, _ = network_frame.row(base | {weak: 0.25, strong: 0.0})
    assert "pgd" not in found


OPTIONS = {"pgd": ("pgd", {}), "spectral": ("spectral", {})}
OPTIONS["shape_bias"] = ("shape_bias", {})
OPTIONS["imagenet_c"] = ("corruptions", {"names": "imagenet_c"})


def told_by_files(workdir, made, options=OPTIONS, n=480, images=96):
    """Writes records, and how their measures were made, as `evaluate` does."""
    made = list(made)
    results.write(workdir / "evals" / "all.jsonl", made)
    (workdir / "measures").mkdir()
    for measure, dataset in {(r.condition.partition("/")[0], r.dataset) for r in made}:
        probe, asked = options.get(measure, ("plain", {}))
        asked = {"probe": probe, "options": asked, "aggregates": ["mean_prob"]}
        asked["images"] = None if probe == "plain" else images
        told = {"measure": asked, "images": n, "seconds": 1.0}
        told["dataset"] = {"fingerprint": f"{dataset}{n}", "n": n}
        name = f"{measure or 'accuracy'}@{dataset}.json"
        (workdir / "measures" / name).write_text(json.dumps(told))


def test_measures_are_known_by_their_probes(tmp_path):
    """Whatever a suite calls them."""
    names = {"spectral": "filters", "pgd": "attack", "imagenet_c": "weather"}
    names |= {"shape_bias": "cues"}

    def renamed(one):
        head, slash, rest = one.condition.partition("/")
        return one._replace(condition=names.get(head, head) + slash + rest)

    usual = list(records("a"))
    options = {names[name]: OPTIONS[name] for name in names}
    told_by_files(tmp_path / "a", map(renamed, usual), options)
    told_by_files(tmp_path / "b", (one._replace(run="b") for one in usual))
    frame = bias_study.read([f"{tmp_path}/*"]).frame
    left = frame.drop(columns=["name", "training"])
    pd.testing.assert_series_equal(left.loc["a"], left.loc["b"], check_names=False)
    assert left.loc["a", ["shape", "low_0.5", "pgd", "imagenet_c"]].notna().all()
    other = {**OPTIONS, "spectral": ("calibration", {})}
    told_by_files(tmp_path / "c", (one._replace(run="c") for one in usual), other)
    frame = bias_study.read([f"{tmp_path}/*"]).frame
    assert math.isnan(frame.loc["c", "low_freq"]), "a name is no probe"


def test_a_measure_as_published_goes_before_others():
    cells = {("test", "a", "low_freq_bias"): 0.1, ("test", "b", "low_freq_bias"): 0.2}
    asked = {"a": {"symmetric": True}, "b": {}}
    told = {
        (name, "test"): {"measure": {"probe": "spectral", "options": options}}
        for name, options in asked.items()
    }
    found, made = network_frame.row(cells, measures=told)
    assert (found["low_freq"], made["low_freq"].how) == (0.2, "")
    del cells["test", "b", "low_freq_bias"]
    found, made = network_frame.row(cells, measures=told)
    assert (found["low_freq"], made["low_freq"].how) == (0.1, "symmetric True")


def changed(made, run, old="", new=""):
    for one in made:
        condition = one.condition.replace(old, new) if old else one.condition
        yield one._replace(run=run, condition=condition)


def test_what_was_measured_in_several_ways_is_refused(tmp_path):
    usual = list(records("a"))
    told_by_files(tmp_path / "a", changed(usual, "a"))
    for what, made, options, told in (
        (
            "steps",
            changed(usual, "b", "0.5/255", "0.5/255 2 steps"),
            OPTIONS,
            r"PGD: .*got linf 0.5/255 \(a\); linf 0.5/255 2 steps \(b\); measure",
        ),
        (
            "symmetric",
            changed(usual, "b"),
            {**OPTIONS, "spectral": ("spectral", {"symmetric": True})},
            r"low-frequency bias: .*as published \(a\); symmetric True \(b\)",
        ),
        (
            "frost",
            (
                one._replace(metric=one.metric.removesuffix("_without_frost"))
                for one in changed(usual, "b")
            ),
            OPTIONS,
            r"ImageNet-C: .*got without frost \(a\); as published \(b\)",
        ),
    ):
        told_by_files(tmp_path / what, made, options)
        with pytest.raises(ValueError, match=told):
            bias_study.read([str(tmp_path / "a"), str(tmp_path / what)])


def test_models_measured_on_other_images_are_named(tmp_path):
    usual = list(records("a"))
    told_by_files(tmp_path / "a", changed(usual, "a"))
    told_by_files(tmp_path / "b", changed(usual, "b"))
    assert "different images or rules" not in " ".join(
        bias_study.read([f"{tmp_path}/*"]).notes
    )
    told_by_files(tmp_path / "c", changed(usual, "c"), images=16)
    told_by_files(tmp_path / "d", changed(usual, "d"), n=1000)
    models = bias_study.read([f"{tmp_path}/*"])
    start = "PGD has different images or rules: "
    (line,) = [line for line in models.notes if line.startswith(start)]
    assert line.removeprefix(start) == (
        "96 images, files test480 (a, b); 16 images, files test480 (c);"
        " 96 images, files test1000 (d)."
    )
    table = bias_study.settings_table(models.settings)
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["PGD"] == ("test", "linf 0.5/255", "mean_prob", "16 to 96", "4")
    table = bias_study.accuracy_table(models)
    assert "Adversarial is the mean of PGD (linf 0.5/255)" in table.caption
    assert rows["test"] == ("test", "as published", "mean_prob", "480 to 1,000", "4")


def test_published_corruptions_go_before_those_made_here():
    """They are sets of their own; what is made fills what they lack."""
    cells = {("imagenet", "", "accuracy"): 0.75}
    for metric in ("corruption_accuracy", "corruption_accuracy_without_frost"):
        cells["imagenet", "imagenet_c", metric] = 0.5
    assert network_frame.row(cells)[0]["imagenet_c"] == 50
    for i, name in enumerate(corruption_error.CORRUPTED["imagenet_c"]):
        for severity in range(1, 6):
            cells[f"{name}_{severity}", "", "accuracy"] = (i + severity) / 100
            made = f"imagenet_c/{name}-{severity}"
            cells["imagenet", made, "accuracy"] = 0.5
    found, made = network_frame.row(cells)
    assert found == {"imagenet": 75, "imagenet_c": pytest.approx(9 + 3)}
    assert made["imagenet_c"].text == "published files"
    del cells["fog_5", "", "accuracy"]
    found, made = network_frame.row(cells)
    fog = list(corruption_error.CORRUPTED["imagenet_c"]).index("fog") + 5
    assert found["imagenet_c"] == pytest.approx(12 + (50 - fog) / 95)
    assert made["imagenet_c"].text == "94 published files and imagenet"


def test_like_bands_tie():
    """Two fits of one width differ in their last digits; their ranks must not."""
    key = ("test", "critical_band", "critical_band_bandwidth")
    widths = [
        network_frame.row({key: w})[0]["cb_bw"] for w in (1.954117479, 1.954117487)
    ]
    assert widths[0] == widths[1] == pytest.approx(1.954117)


def test_imagenet_has_the_members_of_the_study():
    """Other sets that were measured, such as sketches of 16 classes, do not enter."""
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
    some = network_frame.build_models(frame, source="s")
    assert some.frame["Concepts"].isna().tolist() == [False, True, False, False]
    study = bias_study.analyse(some, permutations=20)
    sizes = study.pairs.set_index("y")["n"]
    assert (sizes["Concepts"], sizes["ID"]) == (3, 4)


def test_a_recorded_centre_outside_the_octaves_is_no_bias():
    """Earlier versions recorded such centres as numbers."""
    place = "critical_band"
    cells = {
        ("test", f"{place}/noise at {at}", "critical_band_threshold"): 1.0
        for at in (2, 4, 8, 16)
    }
    names = ("bandwidth", "center_frequency", "peak_noise_sensitivity")
    for centre, is_kept in ((8.0, True), (276205.5, False), (1.0, False)):
        for name, value in zip(names, (2.0, centre, 0.5), strict=True):
            cells["test", place, f"critical_band_{name}"] = value
        found, _ = network_frame.row(cells)
        kept = [not math.isnan(found[key]) for key in ("cb_bw", "cb_cf", "cb_pns")]
        assert kept == [is_kept] * 3
