"""The key of an endpoint: which endpoints it is sent to, and texts without it.

OPENAI_API_KEY is sent without being asked to https://api.openai.com and to this machine only. Any
other endpoint gets a key only if --key-variable names one, and never over http.
"""

import base64
import ipaddress
import math
import os
import re
import unicodedata
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any

from jbias import errors

DEFAULT_VARIABLE = "OPENAI_API_KEY"
_OPENAI = "api.openai.com"
_FEWEST_SECRET_LETTERS = 8  # Shorter keys, such as "EMPTY", are placeholders.
_HIDDEN = "***"


class Key:
    """The key of an endpoint; its text is in no representation of this object."""

    def __init__(self, value: str):
        self._value = value
        self._secrets = _secrets(value) if len(value) >= _FEWEST_SECRET_LETTERS else ()

    def __repr__(self) -> str:
        return f"Key({_HIDDEN})"

    def reveal(self) -> str:
        """Return the key, for the header of a request."""
        return self._value

    def redact(self, text: str) -> str:
        """Return a text with *** in place of the key, and of each half of the key or more.

        The key is recognised in any case, forwards and backwards, in base64 and in hex digits, with
        escapes of URLs, JSON and HTML, and with spaces or marks between its letters.
        """
        if not self._secrets:
            return text
        letters, starts, ends = _letters(text, alphabet=self._value)
        is_secret = bytearray(len(text))
        for secret in self._secrets:
            place = letters.find(secret)
            while place >= 0:
                start, end = starts[place], ends[place + len(secret) - 1]
                is_secret[start:end] = b"\1" * (end - start)
                place = letters.find(secret, place + 1)
        return _hide(text, is_secret) if any(is_secret) else text

    def redact_all(self, value: Any) -> Any:
        """Return a value of JSON without the key in its texts and names."""
        if isinstance(value, str):
            return self.redact(value)
        if isinstance(value, Mapping):
            return {
                self.redact_all(name): self.redact_all(entry)
                for name, entry in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.redact_all(entry) for entry in value]
        return value


def is_openai(endpoint: str) -> bool:
    """Return True for OpenAI's own API, by https."""
    address = urllib.parse.urlsplit(endpoint)
    is_host = address.hostname == _OPENAI and address.port in (None, 443)
    return is_host and address.scheme == "https"


def is_loopback(endpoint: str) -> bool:
    """Return True for an endpoint on this machine: localhost, 127.0.0.0/8 or ::1."""
    host = urllib.parse.urlsplit(endpoint).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_endpoint(endpoint: str) -> None:
    """Raise ValueError unless an endpoint is a plain address of http or https.

    Addresses with a user, password or query are refused, as keys would be written to files.
    """
    try:
        address = urllib.parse.urlsplit(endpoint)
        is_address = address.scheme in ("http", "https") and bool(address.hostname)
        is_address = is_address and address.port != 0
    except ValueError:  # Of a port that is no number, or of brackets.
        address, is_address = urllib.parse.urlsplit(""), False
    if address.username or address.password or address.query or address.fragment:
        raise ValueError(
            "--endpoint: must have no user, password, query or fragment, as it is written to "
            "files; put the key into an environment variable, see --key-variable"
        )
    must = (
        "be the address of an OpenAI-compatible API, such as https://api.openai.com/v1"
    )
    errors.check(is_address, "--endpoint", must, endpoint)
    if address.scheme == "http" and address.hostname == _OPENAI:
        errors.refuse("--endpoint", "begin with https://", endpoint)


def read(variable: str | None, *, endpoint: str) -> Key:
    """Return the key for an endpoint, from an environment variable.

    variable: its name; None: OPENAI_API_KEY for OpenAI's API and for this machine, where it may
    be missing, and no key for other endpoints. ValueError for a missing key, for one that no
    header can have, and for one that would be sent over a network in clear text.
    """
    is_default = is_openai(endpoint) or is_loopback(endpoint)
    name = variable or (DEFAULT_VARIABLE if is_default else "")
    value = os.environ.get(name, "").strip() if name else ""
    if not value and variable:
        must = "name an environment variable with the key"
        errors.refuse(
            "--key-variable", must, variable, f"set it: export {variable}=..."
        )
    if not value and is_openai(endpoint):
        raise ValueError(
            f"{DEFAULT_VARIABLE}: must be set to a key for {endpoint}; export "
            f"{DEFAULT_VARIABLE}=..., or name another variable by --key-variable"
        )
    if not value.isascii() or not value.isprintable() or " " in value:
        raise ValueError(
            f"{name}: must be a key of printable ASCII letters without spaces; set it again"
        )
    is_clear = endpoint.casefold().startswith("http:") and not is_loopback(endpoint)
    if value and is_clear:
        remedy = "as the key would be sent in clear text; use https, or remove --key-variable"
        errors.refuse("--endpoint", "begin with https://", endpoint, remedy)
    return Key(value or "none")


# Escapes of URLs, JSON and HTML, also escaped again.
_ESCAPE = re.compile(
    r"%(?:25)*(?P<percent>[0-9a-fA-F]{2})"
    r"|\\{1,8}u\{?0{0,4}(?P<unicode>[0-9a-fA-F]{2})\}?|\\{1,8}x(?P<hex>[0-9a-fA-F]{2})"
    r"|&(?:amp;)*#(?:0*(?P<decimal>\d{2,3})|[xX]0*(?P<html>[0-9a-fA-F]{2}));?"
    r"|\\{1,8}[nrtbf]"
)


def _letters(text: str, *, alphabet: str) -> tuple[str, list[int], list[int]]:
    """Return the letters of a text in lower case, and where each starts and ends in the text.

    Escapes are replaced by their letters. Letters and digits stay, and the letters in `alphabet`.
    """
    letters, starts, ends = [], [], []
    for start, end, decoded in _decoded(text):
        for letter in unicodedata.normalize("NFKC", decoded).casefold():
            if letter.isalnum() or letter in alphabet:
                letters.append(letter)
                starts.append(start)
                ends.append(end)
    return "".join(letters), starts, ends


def _decoded(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield start, end and letter of each letter or escape of a text."""
    start = 0
    for match in _ESCAPE.finditer(text):
        for place in range(start, match.start()):
            yield place, place + 1, text[place]
        digits = next(filter(None, match.groups()), "")
        base = 10 if match["decimal"] else 16
        yield match.start(), match.end(), chr(int(digits, base)) if digits else ""
        start = match.end()
    for place in range(start, len(text)):
        yield place, place + 1, text[place]


def _secrets(value: str) -> tuple[str, ...]:
    """Return the texts that show a key or half of it, as `_letters` returns texts."""
    content = value.encode()
    forms = [value, value[::-1], content.hex()]
    for offset in range(3):  # In base64, three bytes are four letters.
        encoded = base64.b64encode(b"\0" * offset + content).decode()
        # Letters that only the key decides, whatever is around it.
        first, last = math.ceil(offset * 4 / 3), (offset + len(content)) * 4 // 3
        clean = encoded[first:last]
        forms += [clean, clean.replace("+", "-").replace("/", "_")]
    halves = {}
    for form in forms:
        letters = _letters(form, alphabet=value)[0]
        size = max(_FEWEST_SECRET_LETTERS, math.ceil(len(letters) / 2))
        for start in range(len(letters) - size + 1):
            halves[letters[start : start + size]] = None
    return tuple(halves)


def _hide(text: str, is_secret: bytearray) -> str:
    """Return a text with *** in place of each run of secret letters.

    Letters of base64 that touch a run go, too: those at its ends depend on the key.
    """
    shown, start = "", 0
    for match in re.finditer(b"\1+", bytes(is_secret)):
        first, last = match.span()
        if first < start:
            continue
        while first > start and _is_base64(text[first - 1]):
            first -= 1
        while last < len(text) and _is_base64(text[last]):
            last += 1
        shown += text[start:first] + _HIDDEN
        start = last
    return shown + text[start:]


def _is_base64(letter: str) -> bool:
    """Return True for a letter of base64 or of its form for URLs."""
    return letter.isascii() and (letter.isalnum() or letter in "+/-_=")
