"""Write the generated lists again: `python -m tests.lists [NAME ...]`, by default all of them.

    algorithms  a paragraph of docs/algorithms.md for each algorithm that a preset trains
    api         docs/api.md: the public names, with the first lines of their docstrings
    contents    tests/contents.json: names and options of algorithms, networks, data sets and flags
    data        the lines of docs/data.md that describe the data sets
    presets     tests/oracles/presets.json: the names of the presets' runs

Each list is a test's expectation. A name that is gone, or a preset whose run has another name
than before, is a change that users notice: the command names it, and CHANGELOG.md explains it.
The command also names the new paragraphs on algorithms, whose words their authors may change.
"""

import json
import sys
from collections.abc import Callable, Mapping

from tests import (
    test_algorithms_page,
    test_api,
    test_contents,
    test_data_page,
    test_presets,
)


def write_algorithms() -> list[str]:
    """Write the missing paragraphs of docs/algorithms.md; return the new ones."""
    path = test_algorithms_page.PAGE
    old_text = path.read_text(encoding="utf-8")
    text = test_algorithms_page.with_paragraphs(old_text)
    path.write_text(text, encoding="utf-8")
    paragraphs = set(old_text.split("\n\n"))
    return [f"new: {new}" for new in text.split("\n\n") if new not in paragraphs]


def write_api() -> list[str]:
    """Write docs/api.md; return the lines that are gone."""
    path = test_api.ROOT / "docs/api.md"
    old_text, text = path.read_text(encoding="utf-8"), test_api.page()
    path.write_text(text, encoding="utf-8")
    lines = set(text.splitlines())
    return [f"gone: {line}" for line in old_text.splitlines() if line not in lines]


def write_contents() -> list[str]:
    """Write tests/contents.json; return the kinds of names whose list has changed."""
    old_contents = json.loads(test_contents.PINNED.read_text())
    text = test_contents.page()
    test_contents.PINNED.write_text(text)
    return [
        f"changed: {kind}"
        for kind, names in json.loads(text).items()
        if old_contents.get(kind) != names
    ]


def write_data() -> list[str]:
    """Write the data sets' lines of docs/data.md; return the paragraphs that are gone."""
    old_text = test_data_page.PAGE.read_text(encoding="utf-8")
    text = test_data_page.with_lines(old_text)
    test_data_page.PAGE.write_text(text, encoding="utf-8")
    paragraphs = set(text.split("\n\n"))
    return [f"gone: {old}" for old in old_text.split("\n\n") if old not in paragraphs]


def write_presets() -> list[str]:
    """Write tests/oracles/presets.json; return the presets whose runs have another name.

    Runs of such a preset that were begun before cannot be resumed.
    """
    old_identities = json.loads(test_presets.KNOWN.read_text())
    identities = test_presets.identities()
    test_presets.KNOWN.write_text(json.dumps(identities, indent=1) + "\n")
    return [
        f"earlier runs cannot be resumed: {name}"
        for name, identity in old_identities.items()
        if identities.get(name) != identity
    ]


LISTS: Mapping[str, Callable[[], list[str]]] = {
    "algorithms": write_algorithms,
    "api": write_api,
    "contents": write_contents,
    "data": write_data,
    "presets": write_presets,
}


def main(names: list[str]) -> int:
    """Write the named lists, all for []; return the exit code, 2 for an unknown name."""
    unknown = [name for name in names if name not in LISTS]
    if unknown:
        print(
            f"lists: no list {unknown[0]!r}; take some of {', '.join(LISTS)}",
            file=sys.stderr,
        )
        return 2
    for name in names or LISTS:
        for line in LISTS[name]():
            print(f"{name}: {line}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
