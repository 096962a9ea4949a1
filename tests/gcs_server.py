"""A local Google Cloud Storage server for tests: gcp-storage-emulator with preconditions.

The emulator ignores `ifGenerationMatch` and sends no generation with downloads, although
Google Cloud Storage documents both: they are added here, before the emulator's handlers.
Latency, rate limits and permissions of the real service are not emulated.
"""

import contextlib
import functools
import http
import http.server
import logging
import threading
from collections.abc import Callable, Iterator

from gcp_storage_emulator import server, storage
from gcp_storage_emulator.handlers import buckets, objects

BUCKET = "bucket"


def _named(request) -> str:
    """Return the name of the object that a request refers to."""
    if "object_id" in request.params:
        return request.params["object_id"]
    if "name" in request.query:
        return request.query["name"][0]
    return request.data["meta"]["name"]


def _conditional(handler: Callable) -> Callable:
    """Return a handler that first checks the generation of the object."""

    @functools.wraps(handler)
    def check_then_handle(request, response, stored, *args, **kwargs):
        required = request.query.get("ifGenerationMatch")
        bucket = request.params.get("bucket_name")
        if "object_id" in request.params or handler is objects.insert:
            stored.before_request(request.method, _named(request))
            metadata = stored.objects.get(bucket, {}).get(_named(request))
            generation = metadata["generation"] if metadata else "0"
            if required and required[0] != generation:
                response.status = http.HTTPStatus.PRECONDITION_FAILED
                response.json({"error": {"code": 412, "message": "conditionNotMet"}})
                return None
            if request.method == "GET" and metadata:
                response["X-Goog-Generation"] = generation
        return handler(request, response, stored, *args, **kwargs)

    return check_then_handle


class _Handler(server.RequestHandler):
    def log_message(self, *args) -> None:
        pass


class _Server(http.server.HTTPServer):
    def handle_error(self, *args) -> None:
        """Ignore errors: clients may close a connection early."""


class Store:
    """A server that can be stopped and started again with its contents."""

    def __init__(self, port: int = 0):
        self.stored = storage.Storage(use_memory_fs=True)
        buckets.create_bucket(BUCKET, self.stored)
        # Called before each request.
        self.stored.before_request = lambda method, name: None
        self.port, self._http = port, None
        self.start()

    @property
    def env(self) -> dict[str, str]:
        """Return the environment variables that make gcsfs and tensorstore use this server."""
        url = f"http://127.0.0.1:{self.port}"
        return {"STORAGE_EMULATOR_HOST": url, "TENSORSTORE_GCS_HTTP_URL": url}

    def start(self) -> None:
        handler = functools.partial(_Handler, self.stored)
        self._http = _Server(("127.0.0.1", self.port), handler)
        self.port = self._http.server_address[1]
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def names(self, start: str = "") -> list[str]:
        """Return the names of all objects that begin with `start`."""
        return sorted(
            n for n in self.stored.objects.get(BUCKET, {}) if n.startswith(start)
        )

    def content(self, name: str) -> bytes:
        return self.stored.get_file(BUCKET, name)


@contextlib.contextmanager
def serving() -> Iterator[Store]:
    """Yield a running store; stop it at the end of the context."""
    logging.getLogger("gcp_storage_emulator").setLevel(logging.CRITICAL)
    for name in ("api", "api.object", "gcp_storage_emulator.server"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    handlers = server.HANDLERS
    server.HANDLERS = tuple(
        (
            regex,
            {method: _conditional(handler) for method, handler in by_method.items()},
        )
        for regex, by_method in handlers
    )
    store = Store()
    try:
        yield store
    finally:
        store.stop()
        server.HANDLERS = handlers
