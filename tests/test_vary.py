"""A run whose numbers vary is one run for each: the same records, in one program."""

import inspect
import json
import math

import jax
import pytest

from jbias import algos, results, seeds, train, vary
from jbias import config as jc
from tests import runs
from tests.methods import METHODS
from tests.test_matrix import config_of

RATES = (0.02, 0.3)
# Whether there is any, and how many draws are made.
STATIC = (("sagnet", "dropout"), ("infodrop", "rate"))


def config(**entries):
    c = runs.small("padain", **entries)
    c.algo.p = 0.3
    return c


@pytest.fixture(scope="module")
def varied(tmp_path_factory):
    """A run of two seeds, two rates and two strengths, and its workdir."""
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
        for r in runs.records(workdir)
    }


@pytest.mark.parametrize("rate, p", [(0.02, 0.5), (0.3, 0.0)])
def test_a_branch_is_a_run_of_its_own(varied, tmp_path, rate, p):
    _, workdir = varied
    lone = config()
    lone.optim.rate, lone.algo.p = rate, p
    assert train.run(lone, tmp_path / "lone")
    branch = workdir / "vary" / f"optim.rate={rate:g},algo.p={p:g}"
    assert {r["run"] for r in runs.records(branch)} == {jc.run_name(lone)}
    assert jc.plain(lone) | {"run": 0} == _config(branch) | {"run": 0}
    found, wanted = numbers(branch), numbers(tmp_path / "lone")
    assert found.keys() == wanted.keys()
    first = min(step for _, step, *_ in found)
    losses = [key for key in found if key[1] == first and key[3] == "loss_class"]
    assert len(losses) == 2
    for key in losses:  # Later, steps of a large rate magnify the rounding.
        assert found[key] == pytest.approx(wanted[key], rel=2e-3)
    assert (branch / "done").exists()
    assert (branch / "decisions" / "edge" / f"{first}.parquet").exists()


def _config(workdir) -> dict:
    return json.loads((workdir / "config.json").read_text())


def test_branches_differ_and_are_reported_as_runs(varied):
    _, workdir = varied
    full, empty = results.find(str(workdir))
    assert len(full) == 4
    assert not empty
    frame = results.read(str(workdir))
    assert frame["run"].nunique() == 4
    ends = frame[(frame["metric"] == "loss_class") & (frame["seed"] == 0)]
    assert ends[ends["step"] == ends["step"].max()]["value"].nunique() == 4
    from jbias.report import workdirs

    labels = {run.label for run in workdirs.load(frame)}
    assert labels == {
        f"padain [p={p}, rate={rate}]" for p in ("0.0", "0.5") for rate in RATES
    }


def test_a_resumed_run_puts_records_back(varied, tmp_path):
    c, workdir = varied
    before = [runs.records(path) for path in sorted(workdir.glob("vary/*"))]
    (workdir / "done").unlink()
    for path in workdir.glob("vary/*/evals/8.jsonl"):
        path.unlink()
    assert train.run(c, workdir)
    assert [runs.records(path) for path in sorted(workdir.glob("vary/*"))] == before


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(key="train.batch", values=(8, 16)), "start a run for each value"),
        (dict(key="optim.rtae", values=(0.1,)), "did you mean 'optim.rate'"),
        (dict(key="optim.rate", values=(0.1, 0.1)), "must be different numbers"),
        (dict(key="optim.rate", values=(0.1, math.inf)), "must be different numbers"),
        (dict(key="optim.name", values=(0.1,)), "must be a number, got 'sgd'"),
        (dict(key="optim.rate", values=(0.1, -1.0)), "optim.rate: must be positive"),
        (dict(key="algo.p", values=(0.1, 2.0)), r"p must be in \[0, 1\]"),
        (dict(values=(0.1,)), r"must be dict\(key=..., values=...\)"),
    ],
)
def test_what_cannot_vary_is_refused(tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        train.run(config(vary=(change,)), tmp_path / "none")
    assert not (tmp_path / "none" / "config.json").exists()


def test_values_that_make_another_algorithm_are_refused(tmp_path):
    c = runs.small("sagnet")
    c.algo.w_adv = 0.1
    c.vary = (dict(key="algo.w_adv", values=(0.0, 0.1)),)
    with pytest.raises(ValueError, match="the values must make one algorithm"):
        train.run(c, tmp_path / "none")


@pytest.mark.parametrize("name", algos.ALGOS)
def test_strengths_of_algorithms_can_vary(name):
    """All numbers with a fraction, but those that say what is computed."""
    given = inspect.signature(algos.ALGOS[name]).parameters
    strengths = {k: METHODS[name].options.get(k, p.default) for k, p in given.items()}
    strengths = {
        k: v
        for k, v in strengths.items()
        if isinstance(v, float) and (name, k) not in STATIC
    }
    if not strengths:
        return
    c = config_of(name)
    with c.unlocked():
        c.algo.update(strengths)
    c.vary = [dict(key=f"algo.{k}", values=(v,)) for k, v in strengths.items()]
    c = jc.plain(c)
    stage = runs.stage(c)
    taken, held = stage.take(0, 0), stage.held(0)
    (entry,) = vary.entries((0,), vary.branches(c))
    state = jax.eval_shape(stage.draw, seeds.key(0), None)
    new, _ = jax.eval_shape(
        lambda state, own: stage.one(state, (own, taken), held, stage.static(0)),
        state,
        entry.own,
    )
    assert jax.tree.structure(new) == jax.tree.structure(state)


def test_what_must_be_known_while_compiling_is_refused(tmp_path):
    c = runs.small("sagnet")
    c.algo.dropout = 0.1
    c.vary = (dict(key="algo.dropout", values=(0.1, 0.2)),)
    with pytest.raises(ValueError, match="start a run for each value"):
        train.run(c, tmp_path / "none")


def test_the_text_of_an_argument():
    from configs import erm

    c = erm.get_config("smoke,vary=optim.rate=0.1+0.3;optim.decay=0+1e-3")
    assert [b.values for b in vary.branches(jc.plain(c))] == [
        *((0.1, 0.0), (0.1, 0.001)),
        *((0.3, 0.0), (0.3, 0.001)),
    ]
    with pytest.raises(ValueError, match="vary must be like"):
        erm.get_config("smoke,vary=optim.rate=high")
