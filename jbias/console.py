"""What a person sees of a long run: a live bar or plain lines, and a log file."""

import contextlib
import logging
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator

import tqdm
from absl import logging as absl_logging
from etils import epath

from jbias import messages


def hush() -> None:
    """Orbax tells of every file, and of every task that a full disk ended.

    Pillow warns of what is odd in an image; what is wrong in one is an error.
    """
    warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.")
    before = sys.unraisablehook

    def hook(unraisable: "sys.UnraisableHookArgs") -> None:
        # Of reads that a damaged file left behind.
        if str(unraisable.exc_value) != "Event loop is closed":
            before(unraisable)

    sys.unraisablehook = hook
    absl_logging.set_verbosity(absl_logging.ERROR)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)


def logger(workdir: epath.Path | None) -> Callable[[str], None]:
    """A function that prints a line, above a live bar, and appends it to log.txt."""

    def say(line: str) -> None:
        line = messages.line(line)
        tqdm.tqdm.write(line, file=sys.stderr)
        if workdir is not None:
            stamp = time.strftime("%Y-%m-%d %H:%M:%S")
            with (workdir / "log.txt").open("a") as file:
                file.write(f"{stamp} {line}\n")

    return say


@contextlib.contextmanager
def bar(title: str, total: int) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal for work that may take a while; yields (done, total) -> None."""
    with tqdm.tqdm(
        total=total,
        desc=title,
        delay=1,
        leave=False,
        disable=not sys.stderr.isatty(),
        file=sys.stderr,
    ) as shown:
        yield lambda done, _: shown.update(done - shown.n)


@contextlib.contextmanager
def counted(
    say: Callable[[str], None],
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
    shown = tqdm.tqdm(
        total=total,
        desc=title,
        unit="image",
        dynamic_ncols=True,
        leave=False,
        disable=not sys.stderr.isatty(),
        file=sys.stderr,
    )
    done, rated, began, said = 0, 0, time.monotonic(), time.monotonic()

    def tell(more: int, *, counted: bool = True) -> None:
        nonlocal done, rated, said
        done += more
        rated += more * counted
        shown.update(more)
        now = time.monotonic()
        if shown.disable and rated and now - said >= seconds:
            said, rate = now, rated / max(now - began, 1e-9)
            left = tqdm.tqdm.format_interval((total - done) / rate)
            say(f"{title}: {done}/{total} images, {rate:.0f} images/s, ETA {left}")

    def told(what: str) -> None:
        if shown.disable:
            say(f"{title}: {done}/{total} images, {what} ...")
        else:
            shown.set_postfix_str(what)

    @contextlib.contextmanager
    def aside(what: str = "compiling") -> Iterator[None]:
        nonlocal began
        at, late = time.monotonic(), threading.Timer(patience, told, [what])
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


class Progress:
    """Training progress: on a terminal a bar, elsewhere a line every few seconds."""

    def __init__(
        self,
        say: Callable[[str], None],
        *,
        total: int,
        done: int,
        steps_per_epoch: float,
        images_per_step: int,
        seconds: float,
    ):
        self._say = say
        self._epochs = f"{total / steps_per_epoch:.3g}"
        self._steps_per_epoch = steps_per_epoch
        self._images = images_per_step
        self._seconds = seconds
        self._done = self._start = done
        self._total = total
        self._began = self._said = time.monotonic()
        self._idle = 0.0
        self._bar = tqdm.tqdm(
            total=total,
            initial=done,
            unit="step",
            dynamic_ncols=True,
            disable=not sys.stderr.isatty(),
            file=sys.stderr,
        )

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
            self._start += done - self._done
        self._bar.update(done - self._done)
        self._done = done
        now = time.monotonic()
        spent = max(now - self._began - self._idle, 1e-9)
        rate = (done - self._start) / spent
        images = f"{rate * self._images:.0f} images/s"
        epoch = f"epoch {done / self._steps_per_epoch:.2f}/{self._epochs}"
        if not self._bar.disable:
            self._bar.set_description_str(epoch, refresh=False)
            self._bar.set_postfix_str(f"{images}, {note}", refresh=False)
        elif counted and now - self._said >= self._seconds:
            self._said = now
            left = tqdm.tqdm.format_interval((self._total - done) / max(rate, 1e-9))
            self._say(
                f"{epoch}, step {done}/{self._total}, {rate:.2f} steps/s, {images}, "
                f"ETA {left}, {note}"
            )

    def close(self) -> None:
        """Leaves the terminal to others."""
        self._bar.close()
