"""docs/algorithms.md has a paragraph for every algorithm that a preset trains.

`python -m tests.lists algorithms` writes the paragraph of a preset with a new algorithm, from the
docstrings of the preset and of the algorithm's module. Paragraphs of the page are kept. A table
has the reference code of each file whose docstring names a commit.
"""

import ast
import functools
import importlib
import inspect
import pathlib
import re
import sys
import textwrap
from collections.abc import Mapping

import pytest

from jbias import algos
from jbias import config as jc
from tests import cases, test_api, test_presets

PAGE = pathlib.Path(__file__).parents[1] / "docs/algorithms.md"
ON_NETWORK, ON_ATTRIBUTE = (
    "## On the network and its losses\n",
    "## Against shifts of an attribute\n",
)
WIDTH = 150
# Files of methods, whose docstrings name the reference code.
METHOD_FILES = (
    *("jbias/algos/*.py", "jbias/augment/*.py", "jbias/models/style_transfer.py"),
    *("jbias/training/averaging/*.py", "jbias/training/perturbing/*.py"),
    *("jbias/prepare/soup.py", "configs/erm_plusplus.py"),
)


@functools.cache
def trained() -> Mapping[str, list[str]]:
    """Return {preset: names of its algorithms, stage by stage}, without variants in folders."""
    algorithms = {}
    for preset in jc.preset_names("config"):
        if "/" not in preset:
            config = jc.to_dict(test_presets.load(preset))
            stages = jc.stage_configs(config)
            algorithms[preset] = [stage["algo"]["name"] for stage in stages]
    return algorithms


def head(preset: str) -> str:
    """Return the beginning of a preset's paragraph: name, file and paper.

    ValueError if the preset's docstring has no number of an arXiv paper.
    """
    file = f"configs/{preset}.py"
    text = importlib.import_module(f"jbias.configs.{preset}").__doc__ or ""
    text = " ".join(text.split())
    number = re.search(r"arXiv:(\d+\.\d+)", text)
    if not number:
        must = f"{file}: the docstring must have the paper, such as arXiv:1910.11645"
        raise ValueError(f"{must}, got {text[:60]!r}; add it")
    name = re.match(r"[^(,:.]*", text)[0].strip()
    cited = re.search(r"\(([^()]+), arXiv:", text)
    paper = cited[1] if cited else number[0]
    return f"**{name}** (`{file}`; [{paper}](https://arxiv.org/abs/{number[1]}))."


def paragraph(preset: str, algorithm: str) -> str:
    """Return a preset's paragraph; its sentence begins the docstring of the algorithm's module."""
    make = algos.ALGOS[algorithm]
    if isinstance(make, functools.partial):
        make = make.func
    module = sys.modules[make.__module__]
    text = test_api.line(module)
    sentence = text.partition(": ")[2] or text
    sentence = sentence[0].upper() + sentence[1:]
    return textwrap.fill(
        f"{head(preset)} {sentence}",
        WIDTH,
        break_long_words=False,
        break_on_hyphens=False,
    )


def with_paragraphs(page: str) -> str:
    """Return the text of the page with a paragraph for every algorithm of a preset.

    A new paragraph is the last of its section: that on attributes for an algorithm that takes
    the columns of the training data, which define its groups or environments.
    """
    described = {
        algorithm
        for preset, algorithms in trained().items()
        if f"`configs/{preset}.py`" in page
        for algorithm in algorithms
    }
    for preset, algorithms in trained().items():
        new = [name for name in algorithms if name not in described]
        if new:
            parameters = inspect.signature(algos.ALGOS[new[0]]).parameters
            section = ON_ATTRIBUTE if "columns" in parameters else ON_NETWORK
            end = page.index("\n## ", page.index(section))
            page = f"{page[:end]}\n{paragraph(preset, new[0])}\n{page[end:]}"
            described |= {*algorithms}
    return page


def without(page: str, preset: str) -> tuple[str, str]:
    """Return the page without the paragraph of a preset, and the paragraph."""
    start = page.rindex("**", 0, page.index(f"** (`configs/{preset}.py`"))
    end = page.index("\n\n", start) + 2
    return page[:start] + page[end:], page[start:end].rstrip("\n")


def test_every_algorithm_of_a_preset_has_its_paragraph():
    page = PAGE.read_text("utf-8")
    assert with_paragraphs(page) == page, "run python -m tests.lists algorithms"


@cases.each(
    ("preset", "next_section"),
    [
        ("sagnet", ON_ATTRIBUTE),
        ("dsu", ON_ATTRIBUTE),
        ("simclr", ON_ATTRIBUTE),
        ("group_dro", "## On the batch\n"),
        ("vrex", "## On the batch\n"),
    ],
)
def test_a_new_algorithm_gets_a_paragraph_at_the_end_of_its_section(
    preset, next_section
):
    """Name, file and paper are as the page's authors wrote them by hand."""
    page, written = without(PAGE.read_text("utf-8"), preset)
    above, below = page.split(next_section)
    new = with_paragraphs(page)
    assert new.startswith(above) and new.endswith(f"\n\n{next_section}{below}")
    text = new[len(above) :].partition(f"\n\n{next_section}")[0]
    beginning = written[: written.index(")).") + 3]
    assert " ".join(text.split()).startswith(" ".join(beginning.split()))
    assert max(map(len, text.splitlines())) <= WIDTH
    assert with_paragraphs(new) == new


def test_the_sentence_is_that_of_the_algorithms_module():
    assert paragraph("padain", "padain").replace("\n", " ") == (
        "**Permuted AdaIN** (`configs/padain.py`; "
        "[Nuriel et al., CVPR 2021](https://arxiv.org/abs/2010.05785)). "
        "Hide texture by swapping feature statistics between images."
    )


def test_the_words_of_authors_are_kept():
    page = PAGE.read_text("utf-8").replace("Plain training.", "The  baseline :")
    assert with_paragraphs(page) == page


def test_a_preset_of_a_known_algorithm_needs_no_paragraph():
    """The preset cutmix trains ERM; the page describes its transform alone."""
    page = PAGE.read_text("utf-8")
    assert trained()["cutmix"] == ["erm"] and "`configs/cutmix.py`" not in page
    assert trained()["simclr"] == ["simclr", "linear_probe"]


def test_a_preset_without_a_paper_is_refused():
    with pytest.raises(ValueError, match="configs/erm.py: the docstring must have the"):
        head("erm")


def reference_code(file: pathlib.Path) -> set[tuple[str, str]]:
    """Return the (repository, commit) pairs in the docstring of a file's module."""
    text = ast.get_docstring(ast.parse(file.read_text("utf-8"))) or ""
    return set(re.findall(r"https://github\.com/([\w./-]+)\s+at\s+(\w{7})\b", text))


def test_the_table_has_the_reference_code_of_the_docstrings():
    """Each file that names a commit has one row, with the same repositories and commits."""
    root = PAGE.parents[1]
    table = PAGE.read_text("utf-8").partition("## Papers, code and deviations")[2]
    rows = re.findall(r"^\| .*\((\.\./\S+\.py)\) \|$", table, re.MULTILINE)
    cells = re.findall(r"\| ([^|]*) \| \[\w+\.py\]\(\.\./(\S+)\) \|", table)
    by_file = {file: cell for cell, file in cells}
    files = [path for pattern in METHOD_FILES for path in sorted(root.glob(pattern))]
    expected = {
        file.relative_to(root).as_posix(): reference_code(file) for file in files
    }
    expected = {file: code for file, code in expected.items() if code}
    assert {*by_file} == {*expected} and len(rows) == len(by_file) > 30
    for file, code in expected.items():
        shown = re.findall(
            r"\[([\w./-]+) at (\w+)\]\(https://github\.com/\1/tree/\2\)", by_file[file]
        )
        assert {*shown} == code and len(shown) == len(code), file
