"""A run with config.vary has the records of one run per combination, in one program."""

import inspect
import json
import math

import numpy as np
import pytest

from jbias import algos, run_spec, train
from jbias import config as jc
from jbias.evals import decision_files
from jbias.models import trained
from jbias.runs import checkpoints, results
from jbias.runtime import messages
from jbias.training import initial_nets
from tests import cases, smoke_runs
from tests.methods import METHODS
from tests.test_matrix import config_of

RATES = (0.02, 0.3)
# Options that change the program: dropout or none, numbers of draws, and schedules.
STATIC = (
    ("sagnet", "dropout"),
    ("dann", "dropout"),
    ("cdann", "dropout"),
    ("infodrop", "rate"),
    ("irm", "anneal"),
    ("vrex", "anneal"),
    ("fishr", "anneal"),
    ("eqrm", "burn_in"),
)
# Options without effect: the transfer of these configs has one strength.
IDLE = (("debiased", "alpha"),)


def config(**entries):
    c = smoke_runs.small("padain", **entries)
    c.algo.p = 0.3
    return c


@pytest.fixture(scope="module")
def varied(tmp_path_factory):
    """Return the config and workdir of a run with two seeds, two rates and two strengths."""
    c = config(
        vary=(
            dict(key="optim.rate", values=RATES),
            dict(key="algo.p", values=(0.0, 0.5)),
        )
    )
    c.run.decisions = True
    workdir = tmp_path_factory.mktemp("runs") / "vary"
    assert train.run(c, workdir)
    return c, workdir


def numbers(workdir) -> dict:
    return {
        (r["seed"], r["step"], r["dataset"], r["metric"]): r["value"]
        for r in smoke_runs.records(workdir)
    }


@pytest.mark.slow
@pytest.mark.parametrize("rate, p", [(0.02, 0.5), (0.3, 0.0)])
def test_a_branch_has_the_records_of_a_separate_run(varied, tmp_path, rate, p):
    _, workdir = varied
    separate = config()
    separate.run.decisions = True
    separate.optim.rate, separate.algo.p = rate, p
    assert train.run(separate, tmp_path / "separate")
    branch = workdir / "vary" / f"optim.rate={rate:g},algo.p={p:g}"
    assert {r["run"] for r in smoke_runs.records(branch)} == {jc.run_name(separate)}
    assert jc.to_dict(separate) | {"run": 0} == _config(branch) | {"run": 0}
    values, expected = numbers(branch), numbers(tmp_path / "separate")
    assert values.keys() == expected.keys()
    first = min(step for _, step, *_ in values)
    losses = [key for key in values if key[1] == first and key[3] == "loss_class"]
    assert len(losses) == 2
    for key in losses:  # Later, steps of a large rate magnify the rounding.
        assert values[key] == pytest.approx(expected[key], rel=2e-3)
    for key in values:
        if key[1] == first and key[3] == "accuracy":
            assert values[key] == pytest.approx(expected[key], abs=0.05), key
    assert (branch / "done").exists()
    branch_decisions, separate_decisions = (
        decision_files.read(workdir / "decisions" / "edge" / f"{first}.parquet")
        for workdir in (branch, tmp_path / "separate")
    )
    for seed in (0, 1):
        predictions = branch_decisions[seed].prediction
        agrees = predictions == separate_decisions[seed].prediction
        assert np.mean(agrees) > 0.9, seed


def _config(workdir) -> dict:
    return json.loads((workdir / "config.json").read_text())


@pytest.mark.slow
def test_branches_differ_and_are_reported_as_runs(varied):
    _, workdir = varied
    full, empty = results.find_workdirs(str(workdir))
    assert len(full) == 4
    assert not empty
    frame = results.read(str(workdir))
    assert frame["run"].nunique() == 4
    ends = frame[(frame["metric"] == "loss_class") & (frame["seed"] == 0)]
    assert ends[ends["step"] == ends["step"].max()]["value"].nunique() == 4
    from jbias.report import workdirs

    labels = {run.label for run in workdirs.load(frame)}
    assert labels == {
        f"pAdaIN [p={p}, rate={rate}]" for p in ("0.0", "0.5") for rate in RATES
    }


@pytest.mark.slow
def test_a_resumed_run_restores_lost_records(varied, tmp_path):
    c, workdir = varied
    old_records = [smoke_runs.records(path) for path in sorted(workdir.glob("vary/*"))]
    (workdir / "done").unlink()
    for path in workdir.glob("vary/*/evals/8.jsonl"):
        path.unlink()
    assert train.run(c, workdir)
    assert [
        smoke_runs.records(path) for path in sorted(workdir.glob("vary/*"))
    ] == old_records


@cases.each(
    "change, message",
    [
        (dict(key="train.batch", values=(8, 16)), "start a run for each value"),
        (dict(key="optim.rtae", values=(0.1,)), "did you mean 'optim.rate'"),
        (dict(key="optim.rate", values=(0.1, 0.1)), "different numbers in float32"),
        (
            dict(key="optim.rate", values=(0.1, math.inf)),
            r"vary\[0\].values\[1\]: must be a finite number, got inf",
        ),
        (dict(key="optim.name", values=(0.1,)), "must be a number, got 'sgd'"),
        (dict(key="algo.mix_group", values=(8, 16)), "is a whole number, 8, which"),
        (dict(key="optim.rate", values=(0.1, -1.0)), "optim.rate: must be positive"),
        (dict(key="algo.p", values=(0.1, 2.0)), r"p must be in \[0, 1\]"),
        (dict(values=(0.1,)), r"must be dict\(key='optim.rate', values=...\)"),
        (dict(key=3, values=(0.1,)), r"must be dict\(key='optim.rate', values=...\)"),
        (dict(key="optim.rate", values=0.1), "must be a list of different numbers"),
        (dict(key="optim.rate", values=(0.1, "a")), "must be a list of different"),
        (dict(key="optim.rate", values=(0.1, 1e39)), "must be a list of different"),
        (dict(key="optim.rate", values=(0.1, 0.1 + 1e-12)), "different .* in float32"),
        (dict(key="optim.average", values=(0.0, 0.9)), "cannot differ in one program"),
    ],
)
def test_wrong_entries_of_vary_are_refused(tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        train.run(config(vary=(change,)), tmp_path / "none")
    assert not (tmp_path / "none" / "config.json").exists()


def test_values_that_make_another_algorithm_are_refused(tmp_path):
    c = smoke_runs.small("sagnet")
    c.algo.w_adv = 0.1
    c.vary = (dict(key="algo.w_adv", values=(0.0, 0.1)),)
    with pytest.raises(ValueError, match="the values must make one algorithm"):
        train.run(c, tmp_path / "none")


@cases.each(
    "name",
    algos.ALGOS,
    quick=(
        "erm",
        "linear_probe",
        "dfr",
    ),
)
def test_strengths_of_algorithms_can_vary(name):
    """All options that are floats can vary, unless they change the program."""
    parameters = inspect.signature(algos.ALGOS[name]).parameters
    strengths = {
        k: METHODS[name].options.get(k, p.default) for k, p in parameters.items()
    }
    strengths = {
        k: v
        for k, v in strengths.items()
        if isinstance(v, float) and (name, k) not in (*STATIC, *IDLE)
    }
    if not strengths:
        return
    c = config_of(name)
    with c.unlocked():
        c.algo.update(strengths)
    c.vary = [dict(key=f"algo.{k}", values=(v,)) for k, v in strengths.items()]
    # Traces the step, and refuses a number without effect.
    smoke_runs.stage(jc.to_dict(c))


@pytest.mark.slow
def test_a_number_that_changes_the_program_is_refused(tmp_path):
    c = smoke_runs.small("sagnet")
    c.algo.dropout = 0.1
    c.vary = (dict(key="algo.dropout", values=(0.1, 0.2)),)
    with pytest.raises(ValueError, match="start a run for each value"):
        train.run(c, tmp_path / "none")


def assert_refused(c, tmp_path, key: str, values: tuple, message: str) -> None:
    """Check that a run with these values is refused before anything is written."""
    c.vary = (dict(key=key, values=values),)
    with pytest.raises(ValueError, match=message) as raised:
        train.run(c, tmp_path / "none")
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "none" / "config.json").exists()


@pytest.mark.slow
def test_a_number_that_changes_decisions_is_refused(tmp_path):
    c = config_of("infodrop")
    with c.unlocked():
        c.algo.update(variant="biasbed", temperature=0.03, rate=1.5)
    message = "algo.temperature must not change how decisions are made"
    assert_refused(c, tmp_path, "algo.temperature", (0.03, 0.3), message)


def test_milestones_between_programs_cannot_vary(tmp_path):
    c = config_of("debiased")
    with c.unlocked():
        c.algo.update(multi_grid=True, milestones=(0.5, 0.75))
    message = "programs that differ at step"
    assert_refused(c, tmp_path, "algo.milestones.0", (0.5, 0.2), message)


OWN_ALGORITHM = """
import jax, math
from jbias.algos import base, erm

def scaled(net, *, scale=1.0):
    def part(key, image, net):
        return {"params": {"w": scale * jax.random.normal(key, (2,))}}
    def losses(params, stats, batch, key, static=None):
        losses, aux = erm.make(net).losses(params, stats, batch, key)
        seen = {**aux.stats, "own": stats["own"]}
        return {"class": losses["class"] + params["own"]["w"].sum()}, base.Aux(seen, {})
    return base.Algo(net, losses, parts={"own": part})

def counted(net, *, scale=1.0):
    kept = [0] * math.floor(10 * scale)
    return erm.make(net)

def indexed(net, *, scale=1.0):
    def losses(params, stats, batch, key, static=None):
        losses, aux = erm.make(net).losses(params, stats, batch, key)
        return {"class": losses["class"] * math.sqrt(scale)}, aux
    return base.Algo(net, losses)

def idle(net, *, scale=1.0):
    return erm.make(net)

def broken(net, *, scale=1.0):
    def losses(params, stats, batch, key, static=None):
        return {"class": "a" + scale}, None
    return base.Algo(net, losses)
"""


@cases.each(
    "function, message",
    [
        ("scaled", "algo.scale must not change the weights at the start"),
        ("counted", "algo.scale must be known while the program is compiled"),
        ("indexed", "algo.scale must be known while the program is compiled"),
        ("idle", "algo.scale has no effect on any step"),
    ],
)
def test_unsuitable_numbers_of_a_users_algorithm_are_refused(
    tmp_path, function, message
):
    c = user_config(tmp_path, function)
    assert_refused(c, tmp_path, "algo.scale", (0.5, 1.0), message)


def test_an_error_in_a_users_algorithm_names_its_line(tmp_path):
    c = user_config(tmp_path, "broken")
    c.vary = (dict(key="algo.scale", values=(0.5, 1.0)),)
    with pytest.raises(
        messages.UserCodeError, match=r"own.py:\d+, in losses: .*concatenate"
    ):
        train.run(c, tmp_path / "none")


def user_config(tmp_path, function: str):
    """Return a config whose algorithm is a function in a user's file."""
    (tmp_path / "own.py").write_text(OWN_ALGORITHM)
    c = smoke_runs.small()
    c.model = {"name": "cnn", "width": 4}
    with c.unlocked():
        c.algo = {"name": f"{tmp_path / 'own.py'}:{function}", "scale": 1.0}
    return c


@pytest.mark.slow
def test_a_number_that_every_stage_overrides_is_refused(tmp_path):
    c = smoke_runs.small()
    c.model = {"name": "cnn", "width": 4}
    optim = c.optim.to_dict()
    c.stages = (dict(optim=optim, epochs=1.0), dict(optim=optim, epochs=1.0))
    message = "optim.rate has no effect on any step: stages have their own.*stages.0.optim.rate"
    assert_refused(c, tmp_path, "optim.rate", (0.1, 0.2), message)
    c.vary = (dict(key="stages.1.optim.rate", values=(0.1, 0.2)),)
    assert train.run(c, tmp_path / "some")
    first, second = (
        numbers(path) for path in sorted((tmp_path / "some").glob("vary/*"))
    )
    assert first.keys() == second.keys()
    assert first != second


def test_folders_of_similar_values_differ():
    c = config(vary=(dict(key="optim.rate", values=(0.1, 0.10000001, 1.0, 1e-5, 3)),))
    c = jc.to_dict(c)
    run_spec.check_vary(c)
    names = [branch.folder.partition("=")[2] for branch in run_spec.branches(c)]
    assert names == ["0.1", "0.10000001", "1", "1e-05", "3"]


@pytest.mark.slow
def test_a_run_can_start_from_a_branch(varied):
    _, workdir = varied
    with pytest.raises(ValueError, match="must be one branch of the run .* such as"):
        initial_nets.load_initial_nets(workdir, (0,))
    with pytest.raises(ValueError, match="must be one branch of the run .* such as"):
        initial_nets.load_initial_nets(workdir / "vary" / "optim.rate=7", (0,))
    folder = workdir / "checkpoints"
    nets, _ = trained.read_nets(folder, checkpoints.steps(folder)[-1])
    third = workdir / "vary" / f"optim.rate={RATES[1]:g},algo.p=0"
    for seed, net in zip(
        (1, 0), initial_nets.load_initial_nets(third, (1, 0)), strict=True
    ):
        expected = nets[2 * 2 + seed]["params"]["fc"]["kernel"]
        np.testing.assert_array_equal(net["params"]["fc"]["kernel"], expected)


def test_the_text_of_an_argument():
    from jbias.configs import erm

    c = erm.get_config("smoke,vary=optim.rate=0.1+0.3;optim.decay=0+1e-3")
    assert [b.values for b in run_spec.branches(jc.to_dict(c))] == [
        (0.1, 0.0),
        (0.1, 0.001),
        (0.3, 0.0),
        (0.3, 0.001),
    ]
    with pytest.raises(ValueError, match="vary must be like"):
        erm.get_config("smoke,vary=optim.rate=high")
