"""Fetch weights from the Hugging Face Hub, hf:OWNER/NAME@COMMIT; needs the extra `hub`.

Only commits are accepted: their files never change, while branches and tags can move. Files
are stored in huggingface_hub's own cache (HF_HOME), and are read from there without a network.
"""

import contextlib
import errno
import hashlib
import os
import pathlib
import re
import shutil
import threading
import time
import urllib.parse
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from typing import Any, NamedTuple

import jbias
from jbias import numerals
from jbias.runtime import files, messages

_PREFIX = "hf:"
FILES = ("model.safetensors", "pytorch_model.bin")  # The first existing file is used.
_PART = r"([\w-][\w.-]*)"
_NAME = re.compile(rf"{_PREFIX}{_PART}/{_PART}(?:@(.*))?")
_COMMIT, _SHA256 = re.compile("[0-9a-f]{40}"), re.compile("[0-9a-f]{64}")
_MAX_LETTERS = (
    200  # Of a server's text in a message: servers may answer with long pages.
)


class Repository(NamedTuple):
    """A repository on the hub at one commit, named hf:OWNER/NAME@COMMIT."""

    owner: str
    name: str
    commit: str

    @property
    def id(self) -> str:
        """The name on the hub, OWNER/NAME."""
        return f"{self.owner}/{self.name}"

    @property
    def page(self) -> str:
        """The address of the repository's page."""
        return f"{_endpoint()}/{self.id}"

    @property
    def manual_download(self) -> str:
        """Advice for a machine that cannot download: fetch the file elsewhere."""
        url = f"{self.page}/resolve/{self.commit}/{FILES[0]}"
        return f"fetch {url} elsewhere and give the path of that file"


def _endpoint() -> str:
    """Return the hub's address: HF_ENDPOINT if set, else https://huggingface.co."""
    return (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")


def _check_endpoint() -> None:
    """Raise ValueError unless HF_ENDPOINT is an http address.

    Other values would crash huggingface_hub.
    """
    endpoint = _endpoint()
    try:
        url = urllib.parse.urlsplit(endpoint)
        is_address = url.scheme in ("http", "https") and bool(url.hostname)
        is_address = is_address and url.port != 0
    except ValueError:  # The port is not a number, or a bracket is not closed.
        is_address = False
    if not is_address:
        raise ValueError(
            f"HF_ENDPOINT: must be an address such as https://huggingface.co, got "
            f"{endpoint!r}; correct it, or leave it unset"
        )


def is_hub(path: str) -> bool:
    """Return True if a path starts with hf:, which names weights on the hub."""
    return path.startswith(_PREFIX)


def parse(name: str, where: str) -> Repository:
    """Return the repository and commit in a name hf:OWNER/NAME@COMMIT.

    where: start of the error message, such as "--checkpoint". ValueError for another form of
    name, and unless the commit has all its digits.
    """
    match = _NAME.fullmatch(name)
    if not match:
        raise ValueError(f"{where}: must be hf:OWNER/NAME@COMMIT, got {name!r}")
    owner, repository_name, commit = match.groups("")
    repository = Repository(owner, repository_name, commit)
    if not _COMMIT.fullmatch(commit):
        raise ValueError(
            f"{where}: hf:{repository.id} must be pinned by a commit of 40 hexadecimal "
            f"digits, got {commit!r}: a branch or tag can move, so results would not be "
            f"reproducible; write hf:{repository.id}@COMMIT, with a commit from "
            f"{repository.page}/commits/main"
        )
    return repository


class _Refusal(Exception):
    """Raised if a file cannot be downloaded; the text has the reason and a remedy."""


class _Unreached(Exception):
    """Raised if no server answers; the text has the reason."""


def fetch(name: str, where: str) -> str:
    """Return the path of the weights in the cache; download them if they are missing.

    The weights are the first of FILES that the commit has. name: hf:OWNER/NAME@COMMIT. where:
    start of the error message, such as "--checkpoint". ValueError of one line if the weights
    cannot be downloaded or a cached file is damaged.
    """
    repository = parse(name, where)
    _check_endpoint()
    try:
        import huggingface_hub
    except ImportError:
        raise ValueError(
            f"{where}: {name} needs the package huggingface_hub, which is not installed; "
            f"pip install 'jbias[hub]', or {repository.manual_download}"
        ) from None
    unreached_reason = ""
    for file in FILES:
        cached = huggingface_hub.try_to_load_from_cache(
            repo_id=repository.id, filename=file, revision=repository.commit
        )
        if isinstance(cached, str):
            return _check(cached, repository, where)
        is_known_missing = cached is not None
        if is_known_missing or unreached_reason:
            continue
        try:
            path = _download(repository, file)
        except _Unreached as error:
            unreached_reason = str(error)
        except _Refusal as error:
            raise ValueError(f"{where}: {name} {error}") from error
        except OSError as error:
            reason = files.system_message(error)
            raise ValueError(
                f"{where}: {name} could not be saved: {_cache_root()} cannot be written "
                f"({reason}); free space there, or set HF_HOME to another folder"
            ) from error
        else:
            if path:
                return _check(path, repository, where)
    if unreached_reason:
        raise ValueError(
            f"{where}: {name} is not in the cache and cannot be reached "
            f"({unreached_reason}); {repository.manual_download}"
        )
    raise ValueError(
        f"{where}: {name} has neither {' nor '.join(FILES)}; fetch its file of weights from "
        f"{repository.page}/tree/{repository.commit} and give the path of that file"
    )


LIMIT_VARIABLE = "JBIAS_HUB_GIB"  # The largest size of a file, in GiB.
DEFAULT_LIMIT_GIB = 20.0
_MAX_LIMIT_GIB = 10**6
_MAX_REDIRECTS = 5
# For servers that ask to wait.
_MAX_TRIES = 3
_MAX_WAIT_SECONDS = 60
_QUIET_SECONDS = 5.0  # Before the first progress line.
_LINE_SECONDS = 30.0  # Between further progress lines.
_HEADERS_SECONDS = 60.0  # For a connection and the headers of an answer.
# A download stops if fewer bytes per second arrive over this time.
_SLOW_SECONDS = 60.0
_MIN_BYTES_PER_SECOND = 1024
_SHA1 = re.compile("[0-9a-f]{40}")  # Digest of files that are not in Git LFS.


class _Body(NamedTuple):
    """The file that a server is about to send, according to its headers."""

    digest: str  # In hexadecimal: a SHA-256, or git's SHA-1 of a blob.
    size: int | None  # In bytes; None if the server does not send the size.


def _cache_root() -> str:
    """Return the folder of huggingface_hub's cache."""
    from huggingface_hub import constants

    return constants.HF_HUB_CACHE


def _limit_bytes() -> int:
    """Return the largest size of a file in bytes, from LIMIT_VARIABLE, which is in GiB.

    DEFAULT_LIMIT_GIB if the variable is not set; _Refusal if it is invalid.
    """
    text = os.environ.get(LIMIT_VARIABLE, "")
    try:
        limit = numerals.real(text) if text else DEFAULT_LIMIT_GIB
    except ValueError:
        limit = 0
    if not 0 < limit <= _MAX_LIMIT_GIB:
        raise _Refusal(
            f"cannot be fetched: {LIMIT_VARIABLE} must be a number of GiB above 0 and at "
            f"most {_MAX_LIMIT_GIB}, got {text!r}; correct it, or leave it unset"
        )
    return int(limit * 2**30)


def _download(repository: Repository, file: str) -> str:
    """Download a file of the commit into the cache; return its path.

    file: name in the repository. "" if the commit has no such file. _Refusal or _Unreached if
    the download fails, OSError if the file cannot be written. The checked headers belong to
    the answer that sends the file. After status 429 the request is repeated, up to
    `_MAX_TRIES` times in all.
    """
    limit = _limit_bytes()
    root = os.path.realpath(_cache_root())
    folder = os.path.join(root, f"models--{repository.owner}--{repository.name}")
    for attempt in range(_MAX_TRIES):
        with contextlib.ExitStack() as stack:
            response, headers = _request(repository, file, stack)
            status = response.status_code
            if status == 429:
                _wait(response, repository, is_last=attempt == _MAX_TRIES - 1)
                continue
            if status == 404 and headers.get("x-error-code") == "EntryNotFound":
                _note_absence(folder, repository=repository, file=file, root=root)
                return ""
            if status != 200:
                raise _error_of(status, headers, repository)
            body = _checked_body(response, headers, repository=repository, limit=limit)
            blob = _store(
                response, body, folder, root=root, repository=repository, limit=limit
            )
            return _link(blob, folder, repository=repository, file=file, root=root)
    raise AssertionError("the last attempt raises")


def _request(repository: Repository, file: str, stack: contextlib.ExitStack) -> Any:
    """Send a GET and follow redirects; return (open response, headers of the hub by name).

    The headers come from the hub's own answers, not from redirect targets. file: name in the
    repository. stack: closes all responses. _Refusal for a wrong redirect or too many,
    _Unreached if a server does not answer.
    """
    endpoint = urllib.parse.urlsplit(_endpoint())
    hub_origin = (endpoint.scheme, endpoint.netloc)
    url = f"{repository.page}/resolve/{repository.commit}/{file}"
    request_headers = _within_limit(_headers, waiting_for=endpoint.netloc)
    hub_headers: dict[str, str] = {}
    for _ in range(_MAX_REDIRECTS + 1):
        current = urllib.parse.urlsplit(url)
        response = _within_limit(
            lambda url=url: _open(url, request_headers), waiting_for=current.netloc
        )
        stack.callback(response.close)
        if (current.scheme, current.netloc) == hub_origin:
            hub_headers |= response.headers
        if response.status_code not in (301, 302, 303, 307, 308):
            return response, hub_headers
        location = response.headers.get("location", "")
        try:
            url = urllib.parse.urljoin(url, location)
            target = urllib.parse.urlsplit(url)
            is_address = bool(location) and (target.port is None or target.port > 0)
        except ValueError:  # An invalid port or host.
            is_address = False
        if not is_address:
            raise _Refusal(
                f"could not be fetched ({messages.one_line(_endpoint())} redirects to "
                f"{messages.one_line(location)[:_MAX_LETTERS]!r}, which is no address); "
                f"check HF_ENDPOINT, or {repository.manual_download}"
            )
        target_origin = (target.scheme, target.netloc)
        if target.scheme != "https" and target_origin != hub_origin:
            raise _Refusal(
                f"could not be fetched ({messages.one_line(_endpoint())} redirects to "
                f"{messages.one_line(url)[:_MAX_LETTERS]!r}, which is no https address); "
                f"check HF_ENDPOINT, or {repository.manual_download}"
            )
        if target_origin != hub_origin:
            request_headers.pop("authorization", None)
    raise _Refusal(
        f"could not be fetched (too many redirects); {repository.manual_download}"
    )


def _headers() -> dict[str, str]:
    """Return the headers of a request by name, with the token of a user who is logged in.

    huggingface_hub's own build_hf_headers is not used: it first fetches a list of other
    programs from the hub, without limiting the number of bytes.
    """
    import huggingface_hub
    from huggingface_hub import constants

    version = huggingface_hub.__version__
    headers = {
        "User-Agent": f"jbias/{jbias.__version__}; hf_hub/{version}",
        "Accept-Encoding": "identity",
    }
    token = None
    if not constants.HF_HUB_DISABLE_IMPLICIT_TOKEN:
        token = huggingface_hub.get_token()  # May send a request to renew the token.
    if token:
        headers["authorization"] = f"Bearer {token}"
    return headers


def _open(url: str, headers: Mapping[str, str]) -> Any:
    """Send a GET without redirects; return the open response, before its body is read."""
    from huggingface_hub import constants, utils

    session = utils.get_session()
    request = session.build_request(
        "GET", url, headers=headers, timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT
    )
    return session.send(request, stream=True, follow_redirects=False)


def _within_limit(act: Callable[[], Any], *, waiting_for: str) -> Any:
    """Call a function that waits for a server, and return its result.

    waiting_for: name of the server, for a line that is printed if the call takes long.
    _Unreached on an error, or after _HEADERS_SECONDS. The function runs in a thread because
    a server that sends a byte now and then never triggers a connection's timeout.
    """
    answer: futures.Future = futures.Future()

    def work() -> None:
        """Call `act`; store its result or its error."""
        result = error = None
        try:
            result = act()
        # Raised by the packages below huggingface_hub, or by its offline mode.
        except Exception as raised:  # noqa: BLE001
            error = raised
        is_awaited = answer.set_running_or_notify_cancel()
        if is_awaited and error is not None:
            answer.set_exception(error)
        elif is_awaited:
            answer.set_result(result)
        elif hasattr(result, "close"):
            result.close()

    threading.Thread(target=work, daemon=True).start()
    with _announcing(f"waiting for {waiting_for}"):
        futures.wait([answer], timeout=_HEADERS_SECONDS)
        if answer.cancel():
            raise _Unreached(
                f"no whole answer came within {_HEADERS_SECONDS:g} seconds"
            )
        try:
            return answer.result()
        except Exception as error:
            reason = messages.one_line(error)[:_MAX_LETTERS] or type(error).__name__
            raise _Unreached(reason) from error


def _wait(response: Any, repository: Repository, *, is_last: bool) -> None:
    """Wait for the time that an answer 429 (too many requests) demands, 10 s by default.

    A line is printed first. _Refusal if this time is above _MAX_WAIT_SECONDS, or if `is_last`,
    which means that no further try follows.
    response: the answer. repository: for the error message.
    """
    text = response.headers.get("retry-after", "")
    seconds = int(text) if re.fullmatch("[0-9]{1,9}", text) else 10
    if is_last or seconds > _MAX_WAIT_SECONDS:
        raise _Refusal(
            f"could not be fetched (429, too many requests); try again in {seconds} seconds, "
            f"or {repository.manual_download}"
        )
    line = f"jbias: {_endpoint()} has too many requests; waiting {seconds} seconds"
    messages.print_text(messages.one_line(line), to_stderr=True)
    time.sleep(seconds)


def _error_of(
    status: int, headers: Mapping[str, str], repository: Repository
) -> Exception:
    """Return the exception, _Refusal or _Unreached, for an answer with an error status.

    status: HTTP status. headers: headers of the answer, with the hub's error code
    "x-error-code".
    repository: for the text of the exception.
    """
    code = headers.get("x-error-code", "")
    login = "log in by `hf auth login`, or set HF_TOKEN"
    is_unknown = code == "RepoNotFound" or status in (401, 404) and not code
    if is_unknown:
        return _Refusal(
            f"does not exist, or is private ({status}); correct the name, or {login}"
        )
    if code == "GatedRepo" or status in (401, 403):
        return _Refusal(
            f"may not be read ({status}); accept its terms at {repository.page} and {login}"
        )
    if code == "RevisionNotFound":
        commits = f"{repository.page}/commits/main"
        return _Refusal(
            f"has no such commit; those of its main branch are at {commits}"
        )
    if status >= 500:
        return _Unreached(f"the server answers with status {status}")
    return _Refusal(
        f"could not be fetched (the server answers with status {status}); try again, or "
        f"{repository.manual_download}"
    )


def _checked_body(
    response: Any, headers: Mapping[str, str], repository: Repository, limit: int
) -> _Body:
    """Return the digest and size in the headers; raise _Refusal if they cannot be used.

    Headers cannot be used if they have another commit, no SHA-256 or SHA-1 as ETag, a
    compressed body, two different sizes, or a size above the limit.

    response: the last answer, which sends the file. headers: headers of the hub, not of a
    redirect target. repository: the requested repository; the headers must have the same
    commit. limit: largest size in bytes.
    """
    if headers.get("x-repo-commit") != repository.commit:
        got = messages.one_line(headers.get("x-repo-commit", "none"))[:_MAX_LETTERS]
        raise _Refusal(
            f"cannot be used: {repository.page} must be of commit {repository.commit}, got {got}; "
            "check HF_ENDPOINT"
        )
    tag = headers.get("x-linked-etag") or headers.get("etag", "")
    digest = tag.removeprefix("W/").strip('"')
    if not (_SHA256.fullmatch(digest) or _SHA1.fullmatch(digest)):
        raise _Refusal(
            f"could not be fetched (its ETag must be a SHA-256, got "
            f"{messages.one_line(tag)[:_MAX_LETTERS]!r}); check HF_ENDPOINT, or "
            f"{repository.manual_download}"
        )
    encoding = response.headers.get("content-encoding", "identity")
    if encoding != "identity":
        raise _Refusal(
            f"could not be fetched (the server sends it as {messages.one_line(encoding)[:40]}, "
            f"which was not requested); {repository.manual_download}"
        )
    texts = (headers.get("x-linked-size"), response.headers.get("content-length"))
    sizes = {int(text) for text in texts if re.fullmatch("[0-9]{1,18}", text or "")}
    if len(sizes) > 1:
        raise _Refusal(
            f"could not be fetched (the server sends two sizes, {sorted(sizes)}); try again, "
            f"or {repository.manual_download}"
        )
    size = next(iter(sizes), None)
    if size is not None and size > limit:
        raise _too_large(f"has {size / 2**30:.1f} GiB", limit)
    return _Body(digest, size)


def _too_large(description: str, limit: int) -> _Refusal:
    """Return the error for a file above the limit; description: such as "has 30 GiB"."""
    gib = f"{limit / 2**30:.3g} GiB"
    return _Refusal(
        f"{description}, above the limit of {gib}; raise it by {LIMIT_VARIABLE}=GIB"
    )


def _store(
    response: Any,
    body: _Body,
    folder: str,
    *,
    root: str,
    repository: Repository,
    limit: int,
) -> str:
    """Write the body of a response to the cache; return the path of the file.

    The file is named by its digest. body: expected digest and size; _Refusal if the
    received bytes differ, or are more than `limit`, the largest size in bytes. folder: the
    repository's folder in the cache `root`. OSError if the disk is full.
    """
    blobs = _make_inside(os.path.join(folder, "blobs"), root)
    if body.size is not None and body.size > shutil.disk_usage(blobs).free:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), blobs)
    is_sha256 = len(body.digest) == 64
    max_bytes = limit if body.size is None else body.size
    part = os.path.join(blobs, f"{uuid.uuid4().hex}.incomplete")
    count = 0
    try:
        with open(part, "xb") as file:
            for chunk in _chunks(response, repository, body.size):
                count += len(chunk)
                if count > max_bytes and body.size is not None:
                    raise _Refusal(
                        f"could not be fetched (the server sends more than the {max_bytes} "
                        f"bytes that it announced); {repository.manual_download}"
                    )
                if count > max_bytes:
                    raise _too_large("is sent without its size", limit)
                file.write(chunk)
        digest = (
            hashlib.sha256() if is_sha256 else hashlib.sha1(f"blob {count}\0".encode())
        )
        with open(part, "rb") as file:
            while block := file.read(2**20):
                digest.update(block)
        if body.size not in (None, count) or digest.hexdigest() != body.digest:
            raise _Refusal(
                f"could not be fetched (its {count} bytes must have the digest {body.digest}, "
                f"got {digest.hexdigest()}); try again, or {repository.manual_download}"
            )
        path = os.path.join(blobs, body.digest)
        os.replace(part, path)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(part)
    return path


def _chunks(response: Any, repository: Repository, size: int | None) -> Iterator[bytes]:
    """Yield the body of a response in chunks, with progress lines.

    _Refusal if the download is too slow, or if the connection breaks.
    repository: for messages. size: total bytes, for the lines; None if unknown.
    """
    start_time = line_time = window_start = time.monotonic()
    count = window_count = 0
    stream = response.iter_raw()
    while True:
        try:
            chunk = next(stream, None)
        # Raised by the packages below huggingface_hub: timeouts, broken connections.
        except Exception as error:
            reason = messages.one_line(error)[:_MAX_LETTERS] or type(error).__name__
            raise _Refusal(
                f"could not be fetched ({reason}); try again, or {repository.manual_download}"
            ) from error
        if chunk is None:
            return
        now = time.monotonic()
        count += len(chunk)
        window_count += len(chunk)
        is_first_line = line_time == start_time
        if now - line_time >= (_QUIET_SECONDS if is_first_line else _LINE_SECONDS):
            line_time = now
            total = "" if size is None else f" of {size / 1e6:.0f}"
            line = f"jbias: fetching hf:{repository.id}: {count / 1e6:.0f}{total} MB"
            messages.print_text(line, to_stderr=True)
        if now - window_start >= _SLOW_SECONDS:
            if window_count < _MIN_BYTES_PER_SECOND * (now - window_start):
                raise _Refusal(
                    f"could not be fetched (fewer than {_MIN_BYTES_PER_SECOND} bytes per "
                    f"second arrived); try again, or {repository.manual_download}"
                )
            window_start, window_count = now, 0
        yield chunk


@contextlib.contextmanager
def _announcing(line: str) -> Iterator[None]:
    """Print the line to stderr if the context lasts longer than _QUIET_SECONDS."""
    text = messages.one_line(f"jbias: {line}")
    timer = threading.Timer(
        _QUIET_SECONDS, lambda: messages.print_text(text, to_stderr=True)
    )
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _make_inside(folder: str, root: str) -> str:
    """Make a folder in the cache `root`; return its path.

    _Refusal if a link leads out of the cache.
    """
    if not _is_inside(folder, root):
        raise _Refusal(
            f"could not be saved: {folder} is a link that leads out of the cache {root}; "
            "remove the link, or set HF_HOME to another folder"
        )
    os.makedirs(folder, exist_ok=True)
    return folder


def _is_inside(path: str, root: str) -> bool:
    """Return True if a path, with links resolved, is in the folder `root`."""
    real = os.path.realpath(path)
    return os.path.commonpath([real, os.path.realpath(root)]) == os.path.realpath(root)


def _link(blob: str, folder: str, repository: Repository, file: str, root: str) -> str:
    """Link a file of the commit to its blob, as huggingface_hub does; return the link's path.

    blob: path of the stored file. folder: the repository's folder in the cache `root`.
    file: name in the repository.
    """
    snapshot = _make_inside(os.path.join(folder, "snapshots", repository.commit), root)
    path = os.path.join(snapshot, file)
    part = os.path.join(snapshot, f"{uuid.uuid4().hex}.incomplete")
    try:
        os.symlink(os.path.relpath(blob, snapshot), part)
        os.replace(part, path)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(part)
    # `root` has links resolved; the returned path is below the cache's own name.
    return os.path.join(_cache_root(), os.path.relpath(path, root))


def _note_absence(folder: str, repository: Repository, file: str, root: str) -> None:
    """Record in the cache, as huggingface_hub does, that the commit has no such file.

    Errors are ignored. folder: the repository's folder in the cache `root`. file: name in
    the repository.
    """
    with contextlib.suppress(OSError, _Refusal):
        missing = _make_inside(
            os.path.join(folder, ".no_exist", repository.commit), root
        )
        pathlib.Path(missing, file).touch()


def _check(path: str, repository: Repository, where: str) -> str:
    """Return `path`, a cached file; ValueError if it is damaged or not the commit's file.

    where: start of the error message. ValueError also if a link leads out of the cache. The
    cache names a file by its SHA-256 (a file that is named by a SHA-1 is not compared), and
    links to it from the commit's folder.
    """
    stored, root = os.path.realpath(path), _cache_root()
    if not _is_inside(path, root):
        raise ValueError(
            f"{where}: {path} leads to {stored}, out of the cache {root}; remove the link, to "
            "fetch the file again"
        )
    expected_digest = os.path.basename(stored)
    if _SHA256.fullmatch(expected_digest):
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != expected_digest:
            raise ValueError(
                f"{where}: {stored} must have the SHA-256 that it is named by, got {digest}; "
                "remove it, to fetch it again"
            )
    if pathlib.Path(path).parent.name != repository.commit:
        raise ValueError(
            f"{where}: {repository.page} must be of commit {repository.commit}, got {path}; check "
            "HF_ENDPOINT"
        )
    return path
