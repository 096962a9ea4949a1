"""Reports cite the papers of the methods and data sets of their runs."""

import collections
import inspect
import pathlib
import re
import sys

import pytest

from jbias import algos, augment, data
from jbias import config as jc
from jbias.report.pages.benchmark import benchmark_page, bibliography
from jbias.training.averaging import averages
from jbias.training.perturbing import sharpness
from tests import cases, test_presets
from tests.report import test_runs

PAGE = pathlib.Path(__file__).parents[2] / "docs/algorithms.md"
# Presets for data of a paper, with ERM as their default method.
PROTOCOLS = ("colored_mnist", "distortion")


def field(key, name):
    """Return a field of an entry as text without braces, or ""."""
    match = re.search(
        rf"(?:^|\W){name} = \{{(.*?)\}}(?:,|\n|$)", bibliography.ENTRIES[key]
    )
    return re.sub(r"[{}]", "", match[1]) if match else ""


def module_doc(make):
    """Return the docstring of the module of a function, or of a partial function's function."""
    function = getattr(make, "func", make)
    return " ".join(inspect.getdoc(sys.modules[function.__module__]).split())


def test_entries_are_complete_and_unique():
    text = pathlib.Path(bibliography.__file__).with_name("methods.bib").read_text()
    assert text.count("\n@") + 1 == len(bibliography.ENTRIES)
    for name in ("title", "eprint"):
        values = [field(key, name).lower() for key in bibliography.ENTRIES]
        counts = collections.Counter(filter(None, values))
        assert max(counts.values()) == 1, counts.most_common(1)
    for key, entry in bibliography.ENTRIES.items():
        assert entry.count("{") == entry.count("}"), key
        assert all(field(key, name) for name in ("author", "title", "year")), key
        assert re.search(r"\d{4}", key)[0] == field(key, "year") or key in (
            "waudbysmith2023",
        )


def test_every_method_of_the_package_has_its_papers():
    """A new algorithm, transform, average or kind of sharpness without papers fails here."""
    assert {*bibliography.ALGORITHMS} == {*algos.ALGOS}
    plain = bibliography.PLAIN_TRANSFORMS
    assert not plain & {*bibliography.TRANSFORMS}
    assert plain | {*bibliography.TRANSFORMS} == {*augment.AUGMENTS}
    assert {*bibliography.AVERAGES} == {*averages.AVERAGES}
    assert {*bibliography.SHARPNESS} == {"sam", "asam"}
    cited = [
        *bibliography.ALGORITHMS.values(),
        *bibliography.TRANSFORMS.values(),
        *bibliography.AVERAGES.values(),
        *bibliography.SHARPNESS.values(),
        *(keys for _, keys in bibliography.VARIANTS.values()),
    ]
    assert all({*keys} <= {*bibliography.ENTRIES} and keys for keys in cited)


def test_papers_are_those_of_the_docstrings():
    """The first paper of each method is in the docstring of the module that implements it."""
    documented = {
        (name, keys): module_doc(make)
        for works, makes in (
            (bibliography.ALGORITHMS, algos.ALGOS),
            (bibliography.TRANSFORMS, augment.AUGMENTS),
        )
        for name, keys in works.items()
        for make in [makes[name]]
    }
    for works, module in (
        (bibliography.AVERAGES, averages),
        (bibliography.SHARPNESS, sharpness),
    ):
        text = " ".join(inspect.getdoc(module).split())
        documented |= {item: text for item in works.items()}
    for (name, keys), text in documented.items():
        assert keys[0] in bibliography.works_in(text), name
        numbers = re.findall(r"arxiv\.org/abs/(\d+\.\d+)", text)
        assert all(bibliography.works_in(number) for number in numbers), name


def test_papers_are_those_of_the_page_on_algorithms():
    """Each linked paper has an entry with the first author and the year of the link."""
    links = re.findall(r"\[([^\]]+)\]\((https://[^)\s]+)\)", PAGE.read_text("utf-8"))
    papers = [(text, link) for text, link in links if "github.com" not in link]
    assert len(papers) > 80
    for text, link in papers:
        keys = bibliography.works_in(link)
        assert len(keys) == 1, link
        year = re.search(r"\b(?:19|20)\d\d\b", text)
        if year:
            author = field(keys[0], "author")
            first = re.sub(r"\W", "", author.split(",")[0])
            assert text.startswith(first) and year[0] == field(keys[0], "year"), text


@pytest.mark.parametrize("name", data.DATASETS)
def test_every_named_data_set_has_its_papers(name):
    """Each work in a data set's citation has an entry with the address, author and year."""
    cite = data.DATASETS[name].cite
    works = bibliography.works_in(cite)
    text = re.sub(r"https://\S+", "", cite)
    dated = [x for x in text.split("; ") if re.search(r"\b(?:19|20)\d\d\b", x)]
    assert len(works) >= len(dated)
    if dated:
        addresses = re.findall(r"https://\S+[^\s.,;]", cite)
        assert all(bibliography.works_in(address) for address in addresses)
    for key in works:
        author = re.split(r"[, ]", field(key, "author"))[0]
        assert field(key, "year") in text or "images from ImageNet" in text
        assert author in text or "images from ImageNet" in text


@pytest.mark.parametrize(
    "preset", [x for x in jc.preset_names("config") if x not in PROTOCOLS]
)
def test_a_run_of_a_preset_cites_the_paper_in_the_presets_docstring(preset):
    file = pathlib.Path(jc.__file__).parents[1] / f"configs/{preset}.py"
    number = re.search(r"arXiv:(\d+\.\d+)", file.read_text("utf-8"))
    config = jc.to_dict(test_presets.load(preset))
    run = test_runs.bare_run(
        algorithm=jc.algorithm_name(config),
        variant=config["variant"],
        settings=config,
    )
    papers = bibliography.papers([run])
    cited = bibliography.cited_keys(papers)
    assert cited and papers.count("[") == papers.count("]")
    if number:
        assert {*bibliography.works_in(number[1])} <= {*cited}


def test_a_report_lists_the_papers_of_swad_and_dann(runs):
    test_runs.configure(runs / "erm", optim={"average": {"name": "swad"}})
    test_runs.configure(runs / "sagnet", algo={"name": "dann"})
    for name, algorithm in (("erm", "erm"), ("sagnet", "dann")):
        test_runs.change(
            runs / name,
            lambda rs, name=algorithm: [r._replace(algorithm=name) for r in rs],
        )
    study = test_runs.read_study(runs)
    assert study.algorithms == ("SWAD", "pAdaIN", "DANN")
    report = benchmark_page.report(study)
    papers = (
        "The runs use ERM [vapnik1998], SWAD [cha2021], pAdaIN [nuriel2021] and DANN "
        "[ganin2016]. The data sets are from [hermann2020]."
    )
    assert report.results["papers"] == papers
    assert papers in " ".join(report.files["methods.md"].split())
    keys = set(re.findall(r"@\w+\{(\w+),", report.files["methods.bib"]))
    assert {"cha2021", "ganin2016", "nuriel2021", "hermann2020", "jbias"} <= keys
    assert not keys & {"nam2021", "foret2021", "eastwood2022"}
    title = "title = {{SWAD}: domain generalization by seeking flat minima}"
    assert title in report.files["methods.bib"]


DOMAINBED = {
    "algo": {"name": "mldg", "variant": "domainbed"},
    "optim": {"sharpness": {"radius": 0.1}, "average": 0.99},
    "train": {"shift": {"level": "C6"}},
}
DEBIASED = {
    "algo": {"name": "debiased", "transfer": {"name": "vgg"}},
    "inputs": [
        {"name": "flip"},
        {"name": "half", "mix": {"name": "blur"}},
        {"name": "one_of", "kinds": ["fmix"]},
    ],
}


@cases.each(
    ("fields", "works"),
    [
        ({"algorithm": "dann"}, "DANN [ganin2016]"),
        ({"algorithm": "mine"}, ""),
        ({"settings": {"algo": {"name": "my/dann.py:make"}}}, ""),
        ({"settings": {"optim": 3, "inputs": "x", "stages": 4, "train": []}}, ""),
        (
            {"settings": DOMAINBED},
            (
                "MLDG [li2018learning; gulrajani2021], a moving average of the weights "
                "[kingma2015], SAM [foret2021] and a shift of an attribute [hu2021]"
            ),
        ),
        (
            {"settings": DEBIASED},
            (
                "Debiased [li2021], blur [chen2020], one of [wightman2021], FMix "
                "[harris2020] and AdaIN [huang2017]"
            ),
        ),
    ],
)
def test_papers_follow_the_settings(fields, works):
    papers = bibliography.papers([test_runs.bare_run(**fields)])
    assert papers == (f"The runs use {works}." if works else "")
