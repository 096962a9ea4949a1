"""Write the log and show the progress of a long run.

Progress is a bar on a terminal, and otherwise a line every few seconds. The log goes to
stderr and to log.txt, or as JSON objects to log.jsonl.
"""

import contextlib
import contextvars
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

Say = Callable[[str], None]  # Called with lines for the user.


def silence_warnings() -> None:
    """Silence the log lines of orbax and the warnings of Pillow; errors are still raised.

    Orbax logs every file, and every thread that fails on a full disk; with JBIAS_TRACEBACK=1,
    lines about errors are printed. Pillow warns of unusual images; damaged images raise an error.
    Also replaces sys.excepthook, if it is Python's own, by messages.print_traceback, and
    without JBIAS_TRACEBACK=1 sys.unraisablehook.
    """
    from absl import logging as absl_logging  # Late, for a fast --help.

    warnings.filterwarnings("ignore", module=r"PIL\.")
    shows_tracebacks = switches.is_on("JBIAS_TRACEBACK")
    absl_logging.set_verbosity(
        absl_logging.ERROR if shows_tracebacks else absl_logging.FATAL
    )
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = messages.print_traceback
    if not shows_tracebacks:
        sys.unraisablehook = _report_unraisable


def _report_unraisable(unraisable: Any) -> None:
    """Print an exception that no code could catch, for sys.unraisablehook.

    Two kinds are not printed: errors of tensorstore's threads after a save has failed, because
    orbax awaits only the first file's error; and a stop signal that arrives where Python
    ignores exceptions, because the signal is handled later.
    """
    stopped = isinstance(unraisable.exc_value, signals.Interrupted)
    if not stopped and str(unraisable.exc_value) != "Event loop is closed":
        sys.__unraisablehook__(unraisable)


LOG_FORMATS = ("text", "json")
LOG_FILES = ("log.txt", "log.jsonl")


class LogEvent(str):
    """A line of the log with a machine-readable event name and fields.

    A `quiet` event appears in the JSON log only. Events of a run, and their fields:

    start         everything is open: run, seeds, total, step
    resume        step, total
    compile       step
    compiled      the first steps are done: seconds
    progress      step, total, rate, images, eta_seconds
    evaluation    all sets are evaluated: step, total, seconds, means (by set/metric, over
                  finite seeds)
    checkpoint    saving has begun: step
    diverged, rolled_back
                  step, seed
    finished      step, fate (finished or diverged)
    stop, error   code (the exit code)
    note          every other message: none
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
        """Set the level and return this event.

        level: "debug", "info", "warning" or "error". quiet: True: in the JSON log only.
        """
        self.level, self.quiet = level, quiet
        return self

    def json(self) -> str:
        """Return a JSON object, as text, of time, level, event, message and the fields."""
        record = {
            "time": messages.utc_now("milliseconds"),
            "level": self.level,
            "event": self.event,
            "message": str(self),
        }
        return messages.to_json(record | self.fields, default=str)


def logger(workdir: "epath.Path | None", form: str = LOG_FORMATS[0]) -> messages.Say:
    """Return a function that prints a log line, above a live bar, and appends it to log.txt.

    workdir: the folder of the log files; None to print only. form: "text", or "json" to print
    JSON objects and to append them to log.jsonl, too. A closed terminal or a full disk does
    not stop the run: the first line that cannot be written is reported.
    """
    has_lost_lines = False

    def append(name: str, text: str) -> None:
        """Append a line to a log file of the workdir; report the first failure."""
        nonlocal has_lost_lines
        try:
            files.append(workdir / name, text)
        except OSError as error:
            if not has_lost_lines:
                _report_lost_lines(workdir / name, error)
            has_lost_lines = True

    def log(line: str) -> None:
        """Print a line or a LogEvent and append it to the log files; if quiet, only as JSON."""
        event = line if isinstance(line, LogEvent) else LogEvent(line, "note")
        text = event.json() if form == "json" else event
        if form == "json" or not (event.quiet or _is_repeated(event)):
            _print_line(text)
        if workdir is not None and form == "json":
            append("log.jsonl", text)
        if workdir is not None and not event.quiet:
            append("log.txt", f"{time.strftime('%Y-%m-%d %H:%M:%S')} {event}")

    return log


_printed_notes: contextvars.ContextVar[set[str] | None] = contextvars.ContextVar(
    "printed_notes", default=None
)


@contextlib.contextmanager
def printing_notes_once() -> Iterator[None]:
    """Print a note that was printed before in this context no second time.

    For commands that train several runs, whose notes on the data are the same. Log files have all
    lines.
    """
    token = _printed_notes.set(set())
    try:
        yield
    finally:
        _printed_notes.reset(token)


def _is_repeated(event: LogEvent) -> bool:
    """Return True for a note that `printing_notes_once` has seen; remember the note."""
    notes = _printed_notes.get()
    if notes is None or event.event != "note":
        return False
    is_repeated = str(event) in notes
    notes.add(str(event))
    return is_repeated


def flush(workdir: "epath.Path") -> None:
    """Write pending log lines to an object store; print a line about a log that failed."""
    for name in LOG_FILES:
        try:
            files.flush(workdir / name)
        except OSError as error:
            _report_lost_lines(workdir / name, error)


def _report_lost_lines(path: "epath.Path", error: OSError) -> None:
    """Print that lines of the log at `path` are lost because of an error."""
    reason = files.system_message(error)
    _print_line(f"{path} cannot be written ({reason}); lines are lost")


def _print_line(line: str) -> None:
    """Print a line to stderr above a live bar; do nothing if stderr is closed."""
    import tqdm

    with contextlib.suppress(OSError, ValueError):
        tqdm.tqdm.write(messages.terminal_text(line, sys.stderr), file=sys.stderr)


def flush_streams() -> None:
    """Flush stdout and stderr; discard the text of a stream that has lost its reader.

    Otherwise Python replaces the run's exit code by 120.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _bar(*, live: bool | None = None, **options: Any) -> "tqdm.tqdm":
    """Return a tqdm bar on stderr.

    live: True: show the bar; False: do not; None: only if stderr is a terminal. options: of
    tqdm.
    """
    import tqdm

    live = sys.stderr.isatty() if live is None else live
    return tqdm.tqdm(disable=not live, file=sys.stderr, **options)


@contextlib.contextmanager
def progress_bar(title: str, total: int) -> Iterator[Callable[[int, int], None]]:
    """Show a bar on a terminal; yield a function (done, total) -> None that updates the bar.

    title: text before the bar. total: the value of `done` at the end.
    """
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
    """Show images done, rate and remaining time: a bar on a terminal, otherwise lines.

    Yields two functions, (advance, untimed):
    `advance(count, counted=True)` adds images; counted=False leaves them out of the rate.
    `untimed(activity="compiling")` returns a context whose duration is left out of the
    rate; the activity is shown once the context lasts longer than `patience` seconds.

    say: logs a line. title: start of each line. total: number of images. seconds: time
    between two lines.
    """
    bar = _bar(
        total=total,
        desc=messages.one_line(title),
        unit="image",
        dynamic_ncols=True,
        leave=False,
    )
    num_done = num_timed = 0
    start_time = last_line_time = time.monotonic()

    def advance(count: int, *, counted: bool = True) -> None:
        """Add `count` images; counted: whether these images count for the rate."""
        nonlocal num_done, num_timed, last_line_time
        num_done += count
        num_timed += count * counted
        bar.update(count)
        now = time.monotonic()
        if bar.disable and num_timed and now - last_line_time >= seconds:
            last_line_time = now
            rate = num_timed / max(now - start_time, 1e-9)
            eta = bar.format_interval((total - num_done) / rate)
            say(f"{title}: {num_done}/{total} images, {rate:.0f} images/s, ETA {eta}")

    def show_activity(activity: str) -> None:
        """Show the current activity in the bar or as a line."""
        if bar.disable:
            say(f"{title}: {num_done}/{total} images, {activity} ...")
        else:
            bar.set_postfix_str(activity)

    @contextlib.contextmanager
    def untimed(activity: str = "compiling") -> Iterator[None]:
        """Leave the duration of the context out of the rate; show the activity if it is long."""
        nonlocal start_time
        entry_time = time.monotonic()
        timer = threading.Timer(patience, show_activity, [activity])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()
            start_time += time.monotonic() - entry_time
            bar.unpause()
            bar.set_postfix_str("", refresh=False)

    with contextlib.closing(bar):
        yield advance, untimed


class Speed(NamedTuple):
    """Progress and speed of a training."""

    done: int  # Steps done.
    rate: float  # Steps per second.
    images: float  # Images per second.
    seconds_left: float  # Estimated seconds until the last step.


@dataclasses.dataclass
class Progress:
    """Training progress: a bar on a terminal, otherwise a line every `seconds` seconds.

    say: logs a line. total: number of steps at the end. done: number of steps so far.
    steps_per_epoch, images_per_step: for the epoch and the images per second in a line.
    beat: called every `seconds` seconds with the current speed.
    plain: whether to log lines even on a terminal.
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
        self._first_step, self._idle_seconds = self.done, 0.0
        self._start_time = self._last_beat_time = time.monotonic()
        self._bar = _bar(
            live=False if plain else None,
            total=self.total,
            initial=self.done,
            unit="step",
            dynamic_ncols=True,
        )

    @contextlib.contextmanager
    def idle(self) -> Iterator[None]:
        """Leave the duration of the context (e.g. of an evaluation) out of the rate."""
        entry_time = time.monotonic()
        yield
        self._idle_seconds += time.monotonic() - entry_time

    def restart(self) -> None:
        """Restart the rate: earlier steps and seconds no longer count."""
        self._start_time, self._idle_seconds = time.monotonic(), 0.0
        self._first_step = self.done

    def update(self, done: int, note: str, *, counted: bool = True) -> None:
        """Show that `done` steps are done; at most every `seconds`, call `beat` and log a line.

        The line is logged only without a live bar. note: the end of the line. counted: False:
        the new steps do not count for the rate, no line is logged, and `beat` is not called.
        """
        if not counted:
            self._first_step += done - self.done
        self._bar.update(done - self.done)
        self.done = done
        now = time.monotonic()
        seconds_stepping = max(now - self._start_time - self._idle_seconds, 1e-9)
        rate = (done - self._first_step) / seconds_stepping
        seconds_left = (self.total - done) / max(rate, 1e-9)
        speed = Speed(
            done,
            rate,
            images=rate * self.images_per_step,
            seconds_left=seconds_left,
        )
        images = f"{speed.images:.0f} images/s"
        epochs = f"{self.total / self.steps_per_epoch:.3g}"
        epoch = f"epoch {done / self.steps_per_epoch:.2f}/{epochs}"
        if not self._bar.disable:
            self._bar.set_description_str(epoch, refresh=False)
            self._bar.set_postfix_str(f"{images}, {note}", refresh=False)
        if not counted or now - self._last_beat_time < self.seconds:
            return
        self._last_beat_time = now
        if self._bar.disable:
            eta = self._bar.format_interval(seconds_left)
            line = (
                f"{epoch}, step {done}/{self.total}, {rate:.2f} steps/s, {images}, "
                f"ETA {eta}, {note}"
            )
            event = LogEvent(
                line,
                "progress",
                step=done,
                total=self.total,
                rate=round(rate, 3),
                images=round(speed.images, 3),
                eta_seconds=round(seconds_left, 3),
            )
            self.say(event)
        self.beat(speed)

    def close(self) -> None:
        """Close the bar."""
        self._bar.close()


@contextlib.contextmanager
def announce_slow(
    say: messages.Say, activity: str, *, every: float = 10.0
) -> Iterator[None]:
    """Log an activity at the start of the context, and its duration while the context lasts.

    A terminal shows a line that counts the seconds. Otherwise a line is logged after `every`
    seconds, and again after pauses that double each time. say: logs a line. activity: such as
    "compiling".
    """
    say(f"{activity} ...")
    start_time, is_over = time.monotonic(), threading.Event()
    bar = _bar(
        desc=messages.one_line(activity),
        bar_format="{desc}: {elapsed}",
        leave=False,
    )

    def report_duration() -> None:
        """Show the duration at intervals until the context ends."""
        pause = every if bar.disable else 1.0
        while not is_over.wait(pause):
            if not bar.disable:
                bar.refresh()
                continue
            duration = bar.format_interval(time.monotonic() - start_time)
            say(f"{activity}: {duration} so far ...")
            pause *= 2

    thread = threading.Thread(target=report_duration, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        bar.close()
