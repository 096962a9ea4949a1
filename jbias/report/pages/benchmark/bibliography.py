"""The works that a report cites: entries of methods.bib, and those of the methods of runs.

A new algorithm, transform of inputs or average of weights needs a line in a table here, and its
papers an entry in methods.bib. A data set needs an entry alone: the text `cite` of its row in
jbias/data/tables/data_sets.json has the address or the title of the entry.
"""

import pathlib
import re
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jbias
from jbias.report import tables, workdirs

Works = Mapping[str, tuple[str, ...]]  # Keys of entries by the name of a method.

# By the name in config.algo.
ALGORITHMS: Works = types.MappingProxyType(
    {
        "cdann": ("li2018conditional", "gulrajani2021"),
        "coral": ("sun2016", "gulrajani2021"),
        "dann": ("ganin2016",),
        "debiased": ("li2021",),
        "dfr": ("kirichenko2023",),
        "dsu": ("li2022",),
        "efdmix": ("zhang2022",),
        "eqrm": ("eastwood2022",),
        "erm": ("vapnik1998",),
        "fishr": ("rame2022fishr",),
        "frozen_filters": ("gavrikov2023",),
        "group_dro": ("sagawa2020groups",),
        "infodrop": ("shi2020",),
        "irm": ("arjovsky2019",),
        "linear_probe": ("chen2020",),
        "mixstyle": ("zhou2021",),
        "mldg": ("li2018learning",),
        "mmd": ("li2018adversarial", "gulrajani2021"),
        "padain": ("nuriel2021",),
        "pgd": ("madry2018", "salman2020"),
        "reweight": ("sagawa2020over",),
        "rsc": ("huang2020",),
        "sagnet": ("nam2021",),
        "simclr": ("chen2020",),
        "vrex": ("krueger2021",),
    }
)
# By the name of an entry of config.inputs.
TRANSFORMS: Works = types.MappingProxyType(
    {
        "augmix": ("hendrycks2020",),
        "binary_targets": ("beyer2020",),
        "blur": ("chen2020",),
        "colour_jitter": ("howard2013",),
        "cutmix": ("yun2019",),
        "fmix": ("harris2020",),
        "gaussian_noise": ("rusak2020",),
        "grayscale": ("chen2020",),
        "lighting": ("krizhevsky2012",),
        "mixup": ("zhang2018",),
        "one_of": ("wightman2021",),
        "pixmix": ("hendrycks2022",),
        "rand_augment": ("cubuk2020",),
        "rand_conv": ("xu2021",),
        "random_erasing": ("zhong2020",),
        "random_masks": ("marcu2022", "harris2020"),
        "random_resized_crop": ("szegedy2015",),
        "smooth_labels": ("szegedy2016",),
        "stylize": ("geirhos2019",),
    }
)
# Transforms that are from no paper.
PLAIN_TRANSFORMS = frozenset(
    {"flip", "half", "pad_crop", "replace", "standardise_as", "views"}
)
# By the name in config.optim.average.
AVERAGES: Works = types.MappingProxyType(
    {"exponential": ("kingma2015",), "swad": ("cha2021",), "uniform": ("arpit2022",)}
)
# By the result of `workdirs.sharpness_name`.
SHARPNESS: Works = types.MappingProxyType(
    {"asam": ("kwon2021", "foret2021"), "sam": ("foret2021",)}
)
# By a part of config.variant, as presets write them: the name in the text, and the keys.
VARIANTS: Mapping[str, tuple[str, tuple[str, ...]]] = types.MappingProxyType(
    {
        "a1": ("recipe A1", ("wightman2021",)),
        "a2": ("recipe A2", ("wightman2021",)),
        "a3": ("recipe A3", ("wightman2021",)),
        "cae": ("DeepAugment", ("hendrycks2021many",)),
        "edsr": ("DeepAugment", ("hendrycks2021many",)),
        "erm_plusplus": ("ERM++", ("teterwak2025",)),
        "inter_dataset": ("inter-dataset mixing", ("marcu2022",)),
        "pod": ("LARS", ("you2017",)),
        "pod_sgd": ("SGD with large batches", ("goyal2017",)),
    }
)
# By the option `variant` of an algorithm.
_REIMPLEMENTED: Works = types.MappingProxyType(
    {"biasbed": ("kalischek2023",), "domainbed": ("gulrajani2021",)}
)
_TEXT_NAMES: Mapping[str, str] = types.MappingProxyType(
    {
        "exponential": "a moving average of the weights",
        "uniform": "the mean of the weights over steps",
    }
)


def _read_entries() -> dict[str, str]:
    """Return the BibTeX entries of the file methods.bib, by key."""
    path = pathlib.Path(__file__).parent / "methods.bib"
    entries = map(str.strip, path.read_text("utf-8").split("\n\n"))
    return {entry[entry.index("{") + 1 : entry.index(",")]: entry for entry in entries}


ENTRIES: Mapping[str, str] = types.MappingProxyType(_read_entries())


def cited_keys(text: str) -> list[str]:
    """Return the keys of `ENTRIES` that a text cites, in the order of their first occurrence.

    text: with citations such as "[friedman1937]" or "[iman1980; demsar2006]".
    """
    brackets = re.findall(r"\[([\w; ]+)\]", text)
    keys = [key for bracket in brackets for key in bracket.split("; ")]
    return [key for key in dict.fromkeys(keys) if key in ENTRIES]


def bibtex(keys: Sequence[str]) -> str:
    """Return the BibTeX entries of the works with these keys, and of jbias, as text."""
    fields = [
        "author = {{The jbias authors}}",
        "title = {jbias}",
        f"version = {{{jbias.__version__}}}",
    ]
    software = "@software{jbias,\n  " + ",\n  ".join(fields) + "\n}"
    entries = [*(ENTRIES[key] for key in keys), software]
    return "\n\n".join(entries) + "\n"


def papers(runs: Sequence[workdirs.Run]) -> str:
    """Return the sentences for a paper that cite the works of the runs' methods and data sets.

    "" if no work is known, as for runs of the user's own algorithm on the user's own images.
    """
    works: dict[str, tuple[str, ...]] = {}
    data_keys: dict[str, None] = {}
    for run in runs:
        works |= methods_of_run(run)
        for recorded in run.data.values():
            cite = recorded.get("cite") if isinstance(recorded, Mapping) else None
            data_keys |= dict.fromkeys(works_in(cite if isinstance(cite, str) else ""))
    sentences = []
    if works:
        named = [f"{name} [{'; '.join(keys)}]" for name, keys in works.items()]
        sentences.append(f"The runs use {tables.join(named)}.")
    if data_keys:
        sentences.append(f"The data sets are from [{'; '.join(data_keys)}].")
    return " ".join(sentences)


def works_in(citation: str) -> list[str]:
    """Return the keys of `ENTRIES` whose address or title is in the citation of a data set.

    An address is the number of an arXiv paper, a DOI or a URL.
    """
    plain = citation.lower()
    return [key for key, signs in _SIGNS.items() if any(x in plain for x in signs)]


def _signs(entry: str) -> tuple[str, ...]:
    """Return the addresses and the title of an entry, in lower case without braces."""
    addresses = re.findall(r"\b(?:eprint|doi|url) = \{([^{}]*)\}", entry)
    titles = re.findall(r"^\s*title = \{(.*)\},$", entry, re.MULTILINE)
    return tuple(re.sub("[{}]", "", text).lower() for text in (*addresses, *titles))


_SIGNS = {key: _signs(entry) for key, entry in ENTRIES.items()}


def methods_of_run(run: workdirs.Run) -> dict[str, tuple[str, ...]]:
    """Return the keys of the works of a run's methods, by name in the text.

    Methods are those of the stages (algorithm, transforms of inputs, average of weights, SAM), of
    the variant that a preset wrote, and a shift. Without settings, the recorded algorithm and
    variant alone. Methods that have no paper, and the user's own, are left out.
    """
    variant = run.variant.split("+") if run.variant else []
    variant = workdirs.confirmed(variant, run.settings)
    named = {VARIANTS[part] for part in variant if part in VARIANTS}
    works: dict[str, tuple[str, ...]] = {}
    for stage in workdirs.stages(run.settings) or _recorded_stages(run):
        works |= _of_stage(stage)
    if "erm_plusplus" in variant:
        # Its warm start is its own, not the linear evaluation of SimCLR.
        works.pop("linear probe", None)
    return works | dict(sorted(named))


def _recorded_stages(run: workdirs.Run) -> list[dict[str, Any]]:
    """Return settings with the names of a run's recorded algorithms, stage by stage."""
    return [{"algo": {"name": name}} for name in run.algorithm.split("+")]


def _of_stage(stage: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the keys of the works of one stage's methods, by name in the text."""
    algo, train, optim = (
        _mapping(stage.get(key)) for key in ("algo", "train", "optim")
    )
    inputs = [*_items(stage.get("inputs")), *_items(train.get("inputs"))]
    inputs += _items(_mapping(train.get("other")).get("inputs"))
    names = [
        (ALGORITHMS, algo.get("name")),
        *((TRANSFORMS, name) for name in _transforms(inputs)),
        (AVERAGES, workdirs.average_name(optim)),
        (SHARPNESS, workdirs.sharpness_name(optim)),
    ]
    works = {
        _text_name(name): keys_by_name[name]
        for keys_by_name, name in names
        if isinstance(name, str) and name in keys_by_name
    }
    reimplemented = _REIMPLEMENTED.get(str(algo.get("variant")))
    if reimplemented and algo.get("name") in ALGORITHMS:
        works[_text_name(algo["name"])] += reimplemented
    if any(_has_adain(options) for options in (algo, *inputs)):
        works["AdaIN"] = ("huang2017",)
    if train.get("shift"):
        works["a shift of an attribute"] = ("hu2021",)
    return works


def _text_name(name: str) -> str:
    """Return the name in the text of an algorithm, transform, average or "sam"."""
    paper_name = workdirs.NAMES.get(name) or workdirs.NAMES.get(f"erm ({name})")
    return paper_name or _TEXT_NAMES.get(name) or name.replace("_", " ")


def _transforms(inputs: Sequence[Any]) -> Iterator[str]:
    """Yield the names of transforms, and of those inside `half` and `one_of`."""
    for options in map(_mapping, inputs):
        name = options.get("name")
        if isinstance(name, str):
            yield name
        if name == "one_of":
            yield from options.get("kinds", ("mixup", "cutmix"))
        if name == "half":
            yield from _transforms([options.get("mix")])


def _has_adain(options: Any) -> bool:
    """Return True if options have a style transfer by AdaIN: `vgg` or `small`."""
    transfer = _mapping(_mapping(options).get("transfer"))
    return transfer.get("name") in ("vgg", "small")


def _mapping(value: Any) -> Mapping[str, Any]:
    """Return the value if it is a mapping, else an empty mapping."""
    return value if isinstance(value, Mapping) else {}


def _items(value: Any) -> list[Any]:
    """Return the items of a list or tuple; [] for other values."""
    return list(value) if isinstance(value, list | tuple) else []
