"""Tells that something takes its time, and how long it has taken."""

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator

import tqdm

from jbias.terminal import messages


@contextlib.contextmanager
def told(say: Callable[[str], None], what: str, *, every: float = 10.0) -> Iterator:
    """Says what is done, then for how long already, as long as the context lasts.

    On a terminal that is a line which counts the seconds; elsewhere there is one more
    each `every` seconds, then each twice, four times as many.
    """
    say(f"{what} ...")
    began, over = time.monotonic(), threading.Event()
    live = sys.stderr.isatty()
    shown = tqdm.tqdm(
        desc=messages.line(what),
        bar_format="{desc}: {elapsed}",
        leave=False,
        disable=not live,
        file=sys.stderr,
    )

    def tell() -> None:
        pause = 1.0 if live else every
        while not over.wait(pause):
            if live:
                shown.refresh()
                continue
            spent = tqdm.tqdm.format_interval(time.monotonic() - began)
            say(f"{what}: {spent} so far ...")
            pause *= 2

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()
        shown.close()
