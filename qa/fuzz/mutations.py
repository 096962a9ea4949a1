"""Hypothesis strategies that damage bytes and trees of values."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

_DEEP: list = []
for _ in range(90):
    _DEEP = [_DEEP]
# Replacements of a value: every type, hostile text, too large numbers.
VALUES = (
    None,
    True,
    False,
    0,
    1,
    -1,
    2,
    0.5,
    -0.5,
    1e-300,
    1e300,
    2**31,
    2**63,
    -(2**63),
    float("nan"),
    float("inf"),
    10**400,
    "",
    " ",
    "0",
    "1",
    "x",
    "nan",
    "1e9",
    "-1",
    "\0",
    "a\nb",
    "../../x",
    "/dev/null",
    "<script>alert(1)</script>",
    "=cmd|' /C'!A0",
    "\\input{/etc/passwd}",
    "%s%n{0}",
    "é\u202e\U0001f600",
    "\ud800",
    "a" * 5000,
    [],
    [[]],
    [None],
    [0, 0],
    [1, "x"],
    {},
    {"name": None},
    {"name": "x"},
    {"": {}},
    "\x1b[2J\x1b]0;x\x07",
    "\r\x85\u2028",
    "@digits",
    "@minus",
    "@deep",
    "@deeper",
    _DEEP,
)
# JSON that json.dumps does not write, by the placeholder in VALUES.
_PLACEHOLDERS = {
    '"@digits"': "9" * 50_000,
    '"@minus"': "-1" + "0" * 50_000 + ".5e-7",
    '"@deep"': "[" * 400 + "]" * 400,
    '"@deeper"': '{"a":' * 50_000 + "1" + "}" * 50_000,
}
# Values on a command line.
TEXTS = (
    "",
    " ",
    "0",
    "-1",
    "1",
    "1.5",
    "1e999",
    "nan",
    "inf",
    "None",
    "True",
    "x",
    "é",
    "()",
    "(0, 0)",
    "[",
    "{'a': 1}",
    "'",
    '"',
    "\\",
    "$(id)",
    "`id`",
    "../..",
    "/",
    "<b>",
    "a=b",
    "a,b",
    "a+b",
    ":",
    "::",
    "\t",
    "1_000",
    "0x10",
    "9" * 400,
    "a" * 3000,
    "(" * 300,
    "__import__('os').system('id')",
    "%s%n",
    "lambda: 0",
    "1 step",
    "10 %",
    "9" * 50_000,
    "-" * 5_000 + "1",
    "[" * 5_000,
    "[" * 50 + "]" * 50,
    "1+" * 3_000 + "1",
    "\x1b[2J",
    "a\x07\r\nb",
    "\udcff",
    "NaN",
    "-Infinity",
    "1e-400",
    "(1,) * 10**10",
    "'\\ud800'",
    "'\\x1b[2J'",
    "0x" + "f" * 5_000,
    "10**400",
    "{" * 3_000,
)
# Bytes with a meaning in some format.
_BYTES = (
    b"\0",
    b"\n",
    b"\r",
    b'"',
    b"'",
    b",",
    b";",
    b"{",
    b"}",
    b"[",
    b"]",
    b"\\",
    b"\xff",
    b"NaN",
    b"Infinity",
    b"-1",
    b"1e999",
    b"9" * 30,
    b"null",
    b"true",
    b'""',
    b"\\u0000",
    b"-Infinity",
    b"9" * 50_000,
    b"\x1b[2J",
    b"\x07",
    b"\\ud800",
    b"\\u001b",
    b"\xc2\x85",
    b"\xef\xbb\xbf",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"[" * 2000,
    b"9" * 5000,
    b"{}\n",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff\xff\xff\xff\xff",
    b"\x80\x04",
    b"PK\3\4",
)


@st.composite
def edited(draw: st.DrawFn, data: bytes) -> bytes:
    """Draw a copy of `data` with one to three random edits."""
    for _ in range(draw(st.sampled_from((1, 1, 1, 2, 3)))):
        data = draw(_edit(data))
    return data


@st.composite
def _edit(draw: st.DrawFn, data: bytes) -> bytes:
    """Draw a copy of `data` with one edit."""
    start = draw(st.integers(0, max(len(data) - 1, 0)))
    end = min(len(data), start + draw(st.sampled_from((1, 1, 2, 4, 8, 30, 200, 10**6))))
    kind = draw(st.sampled_from(_EDITS))
    if kind == "cut":
        return data[:start]
    if kind == "drop":
        return data[:start] + data[end:]
    if kind == "flip":
        bits = draw(st.integers(1, 255))
        return (
            data[:start] + bytes([data[start] ^ bits]) + data[start + 1 :]
            if data
            else data
        )
    if kind == "put":
        return data[:start] + draw(st.sampled_from(_BYTES)) + data[start:]
    if kind == "over":
        word = draw(st.sampled_from(_BYTES))
        return data[:start] + word + data[start + len(word) :]
    if kind == "again":
        return data[:end] + data[start:end] + data[end:]
    if kind == "lines":
        return b"".join(draw(_edit_lines(data.splitlines(keepends=True))))
    if kind == "encode":
        coding = draw(st.sampled_from(("utf-16", "utf-32", "cp037", "utf-8-sig")))
        return data.decode("latin-1").encode(coding)
    contents = (
        b"",
        b"\n",
        b"\0" * 100,
        b"{}",
        b"[]",
        b"null",
        b"\xff" * 64,
        b"[" * 10**5,
    )
    return draw(st.sampled_from(contents))


_EDITS = (
    "cut",
    "drop",
    "drop",
    "flip",
    "flip",
    "put",
    "put",
    "over",
    "over",
    "again",
    "lines",
    "lines",
    "encode",
    "whole",
)


@st.composite
def _edit_lines(draw: st.DrawFn, lines: list[bytes]) -> list[bytes]:
    """Draw a copy of `lines` with a line repeated, moved or deleted."""
    if not lines:
        return lines
    source, target = (draw(st.integers(0, len(lines) - 1)) for _ in range(2))
    kind = draw(st.sampled_from(("twice", "move", "gone")))
    remaining = lines if kind == "twice" else lines[:source] + lines[source + 1 :]
    if kind == "gone":
        return remaining
    return remaining[:target] + [lines[source]] + remaining[target:]


def to_json(tree: Any) -> bytes:
    """Return a tree as JSON, with the placeholders of VALUES replaced."""
    text = json.dumps(tree)
    for placeholder, replacement in _PLACEHOLDERS.items():
        text = text.replace(placeholder, replacement)
    return text.encode()


def paths(tree: Any, parent: tuple = ()) -> Iterator[tuple]:
    """Yield the path (keys and indices) of every value in a tree of dicts and lists.

    parent: path of `tree`, put before every result.
    """
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            yield (*parent, key)
            yield from paths(value, (*parent, key))
    elif isinstance(tree, Sequence) and not isinstance(tree, str):
        for i, value in enumerate(tree):
            yield (*parent, i)
            yield from paths(value, (*parent, i))


@st.composite
def changed(draw: st.DrawFn, tree: Any) -> tuple[Any, str]:
    """Draw a copy of a tree with one change, and a description of the change.

    The change replaces a value, deletes it, or adds an entry next to it.
    """
    path = draw(st.sampled_from([*paths(tree)]))
    kind = draw(st.sampled_from(("value", "value", "value", "value", "gone", "beside")))
    tree = json.loads(json.dumps(tree))
    parent = tree
    for key in path[:-1]:
        parent = parent[key]
    value = draw(st.sampled_from(VALUES))
    if kind == "gone":
        del parent[path[-1]]
    elif kind == "beside" and isinstance(parent, dict):
        parent[draw(st.sampled_from(("", "x", "naem", "0", "<b>")))] = value
    else:
        parent[path[-1]] = value
    return tree, f"{'.'.join(map(str, path))} {kind} {value!r:.60}"
