"""A local chat endpoint for tests, which answers the requests of the package openai.

The fields of requests, replies and errors are those of OpenAI's API, as the package reads them.
"""

import base64
import collections
import dataclasses
import functools
import hashlib
import http.server
import json
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

_OPTION = re.compile(r"^([A-Z])\. (.+)$", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Reply:
    """The reply to one request.

    text: of the answer; the error's message for a status other than 200. missing: bytes that the
    reply lacks when the connection ends. drip_seconds: time between single bytes. wait_seconds:
    before the first byte. body: in place of a completion, if not None. fields: of the completion,
    in place of the usual ones; message: of its message.
    """

    text: str | None = ""
    finish_reason: str = "stop"
    refusal: str | None = None
    status: int = 200
    code: str | None = None
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    missing: int = 0
    drip_seconds: float = 0.0
    wait_seconds: float = 0.0
    body: bytes | None = None
    tokens: tuple[int, int] | None = (100, 5)  # Of the question and of the answer.
    fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    message: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Asked:
    """A request as it arrived; name: of its image."""

    name: str
    text: str
    options: Mapping[str, str]
    time: float
    fields: Mapping[str, Any]
    key: str
    headers: Mapping[str, str]


class ChatServer(http.server.ThreadingHTTPServer):
    """A server at `url`, in a thread of its own; use as a context manager.

    names: by the SHA-256 of an image file. planned: replies to the first requests about an image.
    answer: returns the text of all other replies. requests: all, in order. num_answered: whole
    replies with the status 200, by image. num_open: requests that are open, and their maximum.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(
        self,
        images: Mapping[str, bytes],
        *,
        answer: Callable[[Asked], "str | Reply"] = lambda question: "none of these",
        planned: Mapping[str, Sequence[Reply]] | None = None,
    ):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.names = {
            hashlib.sha256(content).hexdigest(): name
            for name, content in images.items()
        }
        self.answer = answer
        self.planned = {name: list(plan) for name, plan in (planned or {}).items()}
        self.requests: list[Asked] = []
        self.num_answered: collections.Counter[str] = collections.Counter()
        self.num_open = self.max_open = 0
        self.mutex = threading.Lock()
        self.url = f"http://127.0.0.1:{self.server_port}/v1"

    def __enter__(self) -> Self:
        serve = functools.partial(self.serve_forever, poll_interval=0.01)
        threading.Thread(target=serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, *_: object) -> None:
        """Print nothing: clients that are killed break their connections."""

    @property
    def counts(self) -> collections.Counter[str]:
        """Number of requests by image."""
        return collections.Counter(question.name for question in self.requests)

    def reply_to(self, question: Asked) -> Reply:
        """Count a request, and return its reply."""
        with self.mutex:
            self.requests.append(question)
            plan = self.planned.get(question.name)
            reply = plan.pop(0) if plan else self.answer(question)
        return Reply(reply) if isinstance(reply, str) else reply


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def do_POST(self) -> None:
        """Answer a request about an image."""
        server: ChatServer = self.server
        size = int(self.headers["Content-Length"])
        fields = json.loads(self.rfile.read(size))
        if self.path != "/v1/chat/completions":
            self._send(404, {"error": {"message": f"no {self.path}"}}, Reply())
            return
        question = self._read(fields)
        with server.mutex:
            server.num_open += 1
            server.max_open = max(server.max_open, server.num_open)
        try:
            reply = server.reply_to(question)
            time.sleep(reply.wait_seconds)
            if reply.status != 200:
                error = {"message": reply.text, "code": reply.code, "type": "error"}
                self._send(reply.status, {"error": error}, reply)
                return
            self._send(200, _completion(fields["model"], reply), reply)
            with server.mutex:
                server.num_answered[question.name] += not reply.missing
        finally:
            with server.mutex:
                server.num_open -= 1

    def _read(self, fields: dict[str, Any]) -> Asked:
        """Return a request."""
        (message,) = fields["messages"]
        text, picture = message["content"]
        content = base64.b64decode(picture["image_url"]["url"].partition("base64,")[2])
        return Asked(
            name=self.server.names[hashlib.sha256(content).hexdigest()],
            text=text["text"],
            options=dict(_OPTION.findall(text["text"])),
            time=time.time(),
            fields=fields,
            key=self.headers.get("Authorization", ""),
            headers=dict(self.headers),
        )

    def _send(self, status: int, content: Mapping[str, Any], reply: Reply) -> None:
        """Send a reply, whole or in part, quickly or slowly."""
        body = json.dumps(content).encode() if reply.body is None else reply.body
        self.send_response(status)
        is_json = reply.body is None
        self.send_header("Content-Type", "application/json" if is_json else "text/html")
        self.send_header("Content-Length", str(len(body)))
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.end_headers()
        sent = body[: len(body) - reply.missing]
        step = 1 if reply.drip_seconds else len(sent)
        for start in range(0, len(sent), max(step, 1)):
            self.wfile.write(sent[start : start + step])
            self.wfile.flush()
            time.sleep(reply.drip_seconds)
        if reply.missing:
            self.close_connection = True


def _completion(model: str, reply: Reply) -> dict[str, Any]:
    """Return a chat completion."""
    message = {"role": "assistant", "content": reply.text, "refusal": reply.refusal}
    message |= reply.message
    choice = {"index": 0, "message": message, "finish_reason": reply.finish_reason}
    completion = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": f"{model}-2024",
        "choices": [choice],
        "system_fingerprint": "fp_1",
    }
    if reply.tokens is not None:
        num_input, num_output = reply.tokens
        completion["usage"] = {
            "prompt_tokens": num_input,
            "completion_tokens": num_output,
            "total_tokens": num_input + num_output,
        }
    return completion | dict(reply.fields)


def letter_of(question: Asked, name: str) -> str:
    """Return the letter of a class in the options of a question."""
    (letter,) = (key for key, value in question.options.items() if value == name)
    return letter
