"""Small real runs in forked processes, with a fault at a given point.

The parent process imports all modules but does not initialise JAX, so that a forked run
starts within a second. A run ends like `python -m jbias.main`.
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

from jbias import main, train
from jbias.configs import erm
from jbias.report.pages.benchmark import inputs
from jbias.runs import checkpoints
from jbias.runtime import console
from jbias.training import setup
from qa import chaos_digests, chaos_hooks

FOR_FORKS = (checkpoints, erm, inputs, main, setup, train)  # Imported before forking.
OTHER_BITS = 99  # Exit code of a run that ended well with wrong bits.
PATIENCE_SECONDS = 600.0  # A run that takes longer hangs.
RECOVERED, REFUSED, LOST = "recovered", "refused", "lost"
MISSED = "missed"  # The run was over before the fault.
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
    """The end of a run: its exit code, negative for a signal, and its output."""

    code: int
    output: str

    @property
    def is_refusal(self) -> bool:
        """True if the run ended with exit code 2 and one error line."""
        lines = [
            line for line in self.output.splitlines() if line.startswith("jbias: ")
        ]
        return self.code == 2 and len(lines) == 1 and self.is_clean

    @property
    def is_clean(self) -> bool:
        """True if the output has no traceback."""
        return "Traceback" not in self.output and "Exception ignored" not in self.output


@dataclasses.dataclass(frozen=True)
class Child:
    """A forked run: its process and the file descriptor of its output."""

    pid: int
    output_fd: int

    def kill(self) -> None:
        """Kill the run; does nothing if the run has ended."""
        os.kill(self.pid, signal.SIGKILL)  # Not reaped yet: the process id is valid.

    @property
    def is_over(self) -> bool:
        """True if the run has ended."""
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self.pid, options) is not None

    def wait(self, seconds: float = PATIENCE_SECONDS) -> Ended:
        """Wait for the run's end and return it; kill a run that takes longer."""
        deadline, note = time.monotonic() + seconds, ""
        while not self.is_over:
            if time.monotonic() > deadline:
                note = f"\nkilled: still running after {seconds:g} seconds"
                self.kill()
            time.sleep(0.01)
        _, status = os.waitpid(self.pid, 0)
        with os.fdopen(self.output_fd, errors="replace") as file:
            return Ended(os.waitstatus_to_exitcode(status), file.read() + note)


@dataclasses.dataclass(frozen=True)
class Bench:
    """Paths of one trial.

    folder: has the unbroken run and broken runs. trial: the trial's own folder.
    """

    folder: pathlib.Path
    trial: pathlib.Path

    @property
    def workdir(self) -> pathlib.Path:
        return self.trial / "run"

    @property
    def unbroken(self) -> pathlib.Path:
        return self.folder / "unbroken"

    @property
    def end_path(self) -> pathlib.Path:
        """File of the unbroken run's digests (chaos_digests.read_end)."""
        return self.folder / "end.json"

    @property
    def counts(self) -> dict[str, int]:
        """Numbers of times that an unbroken run passes each point, and its "seconds"."""
        return json.loads((self.folder / "counts.json").read_text())

    def start(
        self,
        hook: Callable[[], None] = lambda: None,
        *flags: str,
        compare: bool = True,
    ) -> Child:
        """Fork a run in the trial's workdir and return it.

        hook: called in the forked process before the run. flags: of the command line.
        compare: exit with OTHER_BITS if the run differs from the unbroken run.
        """
        config = self.folder / "config.py"
        argv = ["jbias", f"--config={config}", f"--workdir={self.workdir}", *flags]

        def work() -> int:
            hook()
            code = _main(argv)
            os.environ[chaos_hooks.OVER] = "1"
            if code or not compare:
                return code
            end = chaos_digests.read_end(self.workdir)
            wanted = json.loads(self.end_path.read_text())
            different = [key for key in end | wanted if end.get(key) != wanted.get(key)]
            print("differing from the unbroken run:", different or "nothing")
            return OTHER_BITS if different else 0

        return fork_run(work)

    def run(self, hook: Callable[[], None] = lambda: None) -> Ended:
        """Fork a run, wait for its end and return it; hook: as of `start`."""
        return self.start(hook).wait()

    def copy_broken_run(self, rng: random.Random) -> None:
        """Copy a run that was killed at one of several steps into the workdir."""
        choices = sorted((self.folder / "broken").iterdir())
        shutil.copytree(rng.choice(choices), self.workdir)


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


def fork_run(work: Callable[[], int]) -> Child:
    """Call `work` in a forked process, which exits with its result; return the process.

    The output goes into a pipe of 64 KiB, which does not depend on the disk; longer output
    is cut.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    read_fd, write_fd = os.pipe()
    os.set_blocking(write_fd, False)
    pid = os.fork()
    if pid:
        os.close(write_fd)
        return Child(pid, read_fd)
    code = 98
    try:
        for standard_fd in (1, 2):
            os.dup2(write_fd, standard_fd)
        code = work()
    except BaseException:  # noqa: BLE001
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


@contextlib.contextmanager
def share_cache(folder: pathlib.Path) -> Iterator[None]:
    """Share compiled programs and generated data sets between runs within the context.

    Programs are compiled without optimisation, to save time.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    variables = {
        "JBIAS_CACHE": str(folder.parent / "cache"),
        "XLA_FLAGS": f"{flags} --xla_backend_optimization_level=0",
    }
    previous = {key: os.environ.get(key) for key in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for key, value in previous.items():
            if value is None:
                del os.environ[key]
            else:
                os.environ[key] = value


def make_empty(folder: pathlib.Path) -> None:
    """Create an empty folder; delete an existing one first."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()


def _digest_code() -> str:
    """Return a digest of all code that a trial runs."""
    root = pathlib.Path(__file__).parents[1]
    globs = ("jbias/**/*.py", "configs/**/*.py", "qa/chaos*.py")
    paths = [path for pattern in globs for path in root.glob(pattern)]
    return chaos_digests.digest(b"".join(path.read_bytes() for path in sorted(paths)))


def prepare(folder: pathlib.Path) -> None:
    """Make the unbroken run, count its points, and make the broken runs.

    A folder that was prepared by the same code is kept; if the code has changed, the
    folder and all its trials are deleted first.
    """
    stamp = folder / "code"
    if (folder / "counts.json").exists() and stamp.exists():
        if stamp.read_text() == _digest_code():
            return
        print("chaos: the code has changed; all trials start again", file=sys.stderr)
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "broken").mkdir(parents=True)
    stamp.write_text(_digest_code())
    (folder / "config.py").write_text(CONFIG)
    bench, counts_path = Bench(folder, folder / "trial"), folder / "counts.part"

    def count() -> None:
        chaos_hooks.count_points(bench.workdir, counts_path)

    for name in ("warm-up", "unbroken"):  # The first run also compiles.
        make_empty(bench.trial)
        began = time.monotonic()
        ended = bench.start(count, compare=False).wait()
        seconds = time.monotonic() - began
        if ended.code:
            raise SystemExit(f"chaos: the {name} run failed: {ended}")
    bench.workdir.rename(bench.unbroken)

    def write_end() -> int:
        bench.end_path.write_text(json.dumps(chaos_digests.read_end(bench.unbroken)))
        return 0

    ended = fork_run(write_end).wait()
    if ended.code:
        raise SystemExit(f"chaos: the unbroken run cannot be read: {ended}")
    for step in (5, 8, 10):
        kill = chaos_hooks.act_at(bench.workdir, "step", step, chaos_hooks.die)
        ended = bench.run(kill)
        if ended.code != -signal.SIGKILL:
            raise SystemExit(f"chaos: SIGKILL did not end a run: {ended}")
        bench.workdir.rename(folder / "broken" / str(step))
    counts = {**json.loads(counts_path.read_text()), "seconds": seconds}
    (folder / "counts.json").write_text(json.dumps(counts))


def judge(bench: Bench, *ends: Ended) -> tuple[str, str]:
    """Run the same command again; return the trial's outcome and why it is lost, if it is.

    ends: ends of the runs so far, which must be killed, terminated, finished or refused.
    """
    allowed_codes = (0, 143, -signal.SIGKILL, -signal.SIGTERM)
    for ended in ends:
        is_allowed = ended.code in allowed_codes and ended.is_clean
        if not (is_allowed or ended.is_refusal):
            return LOST, f"ended with code {ended.code}: {ended.output[-1500:]}"
    last = bench.run()
    if last.code or not last.is_clean:
        return LOST, f"does not continue, code {last.code}: {last.output[-1500:]}"
    is_refused = any(ended.is_refusal for ended in ends)
    return (REFUSED if is_refused else RECOVERED), ""
