"""The pace of requests, and the waits after failures."""

import asyncio
import datetime
import email.utils
import random
import time
from collections.abc import Mapping

MAX_BACKOFF_SECONDS = 60.0
MAX_WAIT_SECONDS = 600.0  # A longer wait that an endpoint asks for stops the run.


def retry_after(headers: Mapping[str, str], *, time_now: float) -> float | None:
    """Return the seconds that an endpoint asks to wait, from the headers of its reply.

    headers: names in lower case. `Retry-After` is a number of seconds or a date (RFC 9110,
    section 10.2.3), `retry-after-ms` a number of milliseconds. time_now: seconds since 1970. None
    without a header that can be read; 0 for a date in the past.
    """
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        seconds = _number(headers.get(name, ""))
        if seconds is not None:
            return seconds * unit
    try:
        date = email.utils.parsedate_to_datetime(headers.get("retry-after", ""))
    except (TypeError, ValueError):
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=datetime.UTC)
    return max(0.0, date.timestamp() - time_now)


def _number(text: str) -> float | None:
    """Return a number that is not negative; None for another text."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < 1e9 else None


def backoff(failures: int, draw: float) -> float:
    """Return the seconds to wait after so many failures in a row, at least one.

    They double from 1 second to MAX_BACKOFF_SECONDS. draw: a random number from 0 to 1, by which
    a wait is up to half as long, so that requests do not come back together.
    """
    seconds = min(MAX_BACKOFF_SECONDS, 2.0 ** min(failures - 1, 16))
    return seconds * (1 - draw / 2)


class Pacer:
    """Sends requests one after another, at most so many per minute.

    requests_per_minute: None for no limit. last_sent: time of the last request of an earlier
    run, in seconds since 1970.
    """

    def __init__(self, requests_per_minute: float | None, *, last_sent: float = 0.0):
        self._interval = 60 / requests_per_minute if requests_per_minute else 0.0
        self._next = last_sent + self._interval

    async def turn(self, stop: asyncio.Event) -> None:
        """Wait until a request may be sent; return early once `stop` is set."""
        while not stop.is_set():
            wait_seconds = self._next - time.time()
            if wait_seconds <= 0:
                self._next = time.time() + self._interval
                return
            await sleep(wait_seconds, stop)

    def pause(self, seconds: float) -> None:
        """Send nothing for this many seconds."""
        self._next = max(self._next, time.time() + seconds)


async def sleep(seconds: float, stop: asyncio.Event) -> None:
    """Wait this many seconds, or until `stop` is set."""
    try:
        await asyncio.wait_for(stop.wait(), timeout=seconds)
    except TimeoutError:
        return


def jitter() -> float:
    """Return a random number from 0 to 1 for `backoff`; no result depends on it."""
    return random.random()
