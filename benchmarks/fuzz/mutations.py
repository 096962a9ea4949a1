"""What goes wrong with files and values, as strategies that hypothesis draws from."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

_DEEP: list = []
for _ in range(90):
    _DEEP = [_DEEP]
# What stands where something else should: of every type, hostile and too large.
VALUES = (
    *(None, True, False, 0, 1, -1, 2, 0.5, -0.5, 1e-300, 1e300, 2**31, 2**63, -(2**63)),
    *(float("nan"), float("inf"), 10**400, "", " ", "0", "1", "x", "nan", "1e9", "-1"),
    *(
        "\0",
        "a\nb",
        "../../x",
        "/dev/null",
        "<script>alert(1)</script>",
        "=cmd|' /C'!A0",
    ),
    *("\\input{/etc/passwd}", "%s%n{0}", "é\u202e\U0001f600", "\ud800", "a" * 5000),
    *([], [[]], [None], [0, 0], [1, "x"], {}, {"name": None}, {"name": "x"}, {"": {}}),
    *("\x1b[2J\x1b]0;x\x07", "\r\x85\u2028", "@digits", "@minus", "@deep", "@deeper"),
    _DEEP,
)
# What json.dumps does not write, by what stands for it.
_WRITTEN = {
    '"@digits"': "9" * 50_000,
    '"@minus"': "-1" + "0" * 50_000 + ".5e-7",
    '"@deep"': "[" * 400 + "]" * 400,
    '"@deeper"': '{"a":' * 50_000 + "1" + "}" * 50_000,
}
# As they stand on a command line.
TEXTS = (
    *("", " ", "0", "-1", "1", "1.5", "1e999", "nan", "inf", "None", "True", "x", "é"),
    *("()", "(0, 0)", "[", "{'a': 1}", "'", '"', "\\", "$(id)", "`id`", "../..", "/"),
    *(
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
    ),
    *(
        "(" * 300,
        "__import__('os').system('id')",
        "%s%n",
        "lambda: 0",
        "1 step",
        "10 %",
    ),
    *(
        "9" * 50_000,
        "-" * 5_000 + "1",
        "[" * 5_000,
        "[" * 50 + "]" * 50,
        "1+" * 3_000 + "1",
    ),
    *("\x1b[2J", "a\x07\r\nb", "\udcff", "NaN", "-Infinity", "1e-400", "(1,) * 10**10"),
    *("'\\ud800'", "'\\x1b[2J'", "0x" + "f" * 5_000, "10**400", "{" * 3_000),
)
# Bytes that mean something to some format.
_BYTES = (
    *(
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
    ),
    *(
        b"NaN",
        b"Infinity",
        b"-1",
        b"1e999",
        b"9" * 30,
        b"null",
        b"true",
        b'""',
        b"\\u0000",
    ),
    *(
        b"-Infinity",
        b"9" * 50_000,
        b"\x1b[2J",
        b"\x07",
        b"\\ud800",
        b"\\u001b",
        b"\xc2\x85",
    ),
    *(b"\xef\xbb\xbf", b"\xff\xfe", b"\xed\xa0\x80", b"[" * 2000, b"9" * 5000, b"{}\n"),
    *(b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff\xff\xff\xff\xff", b"\x80\x04", b"PK\3\4"),
)


@st.composite
def edited(draw: st.DrawFn, data: bytes) -> bytes:
    """A file's bytes with one to three things done to them."""
    for _ in range(draw(st.sampled_from((1, 1, 1, 2, 3)))):
        data = draw(_edit(data))
    return data


@st.composite
def _edit(draw: st.DrawFn, data: bytes) -> bytes:
    at = draw(st.integers(0, max(len(data) - 1, 0)))
    to = min(len(data), at + draw(st.sampled_from((1, 1, 2, 4, 8, 30, 200, 10**6))))
    what = draw(st.sampled_from(_EDITS))
    if what == "cut":
        return data[:at]
    if what == "drop":
        return data[:at] + data[to:]
    if what == "flip":
        bits = draw(st.integers(1, 255))
        return data[:at] + bytes([data[at] ^ bits]) + data[at + 1 :] if data else data
    if what == "put":
        return data[:at] + draw(st.sampled_from(_BYTES)) + data[at:]
    if what == "over":
        word = draw(st.sampled_from(_BYTES))
        return data[:at] + word + data[at + len(word) :]
    if what == "again":
        return data[:to] + data[at:to] + data[to:]
    if what == "lines":
        return b"".join(draw(_lines(data.splitlines(keepends=True))))
    if what == "encode":
        coding = draw(st.sampled_from(("utf-16", "utf-32", "cp037", "utf-8-sig")))
        return data.decode("latin-1").encode(coding)
    whole = (b"", b"\n", b"\0" * 100, b"{}", b"[]", b"null", b"\xff" * 64, b"[" * 10**5)
    return draw(st.sampled_from(whole))


_EDITS = (
    *("cut", "drop", "drop", "flip", "flip", "put", "put", "over", "over", "again"),
    *("lines", "lines", "encode", "whole"),
)


@st.composite
def _lines(draw: st.DrawFn, lines: list[bytes]) -> list[bytes]:
    """A line twice, elsewhere, or gone."""
    if not lines:
        return lines
    at, to = (draw(st.integers(0, len(lines) - 1)) for _ in range(2))
    what = draw(st.sampled_from(("twice", "move", "gone")))
    line = lines[at]
    rest = lines if what == "twice" else lines[:at] + lines[at + 1 :]
    return rest if what == "gone" else rest[:to] + [line] + rest[to:]


def dumped(tree: Any) -> bytes:
    """A tree as JSON, with what is no value of Python."""
    text = json.dumps(tree)
    for name, written in _WRITTEN.items():
        text = text.replace(name, written)
    return text.encode()


def places(tree: Any, way: tuple = ()) -> Iterator[tuple]:
    """The ways to everything in a tree of dicts and lists."""
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            yield (*way, key)
            yield from places(value, (*way, key))
    elif isinstance(tree, Sequence) and not isinstance(tree, str):
        for i, value in enumerate(tree):
            yield (*way, i)
            yield from places(value, (*way, i))


@st.composite
def changed(draw: st.DrawFn, tree: Any) -> tuple[Any, str]:
    """A tree with something else at one place, and which that is."""
    way = draw(st.sampled_from([*places(tree)]))
    what = draw(st.sampled_from(("value", "value", "value", "value", "gone", "beside")))
    tree = json.loads(json.dumps(tree))
    parent = tree
    for key in way[:-1]:
        parent = parent[key]
    value = draw(st.sampled_from(VALUES))
    if what == "gone":
        del parent[way[-1]]
    elif what == "beside" and isinstance(parent, dict):
        parent[draw(st.sampled_from(("", "x", "naem", "0", "<b>")))] = value
    else:
        parent[way[-1]] = value
    return tree, f"{'.'.join(map(str, way))} {what} {value!r:.60}"
