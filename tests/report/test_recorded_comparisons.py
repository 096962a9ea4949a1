"""Reports of folders whose seeds were trained until a comparison was decided (comparison.json)."""

import json
import shlex

import numpy as np
import pytest

from jbias.deciding import comparison as comparison_lib
from jbias.deciding import descriptions, state_file
from jbias.report import document
from jbias.report import options as options_lib
from jbias.report.pages.benchmark import benchmark_page, inputs, until_decided_section
from tests import cases
from tests.report import conftest

SETS = ("silhouette", "cue_conflict")
BATCHES = ((0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11))
SEEDS = range(12)
LABELS = {"sagnet": "SagNet", "erm": "ERM"}


def records(name, seeds, scores):
    """Yield the records of an epoch; the shape bias of each seed is in `scores`."""
    for epoch in conftest.fake_records(
        name, LABELS[name], 0.0, seeds, epochs=1, sets=SETS
    ):
        for record in epoch:
            if record.metric == "shape_bias":
                record = record._replace(value=scores[record.seed], count=None, n=None)
            yield record


def write_run(workdir, name, seeds, scores, command=""):
    config = conftest.fake_config(name, seeds)
    conftest.write_run(workdir, config, [list(records(name, seeds, scores))])
    path = workdir / "provenance.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "command": command}))


def write_comparison(folder, *, lift, trained=None, **settings):
    """Write a folder of 12 seeds each of SagNet and ERM with comparison.json; return its plan.

    lift: mean difference of the shape biases. trained: folder for the runs of ERM, which the
    comparison then did not train.
    """
    rng = np.random.default_rng(0)
    scores = {
        "sagnet": dict(enumerate(0.4 + lift + 0.1 * rng.random(12))),
        "erm": dict(enumerate(0.4 + 0.1 * rng.random(12))),
    }
    names = ("sagnet",) if trained else ("sagnet", "erm")
    batches = [comparison_lib.Batch(name, seeds) for seeds in BATCHES for name in names]
    for batch in batches:
        command = f"--config=jbias:{batch.method}:demo --config.seeds={batch.seeds!r}"
        write_run(
            folder / batch.folder,
            batch.method,
            batch.seeds,
            scores[batch.method],
            command,
        )
    if trained:
        write_run(trained, "erm", SEEDS, scores["erm"])
    plan = comparison_lib.Comparison(
        settings=comparison_lib.Settings(
            metric="shape_bias", dataset="cue_conflict", **settings
        ),
        methods=("sagnet",),
        reference="erm",
        first_seeds=tuple(SEEDS) if trained else (0,),
        are_trained=bool(trained),
        batches=tuple(batches),
        scores=scores,
    )
    configs = {
        name: state_file.pinned_config(conftest.fake_config(name, [0]), own_code={})
        for name in LABELS
    }
    state_file.write(folder, state_file.State(plan, configs))
    return plan


def study_of(*folders, **options):
    options = options_lib.Options(**{"metric": "shape_bias", **options})
    return inputs.from_runs([*map(str, folders)], options)


def texts(report, section):
    blocks = next(x.blocks for x in report.sections if x.id == section)
    words = []
    for block in blocks:
        if isinstance(block, document.Text):
            words += [block.words] if isinstance(block.words, str) else block.words
        elif isinstance(block, document.Folded):
            words.append(block.text)
    return words


OPEN = {"points": 2.0, "alpha": 0.1, "bounds": (0.1, 0.9)}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Return folders: decided, and open with settings of its own."""
    path = tmp_path_factory.mktemp("recorded")
    write_comparison(path / "decided", lift=0.5)
    write_comparison(path / "open", lift=0.1, **OPEN)
    return path


def test_the_look_is_that_of_the_comparison_and_not_of_the_options(folders):
    """The report has the line of the training, with labels: its level, margin and bounds."""
    study = study_of(folders / "open", points=30.0, alpha=0.01)
    (item,) = study.recorded
    stored = state_file.read(folders / "open").comparison
    (look,) = comparison_lib.look(stored).values()
    assert item.look.result.stopped_at == look.result.stopped_at
    np.testing.assert_array_equal(
        item.look.result.difference.lower, look.result.difference.lower
    )
    limits = comparison_lib.Limits(max_seeds=512)
    line = descriptions.describe_look(stored, look, limits)
    assert ", about " in line and line.endswith("probably: sagnet is higher")
    line = line.replace("sagnet", "SagNet").replace("erm", "ERM")
    report = benchmark_page.report(study)
    described = texts(report, "until_decided")[1]
    assert f"{line}." in described
    assert "equivalent below 2 points, scores from 0.1 to 0.9" in described
    assert item.outlook == comparison_lib.outlook(stored, look, limits)


def test_the_command_continues_the_comparison(folders):
    """Folder and settings stay, the limit of seeds is larger; `state_file.resume` accepts the settings."""
    (item,) = study_of(folders / "open").recorded
    words = shlex.split(item.command)
    assert words[:3] == ["jbias", "train", "--config=jbias:sagnet:demo"]
    flags = dict(word.split("=", 1) for word in words[3:])
    assert int(flags.pop("--max-seeds")) >= 12 + item.outlook.pairs
    assert flags == {
        "--until-decided": "jbias:erm:demo",
        "--metric": "shape_bias",
        "--dataset": "cue_conflict",
        "--points": "2.0",
        "--alpha": "0.1",
        "--bounds": "0.1,0.9",
        "--workdir": str(folders / "open"),
    }
    (decided,) = study_of(folders / "decided").recorded
    assert decided.is_decided and decided.command is None


def test_results_have_the_numbers_of_the_comparison(folders):
    for name, decision in (("decided", "SagNet"), ("open", None)):
        report = benchmark_page.report(study_of(folders / name))
        (row,) = report.results["recorded_comparisons"].to_dict("records")
        plan = state_file.read(folders / name).comparison
        (look,) = comparison_lib.look(plan).values()
        assert row["decision"] == decision
        assert row["difference"] == look.result.difference.estimate[-1]
        assert row["evalue"] == look.result.evalues[-1]
        assert (row["level"], row["points"]) == (plan.level, plan.settings.points)


def test_trained_runs_of_the_reference_are_named_if_all_are_in_the_report(tmp_path):
    write_comparison(tmp_path / "cmp", lift=0.1, trained=tmp_path / "erm")
    (item,) = study_of(tmp_path / "cmp", tmp_path / "erm").recorded
    assert item.plan.reference == "ERM"
    assert f"--until-decided={tmp_path / 'erm'} " in item.command
    (item,) = study_of(tmp_path / "cmp").recorded
    assert item.command is None and item.plan.reference == "erm"


def test_the_verdict_leads_and_tests_over_seeds_are_called_invalid(folders):
    report = benchmark_page.report(study_of(folders / "decided"))
    headline, _ = report.answer
    (item,) = study_of(folders / "decided").recorded
    assert headline.startswith(
        "SagNet and ERM in shape bias on cue_conflict, looked at after each seed: decided after "
        f"{item.look.result.stopped_at} pairs: SagNet is higher"
    )
    assert (
        "other tests over these seeds are not valid there: On 'cue_conflict'"
        in headline
    )
    assert report.warnings[0].startswith(
        "The number of seeds of SagNet and ERM was chosen while looking at their shape bias on "
        "cue_conflict"
    )
    methods = report.files["methods.md"].replace("\n", " ")
    assert "with a look at the scores after each batch" in methods
    assert "[waudbysmith2023]" in methods
    assert "@article{waudbysmith2023," in report.files["methods.bib"]
    undecided, _ = benchmark_page.report(study_of(folders / "open")).answer
    assert "looked at after each seed: undecided after 12 pairs" in undecided


def test_another_metric_keeps_its_headline_and_has_the_caveat(folders):
    report = benchmark_page.report(study_of(folders / "decided", metric="accuracy"))
    assert "looked at after each seed" not in report.answer[0]
    assert any("was chosen while looking" in text for text in report.warnings)


def test_the_comparison_is_not_repeated_with_other_settings(folders):
    study = study_of(folders / "decided", metric="accuracy")
    subjects = {
        (comparison.metric, comparison.dataset)
        for comparison in until_decided_section.find_comparisons(study)
    }
    assert ("shape_bias", "cue_conflict") not in subjects
    assert ("accuracy", "cue_conflict") in subjects


@cases.each("quantity", ["mean", "wins"])
def test_the_figure_has_the_sequence_and_the_margin(tmp_path, quantity):
    write_comparison(tmp_path / "cmp", lift=0.1, points=20.0, quantity=quantity)
    report = benchmark_page.report(study_of(tmp_path / "cmp"))
    blocks = next(x.blocks for x in report.sections if x.id == "until_decided")
    figure = next(x for x in blocks if isinstance(x, document.Figure))
    assert figure.name == "recorded_comparisons"
    axes = figure.drawn.axes[0]
    levels = {
        line.get_ydata()[0] for line in axes.lines if list(line.get_xdata()) == [0, 1]
    }
    assert levels == {-20, 0, 20}


def test_other_runs_have_no_recorded_comparison(runs):
    study = inputs.from_runs([f"{runs}/*"], options_lib.Options())
    assert study.recorded == ()
    report = benchmark_page.report(study)
    assert "waudbysmith" not in report.files["methods.bib"]
    assert "waudbysmith" not in report.files["methods.md"]


def test_a_damaged_file_is_named(tmp_path):
    write_comparison(tmp_path / "cmp", lift=0.1)
    (tmp_path / "cmp" / state_file.NAME).write_text('{"version": 1}')
    with pytest.raises(ValueError, match=r"comparison\.json is damaged"):
        benchmark_page.report(study_of(tmp_path / "cmp"))
