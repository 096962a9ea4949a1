"""Evaluation with folded batch norms has the decisions of the exact network."""

import json

import jax
import numpy as np
import pytest
from etils import epath

from benchmarks import common
from jbias import config as jc
from jbias import run_spec, train
from jbias.runs import results
from jbias.runtime import mesh, xla
from jbias.training import evaluator, placement, setup, strategies
from jbias.training import step as train_step
from tests import cases, smoke_runs

SEEDS = (0, 1, 2)


@pytest.fixture(scope="module")
def trained():
    """Return a stage, the states of three seeds after some steps, and training images."""
    config = jc.to_dict(smoke_runs.small())
    stage = common.with_seeds(smoke_runs.stage(config), SEEDS)
    states, _ = smoke_runs.trained(stage, SEEDS, "looped", steps=4)
    rows = np.asarray(stage.feed.shared(0)["train"]["image"])
    return stage, states, rows.reshape(-1, *stage.shape, 3)[:64]


@pytest.fixture(scope="module")
def exact(trained):
    """Return the logits of each seed, computed separately and without folding."""
    stage, states, image = trained
    score = jax.jit(stage.program.logits, static_argnums=3)
    return [score(train_step.net_of(state), (), image, None) for state in states]


@cases.each("strategy", strategies.STRATEGIES, quick=("threaded", "vmapped"))
def test_folded_logits_are_close_to_the_exact_logits_of_each_seed(
    trained, exact, strategy
):
    stage, states, image = trained
    laid = placement.fit_to_devices(stage, mesh.make(1), strategy=strategy)
    (nets,) = laid.layout.pack(map(train_step.net_of, states))
    args = ((),) * len(nets)
    folded = laid.layout.split_wave(laid.score_folded(nets, args, image, None))
    for logits, expected in zip(folded, exact, strict=True):
        # Twenty layers of float32, with sums in another order.
        atol = 2e-5 * np.abs(expected).max()
        np.testing.assert_allclose(logits, expected, atol=atol)
        np.testing.assert_array_equal(logits.argmax(-1), expected.argmax(-1))


@pytest.mark.parametrize("platform", ["cpu", "gpu", "tpu"])
@pytest.mark.parametrize("mode", run_spec.EVAL_NORMS)
def test_by_default_batch_norms_are_folded_on_accelerators_only(
    trained, monkeypatch, platform, mode
):
    stage, *_ = trained
    monkeypatch.setattr(xla, "platform", lambda: platform)
    default = platform != "cpu"
    is_folded = {"exact": False, "folded": True}.get(mode, default)
    laid = placement.fit_to_devices(stage, mesh.make(1), strategy="looped")
    assert stage.folds_norms(mode) is is_folded
    assert laid.scorer(mode) is (laid.score_folded if is_folded else laid.score)


def test_a_network_without_batch_norms_is_never_folded():
    config = smoke_runs.small()
    config.model = {"name": "vit_small16", "width": 8, "heads": 2, "depth": 4}
    stage = smoke_runs.stage(jc.to_dict(config))
    assert stage.foldable_norms == 0 and not stage.folds_norms("folded")


def test_an_unknown_value_of_eval_norm_is_refused():
    config = smoke_runs.small()
    config.run.eval_norm = "fused"
    must = r"config.run.eval_norm: must be one of auto, exact, folded, got 'fused'"
    with pytest.raises(ValueError, match=must):
        run_spec.RunSpec.from_config(config)


def test_a_config_without_eval_norm_has_the_same_run_name():
    config = jc.to_dict(smoke_runs.small())
    older = {**config, "run": {**config["run"]}}
    del older["run"]["eval_norm"]
    older_spec = run_spec.RunSpec.from_config(older)
    assert older_spec.name == run_spec.RunSpec.from_config(config).name
    assert older_spec.run.eval_norm == "auto"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return the workdirs of two runs by their `eval_norm`."""
    workdir_of = {}
    for mode in ("auto", "folded"):
        config = smoke_runs.small(epochs=1.0)
        config.model, config.run.eval_norm = {"name": "cnn", "width": 4}, mode
        workdir = tmp_path_factory.mktemp("runs") / mode
        assert train.run(config, workdir)
        workdir_of[mode] = workdir
    return workdir_of


def records(workdir):
    return results.read([workdir]).drop(columns="workdir").astype({"metric": str})


@pytest.mark.slow
def test_a_folded_run_records_the_difference_from_exact_logits(runs):
    """Per seed and evaluation; a CPU folds batch norms only for eval_norm="folded"."""
    exact, folded = records(runs["auto"]), records(runs["folded"])
    measured = folded["metric"] == "folding_difference"
    assert not (exact["metric"] == "folding_difference").any()
    assert measured.sum() == 2 * folded["step"].nunique()
    assert folded[measured]["value"].between(1e-9, 1e-4).all()
    assert exact.equals(folded[~measured].reset_index(drop=True))


@pytest.mark.slow
def test_the_log_and_provenance_of_a_folded_run_have_the_folded_norms(runs):
    (line,) = [
        line
        for line in (runs["folded"] / "log.txt").read_text().splitlines()
        if "batch norms are folded" in line
    ]
    assert "2 batch norms" in line and "logits differ by" in line
    for mode, count in (("auto", None), ("folded", 2)):
        provenance = json.loads((runs[mode] / "provenance.json").read_text())
        assert provenance["layout"].get("folded_norms") == count


def test_a_run_continues_if_the_difference_does_not_fit_into_memory(
    tmp_path, monkeypatch, capsys
):
    def full(self, trained, states):
        raise MemoryError("RESOURCE_EXHAUSTED: Out of memory")

    monkeypatch.setattr(evaluator.Evaluator, "_fold_differences", full)
    config = smoke_runs.small(epochs=1.0)
    config.model, config.run.eval_norm = {"name": "cnn", "width": 4}, "folded"
    assert train.run(config, tmp_path / "run")
    table = records(tmp_path / "run")
    assert len(table) and not (table["metric"] == "folding_difference").any()
    assert "no folding_difference is recorded" in capsys.readouterr().err


def test_a_run_that_began_with_exact_norms_keeps_them(runs, tmp_path):
    """This also holds if the run resumes on an accelerator, or began before batch norms were folded."""
    workdir = epath.Path(runs["auto"])
    spec = run_spec.RunSpec.from_config(smoke_runs.small())
    assert spec.config["run"]["eval_norm"] == "auto"
    begun = setup._with_norms_as_begun(spec, workdir)
    assert begun.config["run"] == {**spec.config["run"], "eval_norm": "exact"}
    assert setup._with_norms_as_begun(spec, epath.Path(runs["folded"])) is spec
    assert setup._with_norms_as_begun(spec, epath.Path(tmp_path)) is spec
    config = smoke_runs.small()
    config.run.eval_norm = "folded"
    folded = run_spec.RunSpec.from_config(config)
    assert setup._with_norms_as_begun(folded, workdir) is folded
