"""One request to a chat endpoint, by the package openai: an answer, or a failure.

The package's own retries and redirects are off, so that every request is counted before it is
sent. The key is in no message: messages are built here, without the package's errors, and the
key is replaced in all texts that an endpoint sends.
"""

import asyncio
import contextlib
import dataclasses
import os
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self

from jbias.asking import keys, pacing
from jbias.runtime import files, messages

if TYPE_CHECKING:
    import openai

_LONGEST_REASON = 300
_LONGEST_NAME = 200  # Of a model, an id or a reason to finish.
# The package sends these to any endpoint.
_OPENAI_VARIABLES = (
    "OPENAI_ADMIN_KEY",
    "OPENAI_CUSTOM_HEADERS",
    "OPENAI_ORG_ID",
    "OPENAI_PROJECT_ID",
)

_TEXT_TYPES = ("text", "output_text")  # Of parts of an answer.

# Statuses of a proxy that gives up on a server, which may have done the work.
_CHARGED = (502, 504, 524)

# What to do about a failed request.
BUSY = "busy"  # Ask again after a wait; all requests wait.
RETRY = "retry"  # Ask again after a wait.
IMAGE = "image"  # Do not ask about this image again.
STOP = "stop"  # Ask nothing more.


class Failure(Exception):
    """A request without an answer; the text is one line without the key."""

    def __init__(
        self,
        reason: str,
        *,
        action: str,
        kind: str,
        wait_seconds: float | None = None,
        is_charged: bool = False,
    ):
        super().__init__(reason)
        self.action = action  # BUSY, RETRY, IMAGE or STOP.
        self.kind = kind  # For counts, such as "429" or "timeout".
        self.wait_seconds = wait_seconds  # As the endpoint asks; None if it does not.
        self.is_charged = is_charged  # False if it can have cost no tokens.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """The request that is sent about every image, without the image and the question.

    temperature: None for the endpoint's own. detail: "auto" is not sent. extra: further fields of
    the body.
    """

    model: str
    temperature: float | None
    answer_tokens: int
    detail: str
    extra: Mapping[str, Any]

    def body(self, text: str, address: str, *, endpoint: str) -> dict[str, Any]:
        """Return the fields of a request, except `extra`; address: data address of the image."""
        picture = {"url": address}
        if self.detail != "auto":
            picture["detail"] = self.detail
        content = [
            {"type": "text", "text": text},
            {"type": "image_url", "image_url": picture},
        ]
        fields = {
            "model": self.model,
            "messages": [{"role": "user", "content": content}],
        }
        if self.temperature is not None:
            fields["temperature"] = self.temperature
        # OpenAI's newer models refuse max_tokens; other servers may not know the newer name.
        is_openai = keys.is_openai(endpoint)
        limit = "max_completion_tokens" if is_openai else "max_tokens"
        if not {"max_tokens", "max_completion_tokens"} & {*self.extra}:
            fields[limit] = self.answer_tokens
        return fields


class Client:
    """A client of one endpoint. Use as an asynchronous context manager.

    timeout_seconds: of a whole request, also if its reply comes letter by letter.
    """

    def __init__(self, endpoint: str, key: keys.Key, *, timeout_seconds: float):
        files.require_package("jbias ask", "a chat endpoint", "openai", "ask")
        import openai

        self._key, self._timeout_seconds = key, timeout_seconds
        self.endpoint = endpoint
        # No proxy gets the requests to this machine.
        http_client = openai.DefaultAsyncHttpxClient(
            follow_redirects=False, trust_env=not keys.is_loopback(endpoint)
        )
        hidden = () if keys.is_openai(endpoint) else _OPENAI_VARIABLES
        with _without_variables(hidden):
            self._client = openai.AsyncOpenAI(
                api_key=key.reveal(),
                base_url=endpoint,
                timeout=timeout_seconds,
                max_retries=0,
                http_client=http_client,
            )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def ask(self, request: Request, text: str, address: str) -> dict[str, Any]:
        """Return the answer to one request; Failure if there is none.

        The answer has "response" (the text; that of a refusal if there is no other), "refusal",
        "finish_reason", "served_model", "prompt_tokens", "completion_tokens", "total_tokens",
        "fingerprint" and "id", None where the endpoint does not say. No text has the key.
        """
        import openai

        body = request.body(text, address, endpoint=self.endpoint)
        try:
            completion = await asyncio.wait_for(
                self._client.chat.completions.create(
                    **body, extra_body=dict(request.extra) or None
                ),
                timeout=self._timeout_seconds,
            )
        # `from None`: the errors of the package may have the endpoint's text, with the key.
        except openai.APIStatusError as error:
            answer = _filtered(error)
            if answer is None:
                raise self._of_status(error) from None
            return answer
        except (openai.APITimeoutError, TimeoutError):
            seconds = f"{self._timeout_seconds:g}"
            raise Failure(
                f"no whole reply within --timeout={seconds} seconds",
                action=RETRY,
                kind="timeout",
                is_charged=True,
            ) from None
        except openai.APIConnectionError as error:
            raise self._of_connection(error) from None
        except (openai.OpenAIError, ValueError, TypeError, AttributeError) as error:
            raise self._no_completion(str(error)) from None
        return self._key.redact_all(self._read(completion))

    def _read(self, completion: "openai.types.chat.ChatCompletion") -> dict[str, Any]:
        """Return the answer of a reply; Failure for a reply without one."""
        fault = getattr(completion, "error", None)  # OpenRouter, with the status 200.
        if isinstance(fault, Mapping):
            code = fault.get("code")
            status = code if isinstance(code, int) else 500
            raise self._failure(status, str(fault.get("message", "")), str(code), None)
        choices = getattr(completion, "choices", None)
        if not isinstance(choices, list) or not choices:
            raise self._no_completion("without choices")
        fault = getattr(choices[0], "error", None)
        if fault or choices[0].finish_reason == "error":
            raise self._broken_answer(fault)
        message = getattr(choices[0], "message", None)
        if message is None:
            raise self._no_completion("without a message")
        content, refusal = message.content, getattr(message, "refusal", None)
        if isinstance(content, list):
            content = _join_text(content)
        usage = completion.usage
        return {
            "response": str(content or refusal or ""),
            "refusal": str(refusal) if refusal else None,
            "finish_reason": self._name(choices[0].finish_reason),
            "served_model": self._name(completion.model),
            "prompt_tokens": _count(getattr(usage, "prompt_tokens", None)),
            "completion_tokens": _count(getattr(usage, "completion_tokens", None)),
            "total_tokens": _count(getattr(usage, "total_tokens", None)),
            "fingerprint": self._name(completion.system_fingerprint),
            "id": self._name(completion.id),
        }

    def _broken_answer(self, fault: object) -> Failure:
        """Return the failure for an answer that an error has ended, as OpenRouter sends it.

        fault: the error in the answer; None for none. The answer may have words, and tokens.
        """
        fields = fault if isinstance(fault, Mapping) else {"message": fault or ""}
        text = str(fields.get("message", ""))
        return Failure(
            f"the answer broke off ({self._one_line(text) or 'no reason'})",
            action=RETRY,
            kind="broken answer",
            is_charged=True,
        )

    def _name(self, value: object) -> str | None:
        """Return a short text of a reply without the key, cut after that; None for none."""
        return None if value is None else self._key.redact(str(value))[:_LONGEST_NAME]

    def _no_completion(self, text: str) -> Failure:
        """Return the failure for a reply that is no chat completion."""
        reason = self._one_line(text)
        return Failure(
            f"the reply is no chat completion ({reason})",
            action=RETRY,
            kind="no completion",
            is_charged=True,
        )

    def _of_connection(self, error: Exception) -> Failure:
        """Return the failure for a connection that was refused or broken."""
        cause = error.__cause__ or error
        # httpx's names: the connection was never made, so that nothing was sent.
        is_unsent = type(cause).__name__ in ("ConnectError", "ConnectTimeout")
        reason = self._one_line(str(cause) or type(cause).__name__)
        return Failure(
            f"{self.endpoint} cannot be reached ({reason})"
            if is_unsent
            else f"the connection broke ({reason})",
            action=RETRY,
            kind="not reached" if is_unsent else "broken reply",
            is_charged=not is_unsent,
        )

    def _of_status(self, error: "openai.APIStatusError") -> Failure:
        """Return the failure for an HTTP status."""
        body = error.body if isinstance(error.body, Mapping) else {}
        text = str(body.get("message") or error.message)
        headers = {
            name.lower(): value for name, value in error.response.headers.items()
        }
        wait_seconds = pacing.retry_after(headers, time_now=time.time())
        return self._failure(
            error.status_code, text, str(body.get("code")), wait_seconds
        )

    def _failure(
        self, status: int, text: str, code: str, wait_seconds: float | None
    ) -> Failure:
        """Return the failure for a status; text, code: of the endpoint's error."""
        return Failure(
            f"{status}: {self._one_line(text)}",
            action=action_of(status, code, asks_to_wait=wait_seconds is not None),
            kind=str(status),
            wait_seconds=wait_seconds,
            is_charged=status in _CHARGED,
        )

    def _one_line(self, text: str) -> str:
        """Return a short text of an endpoint on one line, without the key."""
        line = messages.one_line(self._key.redact(text))
        return line[:_LONGEST_REASON]


def action_of(status: int, code: str = "", *, asks_to_wait: bool = False) -> str:
    """Return what to do about an HTTP status: BUSY, RETRY, IMAGE or STOP.

    code: the endpoint's code of the error, such as "insufficient_quota", after which no wait helps.
    asks_to_wait: True if the reply has the header Retry-After.
    """
    if status == 429:
        return STOP if code == "insufficient_quota" else BUSY
    if status == 503 and asks_to_wait:
        return BUSY
    if status in (408, 409, 425) or status >= 500:
        return RETRY
    # A wrong key, address or model is wrong for all images.
    is_general = status in (401, 402, 403, 404, 405) or status < 400
    return STOP if is_general else IMAGE


@contextlib.contextmanager
def _without_variables(names: tuple[str, ...]) -> Iterator[None]:
    """Remove environment variables in the context."""
    values = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(values)


def _join_text(content: list[Any]) -> str:
    """Return the text of an answer in parts, without parts that are reasoning."""
    texts = [
        str(part.get("text", ""))
        for part in content
        if isinstance(part, Mapping) and part.get("type", "text") in _TEXT_TYPES
    ]
    return "".join(texts)


def _filtered(error: "openai.APIStatusError") -> dict[str, Any] | None:
    """Return a refusal as an answer, if a filter of contents refused the request; else None."""
    body = error.body if isinstance(error.body, Mapping) else {}
    code = str(body.get("code"))
    if error.status_code != 400 or code not in (
        "content_filter",
        "content_policy_violation",
    ):
        return None
    return {
        "response": "",
        "refusal": code,
        "finish_reason": "content_filter",
        "served_model": None,
        "prompt_tokens": 0,
        "completion_tokens": 0,
        "total_tokens": 0,
        "fingerprint": None,
        "id": None,
    }


def _count(value: object) -> int | None:
    """Return a number of tokens; None for none."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and value >= 0 else None
