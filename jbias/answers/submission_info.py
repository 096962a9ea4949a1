"""The file submission.json: who decided about the images, how, and under which licence."""

import dataclasses
import json
import os
import re
import unicodedata
import urllib.parse
from typing import Any

from jbias import errors
from jbias.runtime import messages
from jbias.untrusted import opening

FILE = "submission.json"
KINDS = ("CNN", "ViT", "CLIP", "VLM", "person", "other")
MAX_NAME = 80  # Letters of a name.
MAX_TEXT = 200  # Letters of other texts.
MAX_PROMPT = 2000
_MAX_BYTES = 2**16
_SCORES = frozenset(
    (
        "shapebias",
        "texturebias",
        "accuracy",
        "acc",
        "top1",
        "score",
        "scores",
        "rank",
        "errorconsistency",
        "kappa",
        "fraction",
    )
)
_LATIN = "A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u017f"  # With accents, such as è.
_NAME = re.compile(rf"[{_LATIN}0-9][{_LATIN}0-9 ._+():,/@=~-]*")
_MARKUP = re.compile(r"[<>`|]|&#?\w+;|\]\(|\bjavascript:", re.IGNORECASE)
_PROMPT_MARKUP = re.compile(r"<[a-z/!?]|&#?\w+;|\]\(|\bjavascript:", re.IGNORECASE)
# Placeholders and special tokens of prompts: <image>, <class>, <image_1>, <|im_start|>. HTML has no
# such elements; words with an underscore are no elements of HTML, either.
_TOKEN = re.compile(
    r"<\|\w+\|>|</?(?:image|class|label|option|question|answer)s?\d*>|</?[a-z]+_\w*>",
    re.IGNORECASE,
)
_DIRECTION_CODES = (
    0x061C,
    0x200E,
    0x200F,
    *range(0x202A, 0x202F),
    *range(0x2066, 0x206A),
)
_DIRECTION_MARKS = frozenset(map(chr, _DIRECTION_CODES))
_HOST = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)+", re.IGNORECASE)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Info:
    """The content of submission.json."""

    name: str  # Of the model or person.
    kind: str  # One of KINDS.
    task: str  # Such as "classifier", "zero-shot", "multiple choice" or "captions".
    prompt: str  # "" if there was none.
    link: str  # Address of the model, paper or code.
    licence: str  # Of the decisions.
    decided_by: str  # Step that made decisions of the model's output.


# Licences that allow everyone to publish decisions again, as the table does.
LICENCES = (
    "CC0 1.0",
    "CC BY 4.0",
    "CC BY-SA 4.0",
    "CC BY 3.0",
    "CC BY-SA 3.0",
    "ODC-By 1.0",
    "ODbL 1.0",
    "PDDL 1.0",
    "CDLA-Permissive-1.0",
    "CDLA-Permissive-2.0",
    "CDLA-Sharing-1.0",
    "MIT",
    "Apache 2.0",
    "BSD 2-Clause",
    "BSD 3-Clause",
)
_LICENCE_WORDS = {  # Words of full names, in the order in which they are replaced.
    "creative commons": "cc",
    "attribution": "by",
    "sharealike": "sa",
    "zero": "0",
    "international": "",
    "unported": "",
    "universal": "",
    "license": "",
    "licence": "",
    "version": "",
}


_HINTS = {
    "name": "the model, such as 'ResNet-50'",
    "kind": f"one of {', '.join(KINDS)}",
    "task": "such as 'classifier', 'zero-shot', 'multiple choice' or 'captions'",
    "prompt": "the question that the model was asked, or '' if there was none",
    "link": "the address of the model, paper or code, https://...",
    "licence": f"the licence of the decisions, one of {', '.join(LICENCES)}",
    "decided_by": "the step that made decisions of outputs, such as 'largest of the 16 classes'",
}


def template() -> str:
    """Return submission.json with empty values."""
    return json.dumps(dict.fromkeys(_HINTS, ""), indent=1) + "\n"


def hints() -> list[str]:
    """Return a line for each value of submission.json that says what to write."""
    return [f"{key}: {hint}" for key, hint in _HINTS.items()]


def is_score(name: str) -> bool:
    """Return True for the name of a column or key that holds scores, such as "shape_bias"."""
    return re.sub(r"[^a-z0-9]", "", name.casefold()) in _SCORES


def find_licence(text: str) -> str:
    """Return the one of LICENCES that a text names, by name or SPDX id; "" for none of them.

    Capitals, hyphens and spaces do not matter: "cc-by-4.0" is "CC BY 4.0", and so is "Creative
    Commons Attribution 4.0 International".
    """
    by_name = {_plain_licence(name): name for name in LICENCES}
    by_name["cc0"] = "CC0 1.0"
    return by_name.get(_plain_licence(text), "")


def _plain_licence(text: str) -> str:
    """Return the letters, digits and dots of a licence's name, with full names as initials."""
    plain = text.casefold()
    for word, short in _LICENCE_WORDS.items():
        plain = plain.replace(word, short)
    plain = re.sub(r"\bv(?=\d)", "", plain)
    return re.sub(r"[^a-z0-9.]", "", plain)


def plain_name(name: str) -> str:
    """Return a name without accents and capitals: names that look alike are equal."""
    letters = unicodedata.normalize("NFKD", name.replace("\u0131", "i"))
    shown = (letter for letter in letters if not unicodedata.combining(letter))
    return "".join(shown).casefold()


def text_fault(text: str, longest: int, *, is_prompt: bool = False) -> str:
    """Return the fault of a text that is to be published, such as "HTML"; "" for none.

    longest: number of letters that the text may have. is_prompt: True to allow tokens of prompts,
    such as <image>, and the signs < > ` | outside of HTML.
    """
    if len(text) > longest:
        return f"{len(text):,} letters, at most {longest:,} are allowed"
    for letter in text:
        code = f"U+{ord(letter):04X}"
        if letter in _DIRECTION_MARKS:
            return f"a mark of writing direction ({code})"
        if unicodedata.category(letter) == "Cc":
            return f"a control character ({code}), such as a line break"
        if messages.printable(letter) != letter:
            return f"an invisible character ({code})"
    if is_prompt:
        has_markup = _PROMPT_MARKUP.search(_TOKEN.sub(" ", text))
    else:
        has_markup = _MARKUP.search(text)
    if has_markup:
        return "HTML or other markup (< > ` | & or a link)"
    if text != text.strip():
        return "spaces at its ends"
    return ""


def name_fault(name: str) -> str:
    """Return the fault of an observer's name, such as "HTML"; "" for none."""
    fault = text_fault(name, MAX_NAME)
    if not fault and not name:
        return "no letters"
    if not fault and not _NAME.fullmatch(name):
        return (
            "a beginning or characters other than Latin letters, 0 to 9, spaces and "
            "._+():,/@=~-"
        )
    return fault


def read(path: str) -> tuple[Info | None, list[str]]:
    """Return the content of submission.json, None if it has problems, and these problems."""
    try:
        entries = _load(path)
    except (OSError, ValueError, RecursionError) as error:
        return None, [messages.one_line(error)]
    problems = _key_problems(path, entries)
    entries = {key: _normalise(key, value) for key, value in entries.items()}
    for key, hint in _HINTS.items():
        fault = _value_fault(key, entries[key]) if key in entries else ""
        if fault:
            problems.append(f"{path}: {key} {fault}; write {hint}")
    if problems:
        return None, problems
    return Info(**entries), []


def _normalise(key: str, value: Any) -> Any:
    """Return a value as it is stored: licences by their name, prompts on one line."""
    if not isinstance(value, str):
        return value
    value = unicodedata.normalize("NFC", value)
    if key == "prompt":
        # Line breaks and indents become a space; other control characters are refused.
        return re.sub(r" *[\r\n\t][ \r\n\t]*", " ", value).strip(" ")
    return (find_licence(value) or value) if key == "licence" else value


def _load(path: str) -> dict[str, Any]:
    """Return the object in a JSON file; ValueError, one line, for other content."""
    with opening.open_binary(path) as file:
        content = file.read(_MAX_BYTES + 1)
    errors.check(
        len(content) <= _MAX_BYTES,
        path,
        f"have at most {_MAX_BYTES:,} bytes",
        os.path.getsize(path),
        "write short texts",
    )
    try:
        value = json.loads(
            content.decode("utf-8-sig"),
            object_pairs_hook=lambda pairs: _unique(path, pairs),
        )
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(
            f"{path}: must be JSON in UTF-8 ({messages.one_line(error)}); `jbias submit DIR "
            "--init` writes a template"
        ) from None
    if not isinstance(value, dict):
        errors.refuse(
            path,
            "be one JSON object, {...}",
            type(value).__name__,
            "`jbias submit DIR --init` writes a template",
        )
    return value


def _unique(path: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return pairs as a dict; ValueError for a key that is given twice."""
    entries = dict(pairs)
    keys = [key for key, _ in pairs]
    repeated = (
        [key for key in entries if keys.count(key) > 1] if len(keys) < 100 else []
    )
    if repeated:
        errors.refuse(path, "give each key once", repeated[0], "remove one of the two")
    return entries


def _key_problems(path: str, entries: dict[str, Any]) -> list[str]:
    """Return the problems with the names of the entries."""
    problems = [
        f"{path}: lacks the key {key!r}; add it, with {hint}"
        for key, hint in _HINTS.items()
        if key not in entries
    ]
    unknown = [key for key in entries if key not in _HINTS]
    scores = [key for key in unknown if is_score(key)]
    if scores:
        shown = errors.abbreviate(scores[0])
        problems.append(
            f"{path}: must not have scores, got {shown}; remove it: scores are computed "
            "from the decisions"
        )
    unnamed = [key for key in unknown if key not in scores]
    if unnamed:
        shown = errors.abbreviate(unnamed[0])
        problems.append(
            f"{path}: has {len(unnamed):,} unknown key(s), first {shown}; known: "
            f"{', '.join(_HINTS)}"
        )
    return problems


def _value_fault(key: str, value: Any) -> str:
    """Return the fault of the value of a key, such as "must be text, got 3"; "" for none."""
    shown = errors.abbreviate(value)
    if not isinstance(value, str):
        return f"must be text, got {shown}"
    if key == "kind":
        return "" if value in KINDS else f"must be a known kind, got {shown}"
    if not value:
        return "" if key == "prompt" else "must not be empty"
    if key == "name":
        fault = name_fault(value)
    else:
        is_prompt = key == "prompt"
        longest = MAX_PROMPT if is_prompt else MAX_TEXT
        fault = text_fault(value, longest, is_prompt=is_prompt)
    if fault:
        return f"must be plain text, got {fault} in {shown}"
    if key == "link":
        return _link_fault(value)
    if key == "licence" and value not in LICENCES:
        return f"must allow everyone to publish the decisions again, got {shown}"
    return ""


def _link_fault(link: str) -> str:
    """Return the fault of an address; "" for none."""
    shown = errors.abbreviate(link)
    try:
        split = urllib.parse.urlsplit(link)
        host = split.hostname or ""
        has_port = split.port is not None
    except ValueError:
        return f"must be an address, got {shown}"
    if split.scheme != "https":
        return f"must begin with https://, got {shown}"
    if not link.isascii() or set(" \"'\\") & set(link):
        return f"must be ASCII without spaces, quotes and backslashes, got {shown}"
    is_plain = "@" not in split.netloc and not has_port
    if not is_plain or not _HOST.fullmatch(host) or host.rpartition(".")[2].isdigit():
        return f"must have a public host without user and port, got {shown}"
    return ""
