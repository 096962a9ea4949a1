"""All requests about a list of images, several at a time, until all are answered or none may be."""

import asyncio
import collections
import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from jbias.asking import client as client_lib
from jbias.asking import ledger as ledger_lib
from jbias.asking import pacing, pictures, questions
from jbias.runtime import messages

_MAX_FAILED = 5  # Images in a row without an answer.
_MAX_REFUSED = 3  # First images that may be refused.
_MAX_BUSY = 20  # Waits in a row because the endpoint is busy.


class Item(NamedTuple):
    """An image to ask about."""

    name: str
    path: str
    question: questions.Question
    input_tokens: int  # Estimate.


@dataclasses.dataclass
class Outcome:
    """The answers and failures of a run, and why it ended.

    reason: why nothing more was asked, one line; "" if all images were asked about. is_budget:
    True if a budget is the reason. failed: reason by image, for images without an answer.
    failures: number of failed requests by kind, such as "429". num_refused: images that the
    endpoint refuses.
    """

    num_answered: int = 0
    num_refused: int = 0
    reason: str = ""
    is_budget: bool = False
    failed: dict[str, str] = dataclasses.field(default_factory=dict)
    failures: collections.Counter[str] = dataclasses.field(
        default_factory=collections.Counter
    )


class Asker:
    """Asks about images.

    tries: requests about an image before it is left without an answer; replies that the endpoint
    is busy do not count. parallel: requests at a time. say: called with a line about each new kind
    of failure. advance: called for each image that has ended.
    """

    def __init__(
        self,
        client: client_lib.Client,
        request: client_lib.Request,
        *,
        ledger: ledger_lib.Ledger,
        pacer: pacing.Pacer,
        tries: int,
        parallel: int,
        say: Callable[[str], object],
        advance: Callable[[int], object],
    ):
        self._client, self._request = client, request
        self._ledger, self._pacer = ledger, pacer
        self._tries, self._parallel = tries, parallel
        self._say, self._advance = say, advance
        self._outcome = Outcome()
        self._num_failed = self._num_busy = 0  # In a row.
        self._busy_time = 0.0  # Of the last reply that was counted in `_num_busy`.

    async def run(self, items: Sequence[Item]) -> Outcome:
        """Ask about all images; return what became of them."""
        self._waiting = collections.deque(items)
        self._stop = asyncio.Event()
        self._ended = asyncio.Event()  # Set whenever a request ends.
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self._parallel, len(items))):
                    group.create_task(self._work())
        except ExceptionGroup as error:
            raise error.exceptions[0] from None
        return self._outcome

    async def _work(self) -> None:
        """Ask about one image after another until there is none, or until the stop."""
        while self._waiting and not self._stop.is_set():
            item = self._waiting.popleft()
            try:
                picture = await asyncio.to_thread(pictures.load, item.path)
            except (OSError, ValueError) as error:
                self._outcome.failed[item.name] = messages.one_line(error)
            else:
                await self._ask_until_answered(item, picture)
            self._advance(1)

    async def _ask_until_answered(self, item: Item, picture: pictures.Picture) -> None:
        """Ask about an image until it is answered, its tries are spent, or the stop."""
        num_failures = 0
        while not self._stop.is_set():
            start_time = time.monotonic()
            try:
                await self._ask(item, picture)
                return
            except client_lib.Failure as failure:
                num_failures += failure.action != client_lib.BUSY
                self._note(item, failure, start_time=start_time)
                is_last = num_failures >= self._tries
                if failure.action == client_lib.IMAGE or is_last:
                    self._give_up(item, failure)
                    return
                await self._wait(failure, num_failures)

    def _give_up(self, item: Item, failure: client_lib.Failure) -> None:
        """Leave an image without an answer; stop after several in a row."""
        if self._stop.is_set():
            return
        self._outcome.failed[item.name] = str(failure)
        self._num_failed += 1
        if self._num_failed >= _MAX_FAILED:
            self._end(f"{_MAX_FAILED} images in a row have no answer: {failure}")

    async def _ask(self, item: Item, picture: pictures.Picture) -> None:
        """Send one request and store its answer; Failure for none.

        Returns without a request once the stop is set, which a spent budget does.
        """
        await self._pacer.turn(self._stop)
        number = await self._count(item)
        if number is None:
            return
        text = item.question.text
        try:
            answer = await self._client.ask(self._request, text, picture.address)
        except client_lib.Failure as failure:
            is_refused = failure.action == client_lib.IMAGE
            options = {"options": dict(item.question.options)}
            self._ledger.fail(
                number,
                image=item.name,
                is_charged=failure.is_charged,
                reason=str(failure),
                refused=options if is_refused else None,
            )
            self._outcome.num_refused += is_refused
            raise
        finally:
            self._ended.set()
        answer |= {
            "options": dict(item.question.options),
            "image_sha256": picture.sha256,
        }
        self._ledger.answer(number, item.name, answer)
        self._ended.set()
        self._outcome.num_answered += 1
        self._num_failed = self._num_busy = 0

    async def _count(self, item: Item) -> int | None:
        """Count a request in the ledger; return its number, None if none may be sent."""
        while not self._stop.is_set():
            self._ended.clear()
            try:
                return self._ledger.send(
                    item.name,
                    input_tokens=item.input_tokens,
                    answer_tokens=self._request.answer_tokens,
                )
            except ledger_lib.TokensReservedError:
                # An answer may be shorter than what is reserved for it.
                await self._ended.wait()
            except ledger_lib.BudgetSpentError as error:
                self._end(str(error), is_budget=True)
        return None

    def _note(
        self, item: Item, failure: client_lib.Failure, *, start_time: float
    ) -> None:
        """Count a failure, print the first of its kind, and stop where no request can help.

        start_time: when the request was begun. Requests that were under way together count as
        one reply that the endpoint is busy.
        """
        self._outcome.failures[failure.kind] += 1
        if self._outcome.failures[failure.kind] == 1:
            self._say(f"{item.name}: {failure}")
        if failure.action == client_lib.BUSY and start_time >= self._busy_time:
            self._num_busy += 1
            self._busy_time = time.monotonic()
        has_answers = bool(self._ledger.answers)
        is_unreachable = (
            failure.kind == "not reached" and not self._outcome.num_answered
        )
        wait_seconds = failure.wait_seconds or 0
        if failure.action == client_lib.STOP or is_unreachable:
            self._end(str(failure))
        elif self._outcome.num_refused >= _MAX_REFUSED and not has_answers:
            self._end(f"the first {_MAX_REFUSED} images were refused: {failure}")
        elif self._num_busy >= _MAX_BUSY:
            self._end(f"after {_MAX_BUSY} waits the endpoint is still busy")
        elif wait_seconds > pacing.MAX_WAIT_SECONDS:
            self._end(f"the endpoint asks to wait {wait_seconds:,.0f} seconds")

    async def _wait(self, failure: client_lib.Failure, num_failures: int) -> None:
        """Wait before the next try, at least as long as the endpoint asks."""
        wait_seconds = failure.wait_seconds
        if wait_seconds is None:
            in_row = max(num_failures, self._num_busy, 1)
            wait_seconds = pacing.backoff(in_row, pacing.jitter())
        if failure.action == client_lib.BUSY:
            self._pacer.pause(wait_seconds)
        await pacing.sleep(wait_seconds, self._stop)

    def _end(self, reason: str, *, is_budget: bool = False) -> None:
        """Send no further request; reason: of the first call."""
        if not self._stop.is_set():
            self._outcome.reason, self._outcome.is_budget = reason, is_budget
        self._stop.set()
        self._ended.set()
