"""Benchmarks take turns, count correctly, and compare ratios only.

Commands of benchmarks, studies and checks say what they make and how long they take.
"""

import ast
import json
import re
import shutil
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

from benchmarks import check, distortion_speed, memory_over_time, roofline, timing
from jbias import models
from jbias.configs import distortion as configs_distortion
from jbias.runs import results as records
from studies import small_benchmark
from tests import cases, smoke_runs

# Beside the package: a folder imports only itself and folders before it.
FOLDERS = ("benchmarks", "studies", "qa")
MODULES = {
    ".".join(path.relative_to(smoke_runs.ROOT).with_suffix("").parts): path
    for folder in FOLDERS
    for path in sorted((smoke_runs.ROOT / folder).rglob("*.py"))
}
COMMANDS = {
    name.removesuffix(".__main__"): path
    for name, path in MODULES.items()
    if '__name__ == "__main__"' in path.read_text("utf-8")
}
# Prints, as JSON, the text of --help of each command; all in one process.
HELP = """
import contextlib, io, json, runpy, sys
texts = {}
for name in sys.argv[1:]:
    printed, sys.argv = io.StringIO(), [name, "--help"]
    with contextlib.redirect_stdout(printed):
        try:
            runpy.run_module(name, run_name="__main__")
        except SystemExit as ended:
            assert not ended.code, name
    texts[name] = printed.getvalue()
print(json.dumps(texts))
"""
DURATION = re.compile(r"^Takes [^.]*\b(seconds?|minutes?|hours?)\b", re.MULTILINE)
PRODUCT = re.compile(r"\b(writes?|prints?|draw|update|stored in)\b", re.IGNORECASE)


def test_help_of_every_command_says_what_it_makes_and_how_long_it_takes():
    process = subprocess.run(
        [sys.executable, "-c", HELP, *COMMANDS],
        cwd=smoke_runs.ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    texts = json.loads(process.stdout)
    assert set(texts) == set(COMMANDS)
    for name, text in texts.items():
        assert name in text or COMMANDS[name].name in text, f"{name}: no command line"
        assert DURATION.search(text), f"{name}: how long does it take?"
        assert PRODUCT.search(text), f"{name}: what does it make?"
        if not name.startswith("benchmarks."):
            assert re.match(rf"usage: python -m {name}\s", text), name


def test_every_command_is_on_the_page_of_its_folder():
    text = (smoke_runs.ROOT / "docs/benchmarks.md").read_text("utf-8")
    sections = re.split(r"^## ", text, flags=re.MULTILINE)
    internal = {"benchmarks.peer", "benchmarks.compiled_step"}  # Run by other commands.
    for name in set(COMMANDS) - internal:
        folder, _, module = name.partition(".")
        (section,) = (s for s in sections if f"`python -m {folder}.`" in s)
        assert f"`{module}`" in section, name


def test_benchmarks_studies_and_checks_import_downwards_only():
    wrong_imports = []
    for name, path in MODULES.items():
        floor = FOLDERS.index(name.partition(".")[0])
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            imported_names = []
            if isinstance(node, ast.Import):
                imported_names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                imported_names = [node.module]
            roots = {imported.partition(".")[0] for imported in imported_names}
            upper = roots & {*FOLDERS[floor + 1 :]}
            wrong_imports += [f"{name} imports {root}" for root in upper]
    assert not wrong_imports


def test_each_variant_takes_a_turn_per_round_and_starts_one_round():
    calls = []
    variants = {name: lambda name=name: calls.append(name) for name in "abc"}
    ticks = iter(range(100))
    seconds = timing.in_turns(variants, 3, warm=1, clock=lambda: next(ticks))
    assert seconds == {name: [1, 1, 1] for name in "abc"}
    rounds = ["".join(calls[i : i + 3]) for i in range(0, 12, 3)]
    assert sorted(rounds[1:]) == ["abc", "bca", "cab"]
    assert all(sorted(names) == ["a", "b", "c"] for names in rounds)


def test_ratios_are_of_medians():
    seconds = {"base": [1.0, 2.0, 9.0], "other": [0.5, 1.0, 1.0]}
    comparison = timing.against(seconds, "base", {"base": 10, "other": 10})
    assert comparison["other"]["ratio"] == 2
    assert (comparison["other"]["lowest"], comparison["other"]["highest"]) == (2, 9)
    assert comparison["base"]["images_per_second"] == 5


def test_the_work_of_resnet50_equals_published_counts():
    """4.09e9 multiplications, 25.56e6 parameters, 11.1e6 outputs of convolutions."""
    net = models.MODELS["resnet50"](1000, dtype=jnp.bfloat16)
    work = roofline.training(net, 224, 2)
    assert work.flops == pytest.approx(2 * 3 * 2 * 4.089e9, rel=1e-3)
    activations, weights = 5 * 2 * 11.114e6 * 2, 20 * 25.557e6
    assert work.bytes == pytest.approx(activations + weights, rel=2e-3)
    utilisation = work.utilisation(0.1, "NVIDIA H200")
    assert utilisation["share_of_flops"] == pytest.approx(work.flops / 0.1 / 989e12)
    assert "share_of_flops" not in work.utilisation(0.1, "cpu")


def test_a_projection_divides_the_protocols_images_by_the_rates():
    """Five seeds, 200 epochs of 382 batches; 40 times 1,000 and 10,000 images."""
    config = configs_distortion.get_config("data=cifar10,root=nowhere").to_dict()
    rates = {
        name: {"images_per_second": rate}
        for name, rate in (("basic", 500.0), ("evaluation", 2000.0))
    }
    minutes = distortion_speed.project_minutes(
        config,
        num_seeds=5,
        rates=rates,
        compile_seconds={"basic": 90.0, "evaluation": 30.0},
        method="basic",
    )
    assert minutes["train"] == pytest.approx(5 * 200 * 382 * 128 / 500 / 60)
    assert minutes["evaluation"] == pytest.approx(5 * 40 * 11_000 / 2000 / 60)
    assert minutes["compile"] == 2.0
    assert minutes["all"] == pytest.approx(sum([*minutes.values()][:3]))


DISTORTION = (
    "--setting=tiny",
    "--share=0.002",
    "--steps=1",
    "--rounds=1",
    "--seeds=2",
    "--strategies=looped",
)
TINY = ("--setting=tiny", "--steps=1", "--rounds=1", "--torch=no")


@pytest.mark.slow
@cases.each(
    ("name", "options"),
    [
        ("train", (*TINY, "--algorithms=erm,sagnet", "--seeds=2")),
        ("eval", (*TINY, "--seeds=2")),
        ("seeds", (*TINY, "--algorithms=erm", "--seeds=1,2")),
        ("scaling", (*TINY, "--batch=64", "--algorithms=erm,mixup")),
        ("processes", (*TINY, "--counts=1,2")),
        ("startup", ("--rounds=1",)),
        ("writers", ("--rounds=2", "--seeds=2")),
        ("memory_over_time", ("--evaluations=24",)),
        ("corruptions", ("--side=32", "--names=fog,frost", "--rounds=1", "--host=1")),
        ("report_speed", ("--runs=6", "--seeds=2", "--epochs=3", "--sets=4")),
        ("cost", ("--methods=sagnet", "--steps=1", "--rounds=1")),
        ("distortion_speed", (*DISTORTION, "--methods=basic,fmix", "--only=train")),
        ("gpu", ("--tiny", "--torch=no", "--only=evaluation")),
    ],
)
def test_each_benchmark_is_one_command(name, options, tmp_path):
    subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", *options, f"--out={tmp_path}"],
        cwd=smoke_runs.ROOT,
        check=True,
    )
    (path,) = tmp_path.glob(f"{name}*.json")
    written = json.loads(path.read_text())
    if name == "gpu":
        written = written["evaluation"]["results"]
    assert written["ratios"]
    assert all(ratio > 0 for ratio in written["ratios"].values())
    assert next(tmp_path.glob(f"{name}*.md")).read_text().startswith(("| ", "## "))


def write_result(folder, **changes):
    """Write train.json with two ratios and these changes; return the folder."""
    folder.mkdir()
    result = {
        "device": {"kind": "cpu"},
        "setting": {"batch": 8},
        "ratios": {"a / b": 2.0, "c / b": 1.0},
        "seconds": [1.0],
    }
    (folder / "train.json").write_text(json.dumps({**result, **changes}))
    return folder


@cases.each(
    ("changes", "code"),
    [
        ({"seconds": [99.0]}, 0),
        ({"ratios": {"a / b": 1.8, "c / b": 5.0}}, 0),
        ({"ratios": {"a / b": 1.6, "c / b": 1.0}}, 1),
        ({"ratios": {"new / b": 1.0}}, 2),
        ({"device": {"kind": "NVIDIA H200"}, "ratios": {"a / b": 0.1}}, 2),
        ({"setting": {"batch": 16}, "ratios": {"a / b": 0.1}}, 2),
    ],
)
def test_ratios_are_checked_and_times_are_not(tmp_path, capsys, changes, code):
    earlier = write_result(tmp_path / "earlier")
    later = write_result(tmp_path / "later", **changes)
    assert check.main([str(earlier), str(later)]) == code
    files = [str(folder / "train.json") for folder in (earlier, later)]
    assert check.main(files) == code
    assert ("a / b fell" in capsys.readouterr().out) == (code == 1)
    shutil.rmtree(later)
    assert check.main([str(earlier), str(tmp_path)]) == 2


@pytest.mark.parametrize("name", ["tiny", "imagenet"])
def test_pytorchs_networks_have_as_many_parameters_as_ours(name):
    pytest.importorskip("torch")
    from benchmarks import settings, torch_net

    setting = settings.SETTINGS[name]
    net = models.MODELS[setting.model](
        settings.CLASSES, width=setting.width, stem=setting.stem
    )
    image = jnp.zeros((1, 32, 32, 3))
    ours = jax.eval_shape(net.init, jax.random.key(0), image)["params"]
    theirs = torch_net.network(setting).parameters()
    assert sum(x.size for x in jax.tree.leaves(ours)) == sum(p.numel() for p in theirs)


def test_the_headline_has_medians_and_ranges(tmp_path):
    (tmp_path / "validation.csv").write_text(
        "algorithm,seeds,mean,std\nerm,10,0.5,0.1\nsagnet,10,0.4,0.0\n"
    )
    (tmp_path / "scores.csv").write_text(
        "algorithm,dataset,mean,std,n,median,lowest,highest\n"
        "erm,edge,0.3,0.1,4,0.3,0.2,0.4\nsagnet,edge,0.5,0,10,0.5,0.5,0.5\n"
        "erm,test,1,0,4,1,1,1\n"
        "erm,sketch,0.25,0.2,4,0.17,0.1,0.55\nsagnet,sketch,0.5,0,10,0.5,0.5,0.5\n"
    )
    (tmp_path / "ranks.csv").write_text("algorithm,mean_rank\nerm,1.75\nsagnet,1.25\n")
    head, _, *rows = small_benchmark.headline(tmp_path, ("edge", "sketch")).splitlines()
    assert head == "| Method | Validation | edge | sketch | Mean rank |"
    assert rows == [
        "| sagnet | 40.0 | 50.0 [50.0, 50.0] | 50.0 [50.0, 50.0] | 1.25 |",
        "| erm | 50.0 | 30.0 [20.0, 40.0] | 17.0 [10.0, 55.0] | 1.75 |",
    ]


def test_a_rate_is_chosen_by_the_mean_of_this_calls_seeds(tmp_path, monkeypatch):
    """Runs of other calls are ignored, and without `extend` no further rates are tried."""
    accuracy = {"0.02": (0.5, 0.75), "0.05": (1.0, None), "0.1": (0.75, 0.75)}

    def train(config, run, *_):
        for rate in config.partition("optim.rate=")[2].split("+"):
            folder = run / f"vary/optim.rate={rate}"
            (folder / "evals").mkdir(parents=True)
            config_text = json.dumps({"optim": {"rate": float(rate)}})
            (folder / "config.json").write_text(config_text)
            for step in (9, 10):
                rows = [
                    records.Record(
                        run="r",
                        algorithm="erm",
                        variant="",
                        model="m",
                        train_data="d",
                        stage=0,
                        seed=seed,
                        step=step,
                        epoch=1.0,
                        dataset="valid",
                        condition="",
                        metric="accuracy",
                        value=value if step == 10 else 1,
                        count=None,
                        n=4,
                        status="ok",
                    )
                    for seed, value in enumerate(accuracy.get(rate, (0.25,)))
                ]
                text = records.dumps(rows)
                (folder / f"evals/{step}.jsonl").write_text(text)

    def tune(folder, rates, seeds, extend):
        return small_benchmark.tune(
            "erm", folder, rates, seeds=seeds, extend=extend, flags=()
        )

    monkeypatch.setattr(small_benchmark, "train", train)
    train("erm:vary=optim.rate=0.01", tmp_path / "0.01")
    grid = tune(tmp_path, "0.02+0.05+0.1", seeds=2, extend=False)
    assert grid == {0.02: 0.625, 0.05: 0.5, 0.1: 0.75}
    assert small_benchmark.best_rate(grid) == 0.1
    extended = tune(tmp_path / "more", "0.02+0.05+0.1", seeds=2, extend=True)
    assert extended == {**grid, 0.2: 0.25}
    assert tune(tmp_path / "one", "0.3", seeds=1, extend=True) == {0.3: None}


def test_growth_of_memory_is_of_medians_after_warm_up():
    mib = [9.0] * memory_over_time.WARM + [100.0, 300.0, 100.0] + [150.0] * 24
    mib += [110.0, 90.0, 110.0]
    summary = memory_over_time.summary(mib)
    assert summary["growth"] == pytest.approx(0.1)
    assert (summary["lowest"], summary["highest"]) == (90, 300)
    assert memory_over_time.get_config("8").epochs == 2
