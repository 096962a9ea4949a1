"""A local model hub for tests, which answers the requests of huggingface_hub.

Statuses and headers are those of huggingface.co, as huggingface_hub reads them: `ETag` (the
SHA-256 of a large file), `X-Repo-Commit`, and `X-Error-Code` of refusals.
"""

import contextlib
import hashlib
import http.server
import re
import threading
from collections.abc import Iterator

COMMIT = "0123456789abcdef0123456789abcdef01234567"
_FILE_PATH = re.compile(r"/([\w.-]+/[\w.-]+)/resolve/([^/]+)/([\w.-]+)")


class Hub(http.server.ThreadingHTTPServer):
    """files: content by (repository, file), all of COMMIT. requests: all, in order.

    gated: repositories that are. status: that of every answer, if not 0. commit: the one
    that answers name. short: bytes that a download lacks; dropped: that it lacks because
    the connection breaks, then and at every further try. headers: that replace those of
    a file, or leave them out (None). extra: bytes behind a file. busy: how many requests
    are answered by 429, with `retry_after`. drip: seconds between single bytes. header_drip:
    seconds between single bytes of an endless header.
    """

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[tuple[str, str], bytes] = {}
        self.requests: list[str] = []
        self.gated: set[str] = set()
        self.status, self.commit, self.short, self.dropped = 0, COMMIT, 0, 0
        self.headers: dict[str, str | None] = {}
        self.extra, self.busy, self.retry_after, self.drip = b"", 0, "0", 0.0
        self.header_drip = 0.0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, *args) -> None:
        """Ignore errors: tests break connections."""


class _Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        hub = self.server
        hub.requests.append(f"{self.command} {self.path}")
        while hub.header_drip:
            self.wfile.write(b"H")
            threading.Event().wait(hub.header_drip)
        if hub.busy:
            hub.busy -= 1
            return self._refuse(429)
        match = _FILE_PATH.fullmatch(self.path)
        if match is None:
            return self._refuse(404)
        repository, commit, name = match.groups()
        if hub.status:
            return self._refuse(hub.status)
        if repository in hub.gated:
            return self._refuse(403, "GatedRepo", "Access to it is restricted.")
        if repository not in {known for known, _ in hub.files}:
            return self._refuse(401, "RepoNotFound", "Invalid username or password.")
        if commit != COMMIT:
            return self._refuse(404, "RevisionNotFound", "Invalid rev id.")
        if (repository, name) not in hub.files:
            return self._refuse(404, "EntryNotFound", "Entry not found")
        content = hub.files[repository, name]
        if body and hub.dropped and "Range" in self.headers:
            self.close_connection = True  # Without a word.
            return None
        sent = content[: len(content) - hub.short] if body else content
        self.send_response(302 if "Location" in hub.headers else 200)
        headers = {
            "ETag": f'"{hashlib.sha256(content).hexdigest()}"',
            "X-Repo-Commit": hub.commit,
            "Content-Length": str(len(sent)),
        }
        for key, value in (headers | hub.headers).items():
            if value is not None:
                self.send_header(key, value)
        self.end_headers()
        self.close_connection = True
        if body and hub.drip:
            for number in sent:
                self.wfile.write(bytes([number]))
                threading.Event().wait(hub.drip)
        elif body:
            self.wfile.write(sent[: len(sent) - hub.dropped] + hub.extra)
        return None

    def _refuse(self, status: int, code: str = "", message: str = "") -> None:
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
            self.send_header("X-Error-Message", message)
        if status == 429:
            self.send_header("Retry-After", self.server.retry_after)
        if code == "EntryNotFound":
            self.send_header("X-Repo-Commit", self.server.commit)
        self.send_header("Content-Length", "0")
        self.end_headers()


@contextlib.contextmanager
def running() -> Iterator[Hub]:
    """Yield a running hub; stop it at the end of the context."""
    with Hub() as hub:
        thread = threading.Thread(target=hub.serve_forever, daemon=True)
        thread.start()
        yield hub
        hub.shutdown()
        thread.join()
