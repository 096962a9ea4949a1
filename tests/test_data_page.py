"""docs/data.md has a line for every data set, with the facts of its row.

`python -m tests.lists data` writes the lines: that of a new set follows the line of the set in
the row above, with the full citation. Shorter citations, which authors write, are kept.
"""

import pathlib
import re

from jbias import data
from jbias.data import base

PAGE = pathlib.Path(__file__).parents[1] / "docs/data.md"


def facts(data_set: base.DataSet) -> str:
    """Return the beginning of a data set's line, up to its citation."""
    description = data_set.about[0].upper() + data_set.about[1:]
    download = ""
    if data_set.where:
        source = ", ".join(filter(None, (data_set.size, f"from {data_set.where}")))
        download = f" {source[0].upper()}{source[1:]}."
    line = f"**{data_set.name}**. {description}.{download}"
    return f"{line} Licence: {data_set.licence}. Cite: ".replace("<", "\\<")


def with_lines(page: str) -> str:
    """Return the text of the page with a line for every data set, and for no other set."""
    named = {text: re.match(r"\*\*(\w+)\*\*\. ", text) for text in page.split("\n\n")}
    paragraphs = [
        text for text, name in named.items() if not name or name[1] in data.DATASETS
    ]
    number = -1
    for name, data_set in data.DATASETS.items():
        starts = [text.startswith(f"**{name}**. ") for text in paragraphs]
        if True in starts:
            number = starts.index(True)
            citation = paragraphs[number].partition(" Cite: ")[2]
            paragraphs[number] = facts(data_set) + citation
        else:
            number += 1
            paragraphs.insert(number, f"{facts(data_set)}{data_set.cite}.")
    return "\n\n".join(paragraphs)


def test_every_data_set_has_its_line():
    page = PAGE.read_text("utf-8")
    assert with_lines(page) == page, "run python -m tests.lists data"
    assert {*re.findall(r"^\*\*(\w+)\*\*\. ", page, re.MULTILINE)} == {*data.DATASETS}
    for name, data_set in data.DATASETS.items():
        cited = page.split(facts(data_set))[1].splitlines()[0]
        addresses = re.findall(r"https://\S+[^\s.,;]", data_set.cite)
        text = re.sub(r"https://\S+", "", data_set.cite)
        years = re.findall(r"\b(?:19|20)\d\d\b", text)
        author = re.match(r"\w+", data_set.cite)[0] if years else ""
        assert all(word in cited for word in (author, *years, *addresses)), name


def test_a_new_set_gets_its_line_after_that_of_the_row_above():
    page = PAGE.read_text("utf-8")
    start, end = page.index("**office_home**. "), page.index("**vlcs**. ")
    data_set = data.DATASETS["office_home"]
    line = f"{facts(data_set)}{data_set.cite}.\n\n"
    assert with_lines(page[:start] + page[end:]) == page[:start] + line + page[end:]


def test_the_line_of_a_set_that_is_gone_goes():
    page = PAGE.read_text("utf-8")
    assert (
        with_lines(page.replace("**celeba**. ", "**gone**. A set.\n\n**celeba**. "))
        == page
    )


def test_changed_facts_are_written_and_the_citation_is_kept():
    page = PAGE.read_text("utf-8")
    assert with_lines(page.replace("7 classes in 4 styles", "8 classes")) == page
