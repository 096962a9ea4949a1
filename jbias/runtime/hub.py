"""Weights on the Hugging Face Hub, named hf:OWNER/NAME@COMMIT; needs the extra `hub`.

A commit names the same bytes for ever. Branches and tags can move, so they are refused. Files
lie in huggingface_hub's own cache (HF_HOME), where they are found without a network, too.
"""

import contextlib
import errno
import functools
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
FILES = ("model.safetensors", "pytorch_model.bin")  # The first that is there.
_PART = r"([\w-][\w.-]*)"
_NAMED = re.compile(rf"{_PREFIX}{_PART}/{_PART}(?:@(.*))?")
_COMMIT, _SHA256 = re.compile("[0-9a-f]{40}"), re.compile("[0-9a-f]{64}")
_LETTERS = 200  # Of a fault: servers answer with pages.


class Repository(NamedTuple):
    """What hf:OWNER/NAME@COMMIT names."""

    owner: str
    name: str
    commit: str

    @property
    def id(self) -> str:
        return f"{self.owner}/{self.name}"

    @property
    def page(self) -> str:
        """The address of its page."""
        return f"{_endpoint()}/{self.id}"

    @property
    def by_hand(self) -> str:
        """What to do where nothing can be fetched here."""
        url = f"{self.page}/resolve/{self.commit}/{FILES[0]}"
        return f"fetch {url} elsewhere and give the path of that file"


def _endpoint() -> str:
    """The hub's address, HF_ENDPOINT where that is set."""
    return (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")


def _check_endpoint() -> None:
    """Raise ValueError where HF_ENDPOINT is no address, on which the hub's package fails."""
    endpoint = _endpoint()
    try:
        parts = urllib.parse.urlsplit(endpoint)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname)
        is_address = is_address and parts.port != 0
    except ValueError:  # Of a port that is no number, or brackets left open.
        is_address = False
    if not is_address:
        raise ValueError(
            f"HF_ENDPOINT: must be an address such as https://huggingface.co, got "
            f"{endpoint!r}; correct it, or leave it unset"
        )


def is_hub(path: str) -> bool:
    """Whether a path is the name of weights on the hub."""
    return path.startswith(_PREFIX)


def parse(given: str, where: str) -> Repository:
    """The repository and commit of a name; ValueError where it has no whole commit."""
    match = _NAMED.fullmatch(given)
    if not match:
        raise ValueError(f"{where}: must be hf:OWNER/NAME@COMMIT, got {given!r}")
    found = Repository(*match.groups(""))
    if not _COMMIT.fullmatch(found.commit):
        raise ValueError(
            f"{where}: hf:{found.id} must be pinned by a commit of 40 hexadecimal digits, "
            f"got {found.commit!r}: a branch or tag can move, and measures must stay "
            f"true; write hf:{found.id}@COMMIT, with one of {found.page}/commits/main"
        )
    return found


class _Refusal(Exception):
    """Says why a file cannot be had, and what to do; no text of a server is obeyed."""


class _Unreached(Exception):
    """Says why no server answered."""


def fetch(given: str, where: str) -> str:
    """Return the path of the weights in the cache, to which they are fetched if need be.

    ValueError, one line, where they cannot be had, or the cached file is not theirs.
    """
    named = parse(given, where)
    _check_endpoint()
    try:
        import huggingface_hub
    except ImportError:
        raise ValueError(
            f"{where}: {given} needs the package huggingface_hub, which is not installed; "
            f"pip install 'jbias[hub]', or {named.by_hand}"
        ) from None
    reason = ""  # Why the server was not reached.
    for file in FILES:
        cached = huggingface_hub.try_to_load_from_cache(
            repo_id=named.id, filename=file, revision=named.commit
        )
        if isinstance(cached, str):
            return _check(cached, named, where)
        if cached is not None or reason:
            continue  # The commit is known to lack the file, or nobody can be asked.
        try:
            path = _download(named, file)
        except _Unreached as error:
            reason = str(error)
        except _Refusal as error:
            raise ValueError(f"{where}: {given} {error}") from error
        except OSError as error:
            why = files.system_message(error)
            raise ValueError(
                f"{where}: {given} could not be kept: {_cache_root()} cannot be written ({why}); "
                "free space there, or set HF_HOME to another folder"
            ) from error
        else:
            if path:
                return _check(path, named, where)
    if reason:
        raise ValueError(
            f"{where}: {given} is not in the cache and cannot be reached ({reason}); "
            f"{named.by_hand}"
        )
    raise ValueError(
        f"{where}: {given} has neither {' nor '.join(FILES)}; fetch its file of weights from "
        f"{named.page}/tree/{named.commit} and give the path of that file"
    )


LIMIT_VARIABLE = "JBIAS_HUB_GIB"  # The most that one file may have, in GiB.
DEFAULT_LIMIT_GIB = 20.0
_LARGEST_LIMIT_GIB = 10**6
_MOST_REDIRECTS = 5
_MOST_TRIES, _LONGEST_WAIT_SECONDS = 3, 60  # Where the server asks to wait.
_QUIET_SECONDS = 5.0  # After which a line says what is waited for.
_LINE_SECONDS = 30.0  # Between further lines.
_HEADERS_SECONDS = 60.0  # For a connection and the headers of an answer.
_SLOW_SECONDS, _SLOWEST_BYTES = (
    60.0,
    1024,
)  # Fewer bytes a second for so long: given up.
_SHA1 = re.compile("[0-9a-f]{40}")  # Of files that git keeps itself.


class _Body(NamedTuple):
    """What a server is about to send, as its headers say."""

    digest: str  # In hexadecimal: a SHA-256, or git's SHA-1 of a blob.
    size: int | None  # In bytes; None where the server says none.


def _cache_root() -> str:
    from huggingface_hub import constants

    return constants.HF_HUB_CACHE


def _limit_bytes() -> int:
    """Return the most bytes that a file may have, by LIMIT_VARIABLE."""
    text = os.environ.get(LIMIT_VARIABLE, "")
    try:
        limit = numerals.real(text) if text else DEFAULT_LIMIT_GIB
    except ValueError:
        limit = 0
    if not 0 < limit <= _LARGEST_LIMIT_GIB:
        raise _Refusal(
            f"cannot be fetched: {LIMIT_VARIABLE} must be a number of GiB above 0 and at "
            f"most {_LARGEST_LIMIT_GIB}, got {text!r}; correct it, or leave it unset"
        )
    return int(limit * 2**30)


def _download(named: Repository, file: str) -> str:
    """Fetch a file of the commit into the cache and return its path; "" if it has none.

    One request: its headers are checked before any of its bytes is written, so a server
    cannot say one thing and send another.
    """
    limit = _limit_bytes()
    root = os.path.realpath(_cache_root())
    folder = os.path.join(root, f"models--{named.owner}--{named.name}")
    for attempt in range(_MOST_TRIES):
        with contextlib.ExitStack() as stack:
            response, headers = _request(named, file, stack)
            status = response.status_code
            if status == 429:
                _wait(response, named, is_last=attempt == _MOST_TRIES - 1)
                continue
            if status == 404 and headers.get("x-error-code") == "EntryNotFound":
                _note_absence(folder, named, file, root)
                return ""
            if status != 200:
                raise _error_of(status, headers, named)
            body = _checked(response, headers, named, limit)
            blob = _store(response, body, folder, root=root, named=named, limit=limit)
            return _link(blob, folder, named, file, root)
    raise AssertionError("the last attempt raises")


def _request(named: Repository, file: str, stack: contextlib.ExitStack) -> Any:
    """Send a GET, follow redirects; return the open response and the hub's own headers."""
    endpoint = urllib.parse.urlsplit(_endpoint())
    own = (endpoint.scheme, endpoint.netloc)
    url = f"{named.page}/resolve/{named.commit}/{file}"
    sent = _within_limit(_headers, waiting_for=endpoint.netloc)
    known: dict[str, str] = {}
    for _ in range(_MOST_REDIRECTS + 1):
        response = _within_limit(
            functools.partial(_open, url, sent),
            waiting_for=urllib.parse.urlsplit(url).netloc,
        )
        stack.callback(response.close)
        parts = urllib.parse.urlsplit(url)
        if (parts.scheme, parts.netloc) == own:
            known |= response.headers
        if response.status_code not in (301, 302, 303, 307, 308):
            return response, known
        location = response.headers.get("location", "")
        try:
            url = urllib.parse.urljoin(url, location)
            target = urllib.parse.urlsplit(url)
            is_address = bool(location) and (target.port is None or target.port > 0)
        except ValueError:  # Of a port or a host that is none.
            is_address = False
        if not is_address:
            raise _Refusal(
                f"could not be fetched ({messages.one_line(_endpoint())} leads to "
                f"{messages.one_line(location)[:_LETTERS]!r}, which is no address); check "
                f"HF_ENDPOINT, or {named.by_hand}"
            )
        if target.scheme != "https" and (target.scheme, target.netloc) != own:
            raise _Refusal(
                f"could not be fetched ({messages.one_line(_endpoint())} leads to "
                f"{messages.one_line(url)[:_LETTERS]!r}, which is no https address); "
                f"check HF_ENDPOINT, or {named.by_hand}"
            )
        if (target.scheme, target.netloc) != own:
            sent.pop("authorization", None)
    raise _Refusal(f"could not be fetched (too many redirects); {named.by_hand}")


def _headers() -> dict[str, str]:
    """Return the headers of a request, with the token of a user who is logged in.

    Those of huggingface_hub's own build_hf_headers would do, but it asks the hub for a list
    of other programs first, without a bound on what it reads.
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
        token = huggingface_hub.get_token()  # May renew itself by a request.
    if token:
        headers["authorization"] = f"Bearer {token}"
    return headers


def _open(url: str, headers: Mapping[str, str]) -> Any:
    """Return the response to a GET once its headers are there; its body is not read."""
    from huggingface_hub import constants, utils

    session = utils.get_session()
    request = session.build_request(
        "GET", url, headers=headers, timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT
    )
    return session.send(request, stream=True, follow_redirects=False)


def _within_limit(act: Callable[[], Any], *, waiting_for: str) -> Any:
    """Return what a function returns that asks a server; say a line where that lasts.

    Raises _Unreached where it fails or takes longer than _HEADERS_SECONDS. A server that sends
    a letter now and then meets no timeout of the connection, so a thread of its own waits.
    """
    answer: futures.Future = futures.Future()

    def work() -> None:
        result = error = None
        try:
            result = act()
        # Of the packages that huggingface_hub is built on, or its offline mode.
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
            reason = messages.one_line(error)[:_LETTERS] or type(error).__name__
            raise _Unreached(reason) from error


def _wait(response: Any, named: Repository, *, is_last: bool) -> None:
    """Wait as long as a server of too many requests asks; refuse where that is long."""
    text = response.headers.get("retry-after", "")
    seconds = int(text) if re.fullmatch("[0-9]{1,9}", text) else 10
    if is_last or seconds > _LONGEST_WAIT_SECONDS:
        raise _Refusal(
            f"could not be fetched (429, too many requests); try again in {seconds} seconds, "
            f"or {named.by_hand}"
        )
    line = f"jbias: {_endpoint()} has too many requests; waiting {seconds} seconds"
    messages.print_text(messages.one_line(line), to_stderr=True)
    time.sleep(seconds)


def _error_of(status: int, headers: Mapping[str, str], named: Repository) -> Exception:
    """Return the refusal that an answer's status and headers mean."""
    code = headers.get("x-error-code", "")
    login = "log in by `hf auth login`, or set HF_TOKEN"
    is_unknown = code == "RepoNotFound" or status in (401, 404) and not code
    if is_unknown:
        return _Refusal(
            f"is not there, or private ({status}); correct the name, or {login}"
        )
    if code == "GatedRepo" or status in (401, 403):
        return _Refusal(
            f"may not be read ({status}); accept its terms at {named.page} and {login}"
        )
    if code == "RevisionNotFound":
        commits = f"{named.page}/commits/main"
        return _Refusal(
            f"has no such commit; those of its main branch are at {commits}"
        )
    if status >= 500:
        return _Unreached(f"the server answers with status {status}")
    return _Refusal(
        f"could not be fetched (the server answers with status {status}); try again, or "
        f"{named.by_hand}"
    )


def _checked(
    response: Any, headers: Mapping[str, str], named: Repository, limit: int
) -> _Body:
    """Return what the headers promise; refuse what cannot be checked or is too large."""
    if headers.get("x-repo-commit") != named.commit:
        got = messages.one_line(headers.get("x-repo-commit", "none"))[:_LETTERS]
        raise _Refusal(
            f"cannot be used: {named.page} must be of commit {named.commit}, got {got}; "
            "check HF_ENDPOINT"
        )
    tag = headers.get("x-linked-etag") or headers.get("etag", "")
    digest = tag.removeprefix("W/").strip('"')
    if not (_SHA256.fullmatch(digest) or _SHA1.fullmatch(digest)):
        raise _Refusal(
            f"could not be fetched (its ETag must be a SHA-256, got "
            f"{messages.one_line(tag)[:_LETTERS]!r}); check HF_ENDPOINT, or {named.by_hand}"
        )
    encoding = response.headers.get("content-encoding", "identity")
    if encoding != "identity":
        raise _Refusal(
            f"could not be fetched (the server sends it as {messages.one_line(encoding)[:40]}, "
            f"which was not asked for); {named.by_hand}"
        )
    texts = (headers.get("x-linked-size"), response.headers.get("content-length"))
    sizes = {int(text) for text in texts if re.fullmatch("[0-9]{1,18}", text or "")}
    if len(sizes) > 1:
        raise _Refusal(
            f"could not be fetched (the server says two sizes, {sorted(sizes)}); try again, "
            f"or {named.by_hand}"
        )
    size = next(iter(sizes), None)
    if size is not None and size > limit:
        raise _too_large(f"has {size / 2**30:.1f} GiB", limit)
    return _Body(digest, size)


def _too_large(has: str, limit: int) -> _Refusal:
    gib = f"{limit / 2**30:.3g} GiB"
    return _Refusal(
        f"{has}, above the limit of {gib}; raise it by {LIMIT_VARIABLE}=GIB"
    )


def _store(
    response: Any, body: _Body, folder: str, *, root: str, named: Repository, limit: int
) -> str:
    """Write the body to the cache as the blob of its digest; return that path."""
    blobs = _made_inside(os.path.join(folder, "blobs"), root)
    if body.size is not None and body.size > shutil.disk_usage(blobs).free:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), blobs)
    is_sha256 = len(body.digest) == 64
    most = limit if body.size is None else body.size
    part = os.path.join(blobs, f"{uuid.uuid4().hex}.incomplete")
    count = 0
    try:
        with open(part, "xb") as file:
            for chunk in _chunks(response, named, body.size):
                count += len(chunk)
                if count > most and body.size is not None:
                    raise _Refusal(
                        f"could not be fetched (the server sends more than the {most} bytes "
                        f"that it said); {named.by_hand}"
                    )
                if count > most:
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
                f"got {digest.hexdigest()}); try again, or {named.by_hand}"
            )
        path = os.path.join(blobs, body.digest)
        os.replace(part, path)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(part)
    return path


def _chunks(response: Any, named: Repository, size: int | None) -> Iterator[bytes]:
    """Yield a body as it comes; say a line where that lasts, and give up what is too slow."""
    began = said = window = time.monotonic()
    count = window_count = 0
    stream = response.iter_raw()
    while True:
        try:
            chunk = next(stream, None)
        # Of the packages that huggingface_hub is built on: timeouts, broken connections.
        except Exception as error:
            reason = messages.one_line(error)[:_LETTERS] or type(error).__name__
            raise _Refusal(
                f"could not be fetched ({reason}); try again, or {named.by_hand}"
            ) from error
        if chunk is None:
            return
        now = time.monotonic()
        count += len(chunk)
        window_count += len(chunk)
        if now - said >= (_QUIET_SECONDS if said == began else _LINE_SECONDS):
            said = now
            total = "" if size is None else f" of {size / 1e6:.0f}"
            line = f"jbias: fetching hf:{named.id}: {count / 1e6:.0f}{total} MB"
            messages.print_text(line, to_stderr=True)
        if now - window >= _SLOW_SECONDS:
            if window_count < _SLOWEST_BYTES * (now - window):
                raise _Refusal(
                    f"could not be fetched (fewer than {_SLOWEST_BYTES} bytes a second came); "
                    f"try again, or {named.by_hand}"
                )
            window, window_count = now, 0
        yield chunk


@contextlib.contextmanager
def _announcing(line: str) -> Iterator[None]:
    """Say the line if what is inside takes more than a few seconds."""
    text = messages.one_line(f"jbias: {line}")
    timer = threading.Timer(
        _QUIET_SECONDS, functools.partial(messages.print_text, text, to_stderr=True)
    )
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _made_inside(folder: str, root: str) -> str:
    """Make a folder of the cache and return it; refuse where a link leads out of it."""
    if not _is_inside(folder, root):
        raise _Refusal(
            f"could not be kept: {folder} is a link that leads out of the cache {root}; "
            "remove the link, or set HF_HOME to another folder"
        )
    os.makedirs(folder, exist_ok=True)
    return folder


def _is_inside(path: str, root: str) -> bool:
    real = os.path.realpath(path)
    return os.path.commonpath([real, os.path.realpath(root)]) == os.path.realpath(root)


def _link(blob: str, folder: str, named: Repository, file: str, root: str) -> str:
    """Link a file of the commit to its blob, as huggingface_hub does; return its path."""
    place = _made_inside(os.path.join(folder, "snapshots", named.commit), root)
    path = os.path.join(place, file)
    part = os.path.join(place, f"{uuid.uuid4().hex}.incomplete")
    try:
        os.symlink(os.path.relpath(blob, place), part)
        os.replace(part, path)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(part)
    # The path under the cache's own name, which may be a link itself.
    return os.path.join(_cache_root(), os.path.relpath(path, root))


def _note_absence(folder: str, named: Repository, file: str, root: str) -> None:
    """Note, as huggingface_hub does, that the commit lacks the file."""
    with contextlib.suppress(OSError, _Refusal):
        place = _made_inside(os.path.join(folder, ".no_exist", named.commit), root)
        pathlib.Path(place, file).touch()


def _check(path: str, named: Repository, where: str) -> str:
    """Return the path; ValueError where the file is not that of the commit.

    The cache calls a file by its SHA-256, and links to it from the commit's folder.
    """
    stored, root = os.path.realpath(path), _cache_root()
    if not _is_inside(path, root):
        raise ValueError(
            f"{where}: {path} leads to {stored}, out of the cache {root}; remove the link, to "
            "fetch the file again"
        )
    if _SHA256.fullmatch(name := os.path.basename(stored)):
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != name:
            wrong = f"must have the SHA-256 that it is named by, got {digest}"
            raise ValueError(f"{where}: {stored} {wrong}; remove it, to fetch it again")
    if pathlib.Path(path).parent.name != named.commit:
        wrong = f"must be of commit {named.commit}, got {path}"
        raise ValueError(f"{where}: {named.page} {wrong}; check HF_ENDPOINT")
    return path
