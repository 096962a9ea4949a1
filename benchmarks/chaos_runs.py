"""Small real runs in processes of their own, which come to harm at a stated point.

A process that has imported all and started nothing of JAX forks for each run: what is
left to pay is a second. Each ends as `python -m jbias.main` ends.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator

import jax

from benchmarks import chaos_ends, chaos_hooks
from jbias import main, train
from jbias.configs import erm
from jbias.report import inputs
from jbias.runs import checkpoints
from jbias.runtime import console
from jbias.training import setup

FOR_FORKS = (checkpoints, erm, inputs, main, setup, train)  # Imported once.
OTHER_BITS = 99  # The exit code of a run that ended well, elsewhere.
PATIENCE_SECONDS = 600.0  # A run that takes longer hangs.
RECOVERED, REFUSED, LOST = "recovered", "refused", "lost"
MISSED = "missed"  # The run was over before anything happened to it.
CONFIG = """
from jbias.configs import erm

def get_config(arg=""):
    c = erm.get_config("smoke,seeds=1")
    c.model = dict(name="cnn", width=4)
    c.train.n, c.train.batch, c.valid.n = 64, 16, 32
    c.tests = {"edge": dict(data="shapes", split="edge", n=16)}
    c.inputs = ()
    c.epochs, c.save_every = 3.0, "3 steps"
    c.run.decisions, c.run.log_seconds = True, 0.5
    return c
"""


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a run ended: its exit code, negative for a signal, and what it said."""

    code: int
    said: str

    @property
    def refused(self) -> bool:
        """Whether it ended in one clear line, as what cannot be is to end."""
        lines = [line for line in self.said.splitlines() if line.startswith("jbias: ")]
        return self.code == 2 and len(lines) == 1 and self.clear

    @property
    def clear(self) -> bool:
        return "Traceback" not in self.said and "Exception ignored" not in self.said


@dataclasses.dataclass(frozen=True)
class Child:
    """A run under way, and where what it says is read."""

    pid: int
    said: int

    def kill(self) -> None:
        """Ends it, unless it has ended."""
        os.kill(self.pid, signal.SIGKILL)  # Nobody has waited for it yet.

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        how = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self.pid, how) is not None

    def ended(self, seconds: float = PATIENCE_SECONDS) -> Ended:
        """Waits for its end; one that takes longer is killed, and says so."""
        until, late = time.monotonic() + seconds, ""
        while not self.over:
            if time.monotonic() > until:
                late = "\nit hangs"
                self.kill()
            time.sleep(0.01)
        _, status = os.waitpid(self.pid, 0)
        with os.fdopen(self.said, errors="replace") as said:
            return Ended(os.waitstatus_to_exitcode(status), said.read() + late)


@dataclasses.dataclass(frozen=True)
class Bench:
    """A folder with an unbroken run, broken ones, and room for a trial."""

    folder: pathlib.Path
    trial: pathlib.Path

    @property
    def workdir(self) -> pathlib.Path:
        return self.trial / "run"

    @property
    def unbroken(self) -> pathlib.Path:
        return self.folder / "unbroken"

    @property
    def end(self) -> pathlib.Path:
        """What the unbroken run came to."""
        return self.folder / "end.json"

    @property
    def counts(self) -> dict[str, int]:
        """How often each point is passed by an unbroken run, and its "seconds"."""
        return json.loads((self.folder / "counts.json").read_text())

    def start(
        self,
        before: Callable[[], None] = lambda: None,
        *flags: str,
        compare: bool = True,
    ) -> Child:
        """Forks a run in the trial's workdir; `before` is called in it."""
        config = self.folder / "config.py"
        argv = ["jbias", f"--config={config}", f"--workdir={self.workdir}", *flags]

        def work() -> int:
            before()
            code = _main(argv)
            os.environ[chaos_hooks.OVER] = "1"
            if code or not compare:
                return code
            found, wanted = (
                chaos_ends.end_of(self.workdir),
                json.loads(self.end.read_text()),
            )
            other = [key for key in found | wanted if found.get(key) != wanted.get(key)]
            print("differing from the unbroken run:", other or "nothing")
            return OTHER_BITS if other else 0

        return forked(work)

    def run(self, before: Callable[[], None] = lambda: None) -> Ended:
        """Starts a run and waits for its end."""
        return self.start(before).ended()

    def broken(self, random_: random.Random) -> None:
        """Makes the workdir that of a run which was killed, at one of several steps."""
        choices = sorted((self.folder / "broken").iterdir())
        shutil.copytree(random_.choice(choices), self.workdir)


def _main(argv: list[str]) -> int:
    console.silence_warnings()
    sys.argv = argv
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    try:
        main.command()
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def forked(work: Callable[[], int]) -> Child:
    """What it says goes into a pipe: it holds 64 KiB, whatever the disk does."""
    sys.stdout.flush()
    sys.stderr.flush()
    said, says = os.pipe()
    os.set_blocking(says, False)  # Beyond that, lines are lost.
    pid = os.fork()
    if pid:
        os.close(says)
        return Child(pid, said)
    code = 98
    try:
        for standard in (1, 2):
            os.dup2(says, standard)
        code = work()
    except BaseException:  # noqa: BLE001
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


@contextlib.contextmanager
def cached(folder: pathlib.Path) -> Iterator[None]:
    """Lets all runs share programs, which are compiled quickly, and drawn sets."""
    flags = os.environ.get("XLA_FLAGS", "")
    told = {
        "JBIAS_CACHE": str(folder.parent / "cache"),
        "XLA_FLAGS": f"{flags} --xla_backend_optimization_level=0",
    }
    before = {key: os.environ.get(key) for key in told}
    os.environ.update(told)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                del os.environ[key]
            else:
                os.environ[key] = value


def cleared(folder: pathlib.Path) -> None:
    """Makes a folder that holds nothing."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()


def _code() -> str:
    """What all the code that runs is known by."""
    root = pathlib.Path(__file__).parents[1]
    globs = ("jbias/**/*.py", "configs/**/*.py", "benchmarks/chaos*.py")
    paths = [path for one in globs for path in root.glob(one)]
    return chaos_ends.digest(b"".join(path.read_bytes() for path in sorted(paths)))


def prepare(folder: pathlib.Path) -> None:
    """Makes the unbroken run, counts its points, and breaks some.

    Once for a folder; anew, and all trials with it, where the code is another.
    """
    stamp = folder / "code"
    if (folder / "counts.json").exists() and stamp.exists():
        if stamp.read_text() == _code():
            return
        print("chaos: the code has changed: all trials begin anew", file=sys.stderr)
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "broken").mkdir(parents=True)
    stamp.write_text(_code())
    (folder / "config.py").write_text(CONFIG)
    bench, counts = Bench(folder, folder / "trial"), folder / "counts.part"

    def counted() -> None:
        chaos_hooks.count(bench.workdir, counts)

    for number in ("warm", "unbroken"):  # The first one also compiles.
        cleared(bench.trial)
        began = time.monotonic()
        ended = bench.start(counted, compare=False).ended()
        seconds = time.monotonic() - began
        if ended.code:
            raise SystemExit(f"chaos: the {number} run ended so: {ended}")
    bench.workdir.rename(bench.unbroken)

    def told() -> int:
        bench.end.write_text(json.dumps(chaos_ends.end_of(bench.unbroken)))
        return 0

    if (ended := forked(told).ended()).code:
        raise SystemExit(f"chaos: the unbroken run cannot be read: {ended}")
    for step in (5, 8, 10):
        killed = bench.run(chaos_hooks.at(bench.workdir, "step", step, chaos_hooks.die))
        if killed.code != -signal.SIGKILL:
            raise SystemExit(f"chaos: a run to be killed ended so: {killed}")
        bench.workdir.rename(folder / "broken" / str(step))
    seen = {**json.loads(counts.read_text()), "seconds": seconds}
    (folder / "counts.json").write_text(json.dumps(seen))


def judged(bench: Bench, *before: Ended) -> tuple[str, str]:
    """How it ended, and why it is lost: the same command goes on, to the right bits."""
    refused = False
    for ended in before:
        fine = ended.code in (0, 143, -signal.SIGKILL, -signal.SIGTERM) and ended.clear
        refused |= ended.refused
        if not (fine or ended.refused):
            return LOST, f"ended by {ended.code}: {ended.said[-1500:]}"
    last = bench.run()
    if last.code or not last.clear:
        return LOST, f"does not go on, {last.code}: {last.said[-1500:]}"
    return (REFUSED if refused else RECOVERED), ""
