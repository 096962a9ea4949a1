"""The requests and answers of a folder, on disk, and the budgets.

requests.jsonl  a line before each request, synced to disk before it is sent, a line for each
                request that failed or whose image was refused, and a line where refused images
                are to be asked about again
answers.jsonl   a line for each answer, synced to disk

A request that a killed process had sent counts, for its estimated tokens, and its image is asked
about again, since no answer is stored. At most as many requests as run at a time are lost in
this way by each kill. A line that a kill has cut off is removed: a request whose line was not
complete had not been sent.

An image that the endpoint refuses, as too large or of an unknown format, is not asked about again.
Refusals count only in a folder with an answer: without any, the requests themselves may be wrong.
"""

import json
import os
import time
from collections.abc import Mapping
from typing import Any

from jbias import errors
from jbias.runtime import files, messages

REQUESTS, ANSWERS = "requests.jsonl", "answers.jsonl"
# Events of requests.jsonl.
SENT, FAILED, REFUSED, RETRY = "sent", "failed", "refused", "retry"


class BudgetSpentError(Exception):
    """Raised if a further request would exceed a budget; the text names the flag."""


class TokensReservedError(BudgetSpentError):
    """Raised if tokens that requests in flight have reserved may become free."""


class Ledger:
    """The requests and answers of a folder.

    max_requests, max_tokens: budgets of all runs into the folder; None for none. is_read_only:
    True: do not remove lines that are cut off.
    answers: the stored answers by name of the image. refused: the lines of the refused images.
    """

    def __init__(
        self,
        folder: str,
        *,
        max_requests: int | None = None,
        max_tokens: int | None = None,
        is_read_only: bool = False,
    ):
        self.max_requests, self.max_tokens = max_requests, max_tokens
        self.answers: dict[str, dict[str, Any]] = {}
        self.refused: dict[str, dict[str, Any]] = {}
        self.num_requests = 0
        self.last_sent = 0.0  # Seconds since 1970.
        self.spent_tokens = 0  # Of requests that have ended.
        # Reserved tokens by number of the request, for requests without an end.
        self._reserved: dict[int, int] = {}
        # Tokens, as endpoints have counted.
        self._largest_input = self._largest_output = 0
        self._requests = _Lines(os.path.join(folder, REQUESTS))
        self._answers = _Lines(os.path.join(folder, ANSWERS))
        for line in self._requests.read(repair=not is_read_only):
            self._add_line(line)
        for line in self._answers.read(repair=not is_read_only):
            self._add_answer(line)
        if not self.answers and not is_read_only:
            self.retry_refused()
        # A former process sent these and was killed: no answer will come.
        self.num_lost = len(self._reserved)
        self.spent_tokens += sum(self._reserved.values())
        self._reserved.clear()

    @property
    def num_in_flight(self) -> int:
        """Number of requests that are sent and have not ended."""
        return len(self._reserved)

    def _add_line(self, line: dict[str, Any]) -> None:
        """Count a stored line of requests.jsonl."""
        if line["event"] == SENT:
            self._add_sent(line)
        elif line["event"] == RETRY:
            self.refused.clear()
        else:
            self._add_failed(line)

    def send(self, image: str, *, input_tokens: int, answer_tokens: int) -> int:
        """Count a request about an image, on disk, before it is sent; return its number.

        input_tokens: an estimate. answer_tokens: the most that the answer may have. Both are raised
        to the largest number that the endpoint has counted so far. BudgetSpentError, and nothing is
        counted, if the request would exceed a budget. With a budget of tokens there are at most as many
        requests at a time as there are answers, and at least one, so that the endpoint counts the
        tokens of a few before there are many.
        """
        tokens = max(input_tokens, self._largest_input)
        tokens += max(answer_tokens, self._largest_output)
        if self.max_requests is not None and self.num_requests >= self.max_requests:
            raise BudgetSpentError(
                f"--max-requests={self.max_requests:,}: all are sent"
            )
        if self.max_tokens is not None:
            in_flight = sum(self._reserved.values())
            left = self.max_tokens - self.spent_tokens - in_flight
            is_early = self.num_in_flight >= max(1, len(self.answers))
            if tokens > left or is_early:
                kind = TokensReservedError if in_flight else BudgetSpentError
                raise kind(
                    f"--max-tokens={self.max_tokens:,}: {self.spent_tokens:,} are spent, and the "
                    f"next request may take {tokens:,}"
                )
        line = {
            "event": SENT,
            "request": self.num_requests + 1,
            "image": image,
            "time": time.time(),
            "tokens": tokens,
        }
        self._requests.append(line)
        self._add_sent(line)
        return line["request"]

    def fail(
        self,
        request: int,
        *,
        image: str,
        is_charged: bool,
        reason: str,
        refused: Mapping[str, Any] | None = None,
    ) -> None:
        """Store that a request failed.

        is_charged: False if it can have cost no tokens. refused: further entries of the line, if
        the endpoint refuses this image; None for another failure.
        """
        line = {
            "event": FAILED if refused is None else REFUSED,
            "request": request,
            "image": image,
            "time": time.time(),
            "tokens": self._reserved.get(request, 0) if is_charged else 0,
            "reason": reason,
            **(refused or {}),
        }
        self._requests.append(line)
        self._add_failed(line)

    def retry_refused(self) -> None:
        """Store that the refused images are to be asked about again."""
        if self.refused:
            self._requests.append({"event": RETRY, "time": time.time()})
            self.refused.clear()

    def answer(self, request: int, image: str, content: Mapping[str, Any]) -> None:
        """Store the answer to a request.

        content: entries beside "request" and "image". total_tokens, or else the sum of
        prompt_tokens and completion_tokens, are the tokens of the request; if the endpoint does
        not count them, or counts none for an answer, the reserved tokens count.
        """
        line = {"request": request, "image": image, "time": time.time(), **content}
        counted = _counted_tokens(content)
        is_counted = counted is not None
        line["tokens"] = counted if is_counted else self._reserved.get(request, 0)
        self._answers.append(line)
        self._add_answer(line)

    def _add_sent(self, line: Mapping[str, Any]) -> None:
        """Count a request that is sent."""
        self.num_requests += 1
        self.last_sent = max(self.last_sent, line["time"])
        self._reserved[line["request"]] = line["tokens"]

    def _add_failed(self, line: dict[str, Any]) -> None:
        """Count the tokens of a request that failed, and keep the refusal of its image."""
        self._end(line["request"], line["tokens"])
        if line["event"] == REFUSED:
            self.refused[line["image"]] = line

    def _add_answer(self, line: dict[str, Any]) -> None:
        """Count the tokens of an answer, and keep the answer."""
        self._end(line["request"], line["tokens"])
        num_input = line.get("prompt_tokens") or 0
        num_output = line["tokens"] - num_input if _counted_tokens(line) else 0
        self._largest_input = max(self._largest_input, num_input)
        self._largest_output = max(self._largest_output, num_output)
        self.answers.setdefault(line["image"], line)
        self.refused.pop(line["image"], None)

    def _end(self, request: int, tokens: int) -> None:
        """Count the tokens of a request that has ended."""
        self._reserved.pop(request, None)
        self.spent_tokens += tokens

    def close(self) -> None:
        """Close both files."""
        self._requests.close()
        self._answers.close()


def has_answers(folder: str) -> bool:
    """Return True if a folder has a stored answer."""
    return bool(_Lines(os.path.join(folder, ANSWERS)).read(repair=False))


def _counted_tokens(content: Mapping[str, Any]) -> int | None:
    """Return the tokens of a request as the endpoint counts them; None if it does not.

    The total may exceed the sum of both counts, where an endpoint does not count hidden reasoning as
    a part of the answer.
    """
    counts = content.get("prompt_tokens"), content.get("completion_tokens")
    total = content.get("total_tokens")
    is_free = content.get("finish_reason") == "content_filter" and total == 0
    if None in counts:
        return total or None
    return max(sum(counts), total or 0) or (0 if is_free else None)


class _Lines:
    """A file of JSON objects, a line each, that only grows."""

    def __init__(self, path: str):
        self._path = path
        self._file = -1  # Opened by the first `append`.

    def read(self, *, repair: bool) -> list[dict[str, Any]]:
        """Return the objects of the file without a last line that is cut off.

        repair: True: also remove this line from the file.
        """
        if not os.path.exists(self._path):
            return []
        with open(self._path, "rb") as file:
            content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        objects = []
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                objects.append(json.loads(line))
            except ValueError:
                where = f"{self._path}:{number}"
                errors.refuse(
                    where, "be JSON", remedy="restore it, or name another --out"
                )
        if repair and len(whole) < len(content):
            os.truncate(self._path, len(whole))
        return objects

    def append(self, line: Mapping[str, Any]) -> None:
        """Write an object and sync it to disk."""
        content = messages.to_json(line).encode() + b"\n"
        with files.translate_os_errors(self._path):
            if self._file < 0:
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
                self._file = os.open(self._path, flags, 0o644)
            size = os.fstat(self._file).st_size
            try:
                if os.write(self._file, content) < len(content):
                    raise OSError("No space left on device")
                os.fsync(self._file)
            except OSError:
                os.ftruncate(self._file, size)
                raise

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
