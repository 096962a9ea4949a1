"""What a person sees of a long run: a log, a live bar or plain lines, announcements.

Progress is a bar on a terminal, and a line every few seconds elsewhere. The log goes to
stderr and to log.txt, or as JSON objects to log.jsonl.
"""

import contextlib
import dataclasses
import logging
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Self

from jbias.runtime import files, messages, signals, switches


def silence_warnings() -> None:
    """Silences what orbax and Pillow print beside their errors.

    Orbax logs every file, and every thread that a full disk ended. What it raises becomes
    one line; JBIAS_TRACEBACK=1 shows the rest. Pillow warns of what is odd in an image;
    what is wrong in one is an error.
    """
    from absl import logging as absl_logging  # Late, as tqdm: --help waits for neither.

    warnings.filterwarnings("ignore", module=r"PIL\.")
    loud = switches.is_on("JBIAS_TRACEBACK")
    absl_logging.set_verbosity(absl_logging.ERROR if loud else absl_logging.FATAL)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = messages.print_traceback
    if not loud:
        sys.unraisablehook = _report_unraisable


def _report_unraisable(unraisable: Any) -> None:
    """Prints an error that no code could catch, unless it follows from another.

    Of a save that failed only the first file's error is waited for; tensorstore's threads
    find the loop closed that they were to tell the others'. A stop that came where Python
    takes no error is heard of later, too.
    """
    stopped = isinstance(unraisable.exc_value, signals.Interrupted)
    if not stopped and str(unraisable.exc_value) != "Event loop is closed":
        sys.__unraisablehook__(unraisable)


LOG_FORMATS = ("text", "json")
LOG_FILES = ("log.txt", "log.jsonl")


class LogEvent(str):
    """A line of the log that says, for programs, of which event it tells.

    A `quiet` one is told to programs only.
    """

    event: str
    fields: dict[str, Any]
    level: str
    quiet: bool

    def __new__(cls, text: str, event: str, **fields: Any) -> Self:
        line = super().__new__(cls, messages.one_line(text))
        line.event, line.fields, line.level, line.quiet = event, fields, "info", False
        return line

    def at(self, level: str, *, quiet: bool = False) -> Self:
        """Itself, with another level: debug, info, warning or error."""
        self.level, self.quiet = level, quiet
        return self

    def json(self) -> str:
        """One JSON object: time, level, event, message and the event's fields."""
        now = messages.utc_now("milliseconds")
        facts = {"time": now, "level": self.level, "event": self.event}
        said = facts | {"message": str(self), **self.fields}
        return messages.to_json(said, default=str)


def logger(workdir: "epath.Path | None", form: str = LOG_FORMATS[0]) -> messages.Say:
    """A function that prints a line, above a live bar, and appends it to log.txt.

    In the form "json" what is printed are JSON objects, appended to log.jsonl as well.
    Neither a terminal that is gone nor a full disk ends a run for want of a line: what
    the log lacks is told once.
    """
    lacking = False

    def append(name: str, text: str) -> None:
        nonlocal lacking
        try:
            files.append(workdir / name, text)
        except OSError as error:
            if not lacking:
                _show_lost(workdir / name, error)
            lacking = True

    def say(line: str) -> None:
        line = line if isinstance(line, LogEvent) else LogEvent(line, "note")
        text = line.json() if form == "json" else line
        if form == "json" or not line.quiet:
            _show(text)
        if workdir is not None and form == "json":
            append("log.jsonl", text)
        if workdir is not None and not line.quiet:
            append("log.txt", f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}")

    return say


def flush(workdir: "epath.Path") -> None:
    """Writes what the logs in an object store lack; where it cannot, tells it."""
    for name in LOG_FILES:
        try:
            files.flush(workdir / name)
        except OSError as error:
            _show_lost(workdir / name, error)


def _show_lost(path: "epath.Path", error: OSError) -> None:
    reason = files.system_message(error)
    _show(f"{path} cannot be written ({reason}); lines are lost")


def _show(line: str) -> None:
    import tqdm

    with contextlib.suppress(OSError, ValueError):  # Closed, or hung up.
        tqdm.tqdm.write(messages.terminal_text(line, sys.stderr), file=sys.stderr)


def flush_streams() -> None:
    """Flush stdout and stderr; where nobody reads them any more, drop what they hold.

    Python would end with exit code 120 in place of the run's own.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _bar(*, live: bool | None = None, **options: Any) -> "tqdm.tqdm":
    """A bar on stderr, disabled where that is no terminal."""
    import tqdm

    live = sys.stderr.isatty() if live is None else live
    return tqdm.tqdm(disable=not live, file=sys.stderr, **options)


@contextlib.contextmanager
def progress_bar(title: str, total: int) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal for work that may take a while; yields (done, total) -> None."""
    title = messages.one_line(title)
    with _bar(total=total, desc=title, delay=1, leave=False) as bar:
        yield lambda done, _: bar.update(done - bar.n)


@contextlib.contextmanager
def count_images(
    say: messages.Say,
    title: str,
    total: int,
    *,
    seconds: float = 30.0,
    patience: float = 5.0,
) -> Iterator[
    tuple[Callable[..., None], Callable[..., contextlib.AbstractContextManager]]
]:
    """Counts images, with rate and ETA: a bar on a terminal, elsewhere lines at times.

    Yields two functions. The first hears how many more are done, and with counted=False
    of such as have no part in the rate. The second makes contexts whose time has none,
    for what else there is to do, "compiling" by itself; of one that lasts longer than
    `patience` seconds that is told.
    """
    options = dict(unit="image", dynamic_ncols=True, leave=False)
    shown = _bar(total=total, desc=messages.one_line(title), **options)
    done, rated, began, said = 0, 0, time.monotonic(), time.monotonic()

    def tell(more: int, *, counted: bool = True) -> None:
        nonlocal done, rated, said
        done += more
        rated += more * counted
        shown.update(more)
        now = time.monotonic()
        if shown.disable and rated and now - said >= seconds:
            said, rate = now, rated / max(now - began, 1e-9)
            left = shown.format_interval((total - done) / rate)
            say(f"{title}: {done}/{total} images, {rate:.0f} images/s, ETA {left}")

    def show(what: str) -> None:
        if shown.disable:
            say(f"{title}: {done}/{total} images, {what} ...")
        else:
            shown.set_postfix_str(what)

    @contextlib.contextmanager
    def aside(what: str = "compiling") -> Iterator[None]:
        nonlocal began
        at, late = time.monotonic(), threading.Timer(patience, show, [what])
        late.daemon = True
        late.start()
        try:
            yield
        finally:
            late.cancel()
            late.join()
            began += time.monotonic() - at
            shown.unpause()
            shown.set_postfix_str("", refresh=False)

    with contextlib.closing(shown):
        yield tell, aside


class Speed(NamedTuple):
    """How far a training is, and how fast it goes."""

    done: int  # Steps.
    rate: float  # Steps a second,
    images: float  # and images.
    seconds_left: float  # Seconds that the rest takes at this rate.


@dataclasses.dataclass
class Progress:
    """Training progress: on a terminal a bar, elsewhere a line every few seconds.

    `beat` hears of each line, or of when one were due where there is a bar. `plain`:
    lines even on a terminal.
    """

    say: messages.Say
    _: dataclasses.KW_ONLY
    total: int
    done: int
    steps_per_epoch: float
    images_per_step: int
    seconds: float
    beat: Callable[[Speed], None] = lambda speed: None
    plain: dataclasses.InitVar[bool] = False

    def __post_init__(self, plain: bool):
        self._start, self._idle = self.done, 0.0
        self._began = self._said = time.monotonic()
        options = dict(unit="step", dynamic_ncols=True, live=False if plain else None)
        self._bar = _bar(total=self.total, initial=self.done, **options)

    @contextlib.contextmanager
    def idle(self) -> Iterator[None]:
        """Leaves what happens inside (compilation, evaluation) out of the rate."""
        began = time.monotonic()
        yield
        self._idle += time.monotonic() - began

    def restart(self) -> None:
        """Begins to measure the rate anew."""
        self._began, self._idle = time.monotonic(), 0.0

    def update(self, done: int, note: str, *, counted: bool = True) -> None:
        """Shows that `done` steps are done; `note` ends the line.

        Steps that are not `counted` have no part in the rate.
        """
        if not counted:
            self._start += done - self.done
        self._bar.update(done - self.done)
        self.done = done
        now = time.monotonic()
        spent = max(now - self._began - self._idle, 1e-9)
        rate = (done - self._start) / spent
        left = (self.total - done) / max(rate, 1e-9)
        speed = Speed(done, rate, rate * self.images_per_step, left)
        images = f"{speed.images:.0f} images/s"
        epochs = f"{self.total / self.steps_per_epoch:.3g}"
        epoch = f"epoch {done / self.steps_per_epoch:.2f}/{epochs}"
        if not self._bar.disable:
            self._bar.set_description_str(epoch, refresh=False)
            self._bar.set_postfix_str(f"{images}, {note}", refresh=False)
        if not counted or now - self._said < self.seconds:
            return
        self._said = now
        if self._bar.disable:
            eta = self._bar.format_interval(left)
            line = (
                f"{epoch}, step {done}/{self.total}, {rate:.2f} steps/s, {images}, "
                f"ETA {eta}, {note}"
            )
            facts = dict(rate=rate, images=speed.images, eta_seconds=left)
            facts = {key: round(value, 3) for key, value in facts.items()}
            self.say(LogEvent(line, "progress", step=done, total=self.total, **facts))
        self.beat(speed)

    def close(self) -> None:
        """Leaves the terminal to others."""
        self._bar.close()


@contextlib.contextmanager
def announce_slow(say: messages.Say, what: str, *, every: float = 10.0) -> Iterator:
    """Says what is done, then for how long already, as long as the context lasts.

    On a terminal that is a line which counts the seconds; elsewhere there is one more
    each `every` seconds, then each twice, four times as many.
    """
    say(f"{what} ...")
    began, over = time.monotonic(), threading.Event()
    title, shown = messages.one_line(what), "{desc}: {elapsed}"
    bar = _bar(desc=title, bar_format=shown, leave=False)

    def tell() -> None:
        pause = every if bar.disable else 1.0
        while not over.wait(pause):
            if not bar.disable:
                bar.refresh()
                continue
            spent = bar.format_interval(time.monotonic() - began)
            say(f"{what}: {spent} so far ...")
            pause *= 2

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()
        bar.close()
