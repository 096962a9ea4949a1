"""A store on this machine for tests: the package gcp-storage-emulator, and conditions.

The emulator ignores `ifGenerationMatch` and names no generation in what it downloads, which
Google Cloud Storage documents and does: both are added here, before its own handlers. What
it does beyond, and how real ones lag, limit rates or ask for rights, it cannot tell.

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
    """Which object a request is about."""
    if "object_id" in request.params:
        return request.params["object_id"]
    if "name" in request.query:
        return request.query["name"][0]
    return request.data["meta"]["name"]


def _conditional(handler: Callable) -> Callable:
    """A handler that asks first whether the object is the one that is meant."""

    @functools.wraps(handler)
    def handled(request, response, held, *args, **kwargs):
        wanted = request.query.get("ifGenerationMatch")
        bucket = request.params.get("bucket_name")
        if "object_id" in request.params or handler is objects.insert:
            held.before(request.method, _named(request))
            about = held.objects.get(bucket, {}).get(_named(request))
            generation = about["generation"] if about else "0"
            if wanted and wanted[0] != generation:
                response.status = http.HTTPStatus.PRECONDITION_FAILED
                response.json({"error": {"code": 412, "message": "conditionNotMet"}})
                return None
            if request.method == "GET" and about:
                response["X-Goog-Generation"] = generation
        return handler(request, response, held, *args, **kwargs)

    return handled


class _Handler(server.RequestHandler):
    def log_message(self, *args) -> None:
        pass


class _Server(http.server.HTTPServer):
    def handle_error(self, *args) -> None:
        """Who asked may be gone: killed, or content with another answer."""


class Store:
    """A server that can be stopped and started again with what it holds."""

    def __init__(self, port: int = 0):
        self.held = storage.Storage(use_memory_fs=True)
        buckets.create_bucket(BUCKET, self.held)
        self.held.before = lambda method, name: None  # Hears of each request first.
        self.port, self._http = port, None
        self.start()

    @property
    def env(self) -> dict[str, str]:
        """What makes gcsfs and tensorstore use it."""
        url = f"http://127.0.0.1:{self.port}"
        return {"STORAGE_EMULATOR_HOST": url, "TENSORSTORE_GCS_HTTP_URL": url}

    def start(self) -> None:
        made = functools.partial(_Handler, self.held)
        self._http = _Server(("127.0.0.1", self.port), made)
        self.port = self._http.server_address[1]
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def names(self, start: str = "") -> list[str]:
        """All objects that begin so."""
        return sorted(
            n for n in self.held.objects.get(BUCKET, {}) if n.startswith(start)
        )

    def content(self, name: str) -> bytes:
        return self.held.get_file(BUCKET, name)


@contextlib.contextmanager
def serving() -> Iterator[Store]:
    """A store while the context lasts."""
    logging.getLogger("gcp_storage_emulator").setLevel(logging.CRITICAL)
    for name in ("api", "api.object", "gcp_storage_emulator.server"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    known = server.HANDLERS
    server.HANDLERS = tuple(
        (regex, {method: _conditional(one) for method, one in of.items()})
        for regex, of in known
    )
    store = Store()
    try:
        yield store
    finally:
        store.stop()
        server.HANDLERS = known
