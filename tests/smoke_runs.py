"""Small runs for tests: complete configs of small size.

As a program, this module trains in a separate process, which may kill itself:

    python -m tests.smoke_runs config.json workdir [save|rename|step NUMBER]

dies by SIGKILL with the NUMBERth file of a checkpoint opened for writing, before the
NUMBERth rename in the workdir (of progress.json none), or right after the NUMBERth step.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys

import ml_collections

from benchmarks import collectives
from jbias.configs import erm, padain, sagnet
from jbias.runs import status

CONFIGS = {"erm": erm, "padain": padain, "sagnet": sagnet}
ROOT = pathlib.Path(__file__).parents[1]


def small(preset: str = "erm", **entries) -> ml_collections.ConfigDict:
    """Return a config of a preset: two seeds, a narrow net, four steps an epoch, two test sets."""
    c = CONFIGS[preset].get_config("smoke,seeds=2")
    c.model.width = 4
    c.train.n, c.train.batch = 128, 32
    tests = (("edge", 48), ("cue_conflict", 240))
    c.tests = {name: dict(data="shapes", split=name, n=n) for name, n in tests}
    c.valid.n = 64
    c.run.eval_batch = 100
    c.inputs = (dict(name="random_resized_crop", area=(0.5, 1.0)), dict(name="flip"))
    if "mix_group" in c.algo:
        c.algo.mix_group = 8
    with c.unlocked():
        for key, value in entries.items():
            c[key] = value
    return c


def stage(config: dict, devices=None):
    """Return the only stage of a config; devices: a mesh, by default of one device."""
    from benchmarks import common
    from jbias.runtime import mesh

    return common.built(config, devices or mesh.make(1))


def trained(
    stage,
    which: tuple[int, ...],
    strategy: str,
    *,
    steps: int,
    devices=None,
    together: int = 0,
    rounded: int = 0,
    scanned: int = 0,
) -> tuple[tuple, list[tuple]]:
    """Return the states of these seeds after some steps, and their metrics of every step.

    Both have one entry a seed. `devices` is a mesh, of one device if it is not given.
    rounded: which draw of signs moves each weight by one unit of rounding; 0: none does.
    scanned: the number of steps that are one program; 0: none are.
    """
    import jax
    import numpy as np

    from benchmarks import common
    from jbias.runtime import mesh
    from jbias.training import placement, step

    options = dict(strategy=strategy, together=together, scanned=scanned)
    stage = common.with_seeds(stage, which)
    placed = placement.fit_to_devices(stage, devices or mesh.make(1), **options)
    states, metrics = placed.start(), []
    if rounded:
        rng = np.random.default_rng(rounded)

        def move(x):
            signs = rng.choice((-1.0, 1.0), x.shape).astype(x.dtype)
            return x * (1 + signs * np.finfo(x.dtype).eps)

        def moved(state):
            return state._replace(params=jax.tree.map(move, state.params))

        of_seed = lambda tree: isinstance(tree, step.State)
        states = jax.tree.map(moved, states, is_leaf=of_seed)
    at_once = max(1, scanned)
    for first_step in range(stage.first, stage.first + steps, at_once):
        count = min(at_once, stage.first + steps - first_step)
        states, outs = placed.advance(states, placed.take(first_step, count))
        metrics += [placed.layout.split(jax.device_get(out)) for out in outs]
    return placed.layout.unpack(states), metrics


def on_eight(module: str, *args: str):
    """Run a module on eight CPU devices, and return the JSON of the last line of its output."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} {collectives.HOST_DEVICES.format(8)}"
    completed = subprocess.run(
        [sys.executable, "-m", module, *args],
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags},
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr[-2000:]
    return json.loads(completed.stdout.splitlines()[-1])


def start(config, workdir: pathlib.Path, *death: str, **env) -> subprocess.Popen:
    """Start a run in a new process; death: when to kill it, see above; env: added variables."""
    path = workdir.parent / f"{workdir.name}.json"
    path.write_text(json.dumps(config.to_dict()))
    return subprocess.Popen(
        [sys.executable, "-m", "tests.smoke_runs", str(path), str(workdir), *death],
        cwd=ROOT,
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def records(workdir: pathlib.Path) -> list[dict]:
    """Return all records of a run, by step."""
    files = sorted(workdir.glob("evals/*.jsonl"), key=lambda p: int(p.stem))
    return [json.loads(line) for p in files for line in p.read_text().splitlines()]


def _die_at(trigger: str, number: int, workdir: str) -> None:
    remaining = number

    def count() -> None:
        nonlocal remaining
        remaining -= 1
        if not remaining:
            os.kill(os.getpid(), signal.SIGKILL)

    def hook(event: str, args: tuple) -> None:
        is_result = event == "os.rename" and status.HEARTBEAT_FILE not in str(args[1])
        if trigger == "rename" and is_result and workdir in str(args[1]):
            count()
        if trigger == "save" and event == "open" and "checkpoint-tmp" in str(args[0]):
            count()

    sys.addaudithook(hook)
    if trigger == "step":
        from jbias.training import monitoring

        add = monitoring.Monitor.add

        def add_then_count(self, *args):
            count()
            return add(self, *args)

        monitoring.Monitor.add = add_then_count


def main(path: str, workdir: str, trigger: str = "", number: str = "0") -> int:
    """Train, and return the exit code as jbias.main does."""
    from absl import logging

    from jbias import train
    from jbias.runtime import signals, xla

    logging.set_verbosity(logging.ERROR)
    xla.cache_programs()
    _die_at(trigger, int(number), workdir)
    config = ml_collections.ConfigDict(json.loads(pathlib.Path(path).read_text()))
    try:
        return 0 if train.run(config, workdir) else 1
    except signals.Interrupted as stopped:
        print(f"jbias: {stopped}")
        return signals.exit_code(stopped)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
