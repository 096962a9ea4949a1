"""Weights on the Hugging Face Hub, named hf:OWNER/NAME@COMMIT; needs the extra `hub`.

A commit names the same bytes for ever. Branches and tags can move, so they are refused. Files
lie in huggingface_hub's own cache (HF_HOME), where they are found without a network, too.
"""

import hashlib
import os
import pathlib
import re
from typing import NamedTuple

from jbias.runtime import messages

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


def fetch(given: str, where: str) -> str:
    """The path of the weights in the cache, to which they are fetched if need be.

    ValueError, one line, where they cannot be had, or what lies there is not theirs.
    """
    named = parse(given, where)
    try:
        import huggingface_hub
        from huggingface_hub import errors, utils
    except ImportError:
        raise ValueError(
            f"{where}: {given} needs the package huggingface_hub, which is not installed; "
            f"pip install 'jbias[hub]', or {named.by_hand}"
        ) from None
    utils.logging.set_verbosity_error()  # It tells of every retry.
    unreached = None
    for file in FILES:
        of = dict(repo_id=named.id, filename=file, revision=named.commit)
        try:
            known = huggingface_hub.try_to_load_from_cache(**of)
            if known is not None and not isinstance(known, str):
                continue  # The commit is known to lack it.
            of["endpoint"] = _endpoint()
            of["local_files_only"] = unreached is not None
            path = huggingface_hub.hf_hub_download(**of)
        except errors.RemoteEntryNotFoundError:
            continue
        except errors.LocalEntryNotFoundError as error:
            unreached = unreached or error
        # Its own, and those of the packages that it is built on.
        except Exception as error:
            raise ValueError(f"{where}: {given} {_explain(error, named)}") from error
        else:
            return _check(path, named, where)
    if unreached:
        why = _explain(unreached, named)
        raise ValueError(f"{where}: {given} {why}") from unreached
    raise ValueError(
        f"{where}: {given} has neither {' nor '.join(FILES)}; fetch its file of weights from "
        f"{named.page}/tree/{named.commit} and give the path of that file"
    )


def _explain(error: Exception, named: Repository) -> str:
    """What is wrong, and what to do about it."""
    from huggingface_hub import errors

    unreached = isinstance(error, errors.LocalEntryNotFoundError)
    cause = (unreached and error.__cause__) or error
    status = getattr(getattr(cause, "response", None), "status_code", None)
    unknown = isinstance(cause, errors.RepositoryNotFoundError)
    login = "log in by `hf auth login`, or set HF_TOKEN"
    if isinstance(cause, errors.GatedRepoError) or status in (401, 403) and not unknown:
        return (
            f"may not be read ({status}); accept its terms at {named.page} and {login}"
        )
    if unknown:
        return f"is not there, or private ({status}); correct the name, or {login}"
    if isinstance(cause, errors.RevisionNotFoundError):
        return f"has no such commit; those of its main branch are at {named.page}/commits/main"
    told = messages.one_line(cause)[:_LETTERS]
    if unreached:
        return f"is not in the cache and cannot be reached ({told}); {named.by_hand}"
    return f"could not be fetched ({told}); try again, or {named.by_hand}"


def _check(path: str, named: Repository, where: str) -> str:
    """The path again; ValueError where the file is not that of the commit.

    The cache calls what is stored by its SHA-256, and links to it from the commit's folder.
    """
    stored = os.path.realpath(path)
    if _SHA256.fullmatch(told := os.path.basename(stored)):
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != told:
            wrong = f"must have the SHA-256 that it is named by, got {digest}"
            raise ValueError(f"{where}: {stored} {wrong}; remove it, to fetch it again")
    if pathlib.Path(path).parent.name != named.commit:
        wrong = f"must be of commit {named.commit}, got {path}"
        raise ValueError(f"{where}: {named.page} {wrong}; check HF_ENDPOINT")
    return path
