r"""Write docs/vision-language-models.md, its figures and its numbers.

    python -m studies.vision_language

Reads the stored answers (see `studies.standing_table store`) and the text of the page
in studies/vision_language.md, which has a field for every number. Writes
studies/results/vision-language.json (all numbers), OUT/vision-language-models.md,
OUT/vision-language-models.svg and OUT/vision-language-readers.svg.

Takes about ten seconds on two cores.
"""

import itertools
import json
import math
import pathlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.stats
from jaxtyping import Bool

from jbias import stats
from jbias.answers import letter_answers, observers
from jbias.report import plots
from jbias.stats import multiple_testing, rank_intervals, ratios
from studies import command, prose, standing_table, stored_answers

TEMPLATE = pathlib.Path(__file__).with_suffix(".md")
PAGE, FIGURE, READERS_FIGURE = (
    "vision-language-models.md",
    "vision-language-models.svg",
    "vision-language-readers.svg",
)
NUMBERS = command.RESULTS / "vision-language.json"
CHOICE, CAPTIONS = "vlm/vqa", "vlm/captioning"
READER_TITLES = {  # Readers of captions; the first is the one in answers.csv.
    "embedding": "nearest class (embedding)",
    "judge": "language model as judge",
    "plurals": "names of classes, and plurals",
    "words": "names of classes only",
}
READERS = (*READER_TITLES,)
GROUP_TITLES = {
    "people": "people",
    "choice": "VLMs, multiple choice",
    "captions": "VLMs, captions (published labels)",
    "clip": "CLIPs, 80 templates",
    "vit": "ViTs, classifiers of ImageNet",
    "cnn": "CNNs, classifiers of ImageNet",
}
LEVEL = 0.05
# The CLIP that a VLM's image encoder was before it was trained with language.
_VIT336, _VIT224 = "clip/ViT_L_14_336_openai", "clip/ViT_L_14_openai"
_EVA01 = "clip/EVA01_g_14_laion400m_s11b_b41k"
_EVA02 = "clip/EVA02_E_14_plus_laion2b_s9b_b144k"
ENCODERS = {
    "emu2_chat": _EVA02,
    "instructblip_flan_t5_xl": _EVA01,
    "instructblip_vicuna_7b": _EVA01,
    "llava_1_5_13b": _VIT336,
    "llava_1_5_7b": _VIT336,
    "llava_1_6_34b": _VIT336,
    "llava_1_6_vicuna_13b": _VIT336,
    "llava_1_6_vicuna_7b": _VIT336,
    "llava_rlhf_1_5_13b": _VIT336,
    "llava_rlhf_1_5_7b": _VIT224,
    "moe_llava_phi2": _VIT336,
    "moe_llava_qwen": _VIT336,
    "moe_llava_stablelm": _VIT336,
}
# The same encoder fine-tuned as a classifier of ImageNet.
CLASSIFIERS = {
    _VIT336: "inet_classifier/vit_large_patch14_clip_336.openai_ft_in12k_in1k",
    _VIT224: "inet_classifier/vit_large_patch14_clip_224.openai_ft_in1k",
}
# All CLIPs that were fine-tuned as classifiers of ImageNet.
FINE_TUNED = (
    *CLASSIFIERS.values(),
    "inet_classifier/vit_large_patch14_clip_224.openai_ft_in12k_in1k",
)
_VIT_B = "inet_classifier/vit_base_patch16_224.orig_in21k_ft_in1k"
_LLAVA_RLHF = "https://arxiv.org/abs/2309.14525"
_LLAVA_NEXT = "https://llava-vl.github.io/blog/2024-01-30-llava-next/"
_UNFROZEN = "https://github.com/haotian-liu/LLaVA/issues/1214"
# Who says which encoder: (models, whether it was trained with the VLM, source as Markdown).
ENCODER_SOURCES = (
    (
        ("llava_1_5_7b", "llava_1_5_13b"),
        "no",
        "[Liu et al. 2023](https://arxiv.org/abs/2310.03744)",
    ),
    (
        ("llava_1_6_vicuna_7b", "llava_1_6_vicuna_13b", "llava_1_6_34b"),
        f"yes ([`unfreeze_mm_vision_tower`]({_UNFROZEN}))",
        f"[LLaVA-NeXT 2024]({_LLAVA_NEXT})",
    ),
    (
        ("llava_rlhf_1_5_13b",),
        "not checked",
        f"[Sun et al. 2023]({_LLAVA_RLHF}), by the checkpoint's name (13b-v1.5-336)",
    ),
    (
        ("llava_rlhf_1_5_7b",),
        "not checked",
        f"[Sun et al. 2023]({_LLAVA_RLHF}), by the checkpoint's name (7b-v1.5-224)",
    ),
    (
        ("moe_llava_phi2", "moe_llava_qwen", "moe_llava_stablelm"),
        "not checked",
        "[Lin et al. 2024](https://arxiv.org/abs/2401.15947)",
    ),
    (
        ("instructblip_vicuna_7b", "instructblip_flan_t5_xl"),
        "no",
        "[Dai et al. 2023](https://arxiv.org/abs/2305.06500)",
    ),
    (
        ("emu2_chat",),
        "yes, in the first stage",
        "[Sun et al. 2024](https://arxiv.org/abs/2312.13286)",
    ),
)
PROMPTS = ("None", "CLS", "a_photo_of_a_CLS.")  # Of a CLIP, in names of files.


class Marks(NamedTuple):
    """The decisions of an observer about the images with a conflict."""

    shape: Bool[np.ndarray, "n"]  # For the class of the shape.
    either: Bool[np.ndarray, "n"]  # For the class of the shape or of the texture.
    unanswered: Bool[np.ndarray, "n"]

    @property
    def bias(self) -> float:
        """The shape bias."""
        return float(self.shape.sum() / self.either.sum())


class Pair(NamedTuple):
    """A difference in shape bias of two observers on the same images."""

    first: str
    second: str
    difference: float
    lower: float
    upper: float
    pvalue: float
    adjusted: float  # Holm's, over the pairs that were compared together.


class Study:
    """The stored answers, and what the page computes from them."""

    def __init__(self, answers: pd.DataFrame, captions: pd.DataFrame):
        self.answers = answers.set_index("observer")
        self.table = standing_table.numbers(answers).set_index("observer")
        label, texture = letter_answers.cues()
        is_conflict = label != texture
        self.shape, self.texture = label[is_conflict], texture[is_conflict]
        names = np.array(letter_answers.images())[is_conflict]
        self.pictures = [*np.char.partition(names, "-")[:, [0, 2]].T]
        texts = dict(zip(answers["observer"], answers["answers"], strict=True))
        for row in captions.itertuples():
            texts[f"{row.observer}:{row.reader}"] = row.answers
        self.letters = {
            name: np.array([*text])[is_conflict] for name, text in texts.items()
        }
        self.marks = {
            name: self._mark(letter_answers.decode(text)[is_conflict])
            for name, text in texts.items()
        }

    def _mark(self, decision: np.ndarray) -> Marks:
        """Return the marks of decisions about the images with a conflict."""
        is_shape, is_texture = decision == self.shape, decision == self.texture
        return Marks(is_shape, is_shape | is_texture, decision == observers.NO_ANSWER)

    def group(self, name: str) -> list[str]:
        """Return the observers of a group, the largest shape bias first."""
        return [*self.table.index[self.table["group"] == name]]

    def bias(self, name: str) -> float:
        """Return the shape bias of an observer, or of a reading "observer:reader"."""
        return self.marks[name].bias

    def title(self, name: str) -> str:
        """Return the readable name of an observer's model."""
        return self.answers.loc[name.partition(":")[0], "model"]

    def compare(self, pairs: Iterable[tuple[str, str]]) -> list[Pair]:
        """Return the difference of each pair, first less second, adjusted over all of them."""
        compared = []
        for first, second in pairs:
            marks = self.marks[first], self.marks[second]
            result = ratios.compare_ratios(
                np.stack([x.shape for x in marks]), np.stack([x.either for x in marks])
            )
            pair = Pair(
                first=first,
                second=second,
                difference=float(result.difference[0]),
                lower=float(result.lower[0]),
                upper=float(result.upper[0]),
                pvalue=float(result.pvalue[0]),
                adjusted=math.nan,
            )
            compared.append(pair)
        adjusted = multiple_testing.adjust([pair.pvalue for pair in compared], "holm")
        return [
            pair._replace(adjusted=float(p))
            for pair, p in zip(compared, adjusted, strict=True)
        ]


def is_different(pair: Pair) -> bool:
    """Return True if a pair differs after Holm's adjustment."""
    return pair.adjusted <= LEVEL


def count_signs(pairs: Sequence[Pair]) -> dict[str, int]:
    """Return the numbers of pairs: all, and larger, smaller and differing after Holm."""
    return {
        "all": len(pairs),
        "unadjusted": sum(pair.pvalue <= LEVEL for pair in pairs),
        "larger": sum(is_different(x) and x.difference > 0 for x in pairs),
        "smaller": sum(is_different(x) and x.difference < 0 for x in pairs),
        "different": sum(map(is_different, pairs)),
    }


def spread(values: Iterable[float]) -> dict[str, float]:
    """Return mean, lowest and highest of values."""
    values = [*values]
    return {
        "mean": float(np.mean(values)),
        "low": float(min(values)),
        "high": float(max(values)),
    }


def ranking(study: Study) -> dict[str, Any]:
    """Return ranks and pairs of the models that chose an option."""
    names = study.group(CHOICE)
    shape = np.stack([study.marks[name].shape for name in names])
    either = np.stack([study.marks[name].either for name in names])
    ranks = rank_intervals.rank_intervals(shape, either)
    percentiles = rank_intervals.naive_rank_percentiles(shape, either)
    pairs = study.compare(itertools.combinations(names, 2))
    by_names = {(pair.first, pair.second): pair for pair in pairs}
    neighbours = [by_names[pair] for pair in itertools.pairwise(names)]
    middle = 8  # The ninth.
    return {
        "models": len(names),
        "pairs": count_signs(pairs),
        "neighbours_all": len(neighbours),
        "neighbours": sum(pair.pvalue <= LEVEL for pair in neighbours),
        "ranks": {
            name: [int(ranks.rank[i]), int(ranks.lower[i]), int(ranks.upper[i])]
            for i, name in enumerate(names)
        },
        "ninth": {
            "model": study.title(names[middle]),
            "bias": study.bias(names[middle]),
            "rank": [int(ranks.lower[middle]), int(ranks.upper[middle])],
            "percentiles": [int(x) for x in percentiles[middle]],
        },
        "ninth_before": int(ranks.lower[middle]) - 1,
        "ninth_after": len(names) - int(ranks.upper[middle]),
        "answered": len(names) - 1,  # All but GPT-4V, see `unanswered`.
        "mean_width": float(np.mean(ranks.upper - ranks.lower + 1)),
    }


def pictures(study: Study) -> dict[str, Any]:
    """Return how many pairs differ if shapes and textures are counted as drawn, too."""
    names = study.group(CHOICE)
    shape = np.stack([study.marks[name].shape for name in names])
    either = np.stack([study.marks[name].either for name in names])
    pairs = ratios.compare_ratios(shape, either, clusters=study.pictures)
    shapes, textures = (len(np.unique(names)) for names in study.pictures)
    return {
        "shapes": shapes,
        "textures": textures,
        "unadjusted": int(np.sum(pairs.pvalue <= LEVEL)),
        "different": int(np.sum(pairs.adjusted <= LEVEL)),
    }


def encoders(study: Study) -> dict[str, Any]:
    """Return VLMs compared with their image encoders."""
    results = {}
    for task, group in (("choice", CHOICE), ("captions", CAPTIONS)):
        for number, prompt in enumerate(PROMPTS):
            pairs = study.compare(
                (f"{group}/{name}", f"{encoder}_{prompt}")
                for name, encoder in ENCODERS.items()
            )
            results[f"{task}_{number}"] = count_signs(pairs) | {
                "difference": spread(pair.difference for pair in pairs),
                "above": sum(pair.difference > 0 for pair in pairs),
                "names_larger": _names(study, pairs, sign=1),
                "names_smaller": _names(study, pairs, sign=-1),
            }
        pairs = study.compare(
            (f"{group}/{name}", CLASSIFIERS[encoder])
            for name, encoder in ENCODERS.items()
            if encoder in CLASSIFIERS
        )
        results[f"{task}_classifier"] = count_signs(pairs) | {
            "difference": spread(pair.difference for pair in pairs)
        }
    pairs = study.compare(
        (f"{CHOICE}/{name}", max(FINE_TUNED, key=study.bias))
        for name, encoder in ENCODERS.items()
        if encoder in CLASSIFIERS
    )
    results["choice_largest_fine_tuned"] = count_signs(pairs)
    results["fine_tuned"] = "; ".join(
        f"{study.bias(name):.3f} ({study.title(name)})"
        for name in sorted(FINE_TUNED, key=study.bias)
    )
    encoder_names = sorted({*ENCODERS.values()})
    results["agreement"] = agreement(study)
    results["base"] = study.bias(f"{_VIT336}_None")
    results["zero_shot"] = spread(study.bias(f"{x}_None") for x in encoder_names)
    results["classifier"] = spread(map(study.bias, CLASSIFIERS.values()))
    siblings = [
        f"{CHOICE}/{x}" for x, encoder in ENCODERS.items() if encoder == _VIT336
    ]
    results["same_encoder"] = spread(map(study.bias, siblings)) | {
        "models": len(siblings)
    }
    return results


def agreement(study: Study) -> dict[str, Any]:
    """Return the share of images on which a VLM decides as its encoder, and as other encoders.

    The encoder is read by 80 templates. The two sizes of CLIP ViT-L/14 are one encoder here. Of
    all other published CLIPs, the one that decides most similarly is compared, on the same images.
    """
    clips = {
        name.removesuffix("_None")
        for name in study.letters
        if name.startswith("clip/") and name.endswith("_None")
    } - {_VIT224}
    own_shares, other_shares, pvalues = [], [], []
    for name, encoder in ENCODERS.items():
        letters = study.letters[f"{CHOICE}/{name}"]
        agreements = {x: letters == study.letters[f"{x}_None"] for x in sorted(clips)}
        own_same = agreements.pop(_VIT336 if encoder == _VIT224 else encoder)
        other_same = max(agreements.values(), key=np.sum)
        both = np.stack([own_same, other_same])
        result = ratios.compare_ratios(both, np.ones_like(both))
        pvalues.append(float(result.pvalue[0]))
        own_shares.append(float(own_same.mean()))
        other_shares.append(float(other_same.mean()))
    adjusted = multiple_testing.adjust(pvalues, "holm")
    return {
        "own": spread(own_shares),
        "other": spread(other_shares),
        "own_is_largest": sum(
            x > y for x, y in zip(own_shares, other_shares, strict=True)
        ),
        "models": len(own_shares),
        "others": len(clips) - 1,
        "different": int(
            np.sum((adjusted <= LEVEL) & (np.array(own_shares) > other_shares))
        ),
    }


def _names(study: Study, pairs: Iterable[Pair], *, sign: int) -> str:
    """Return the models of pairs that differ after Holm with this sign, in words."""
    names = [
        study.title(pair.first)
        for pair in pairs
        if is_different(pair) and sign * pair.difference > 0
    ]
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def tasks(study: Study) -> dict[str, Any]:
    """Return the same models with both tasks: captions less multiple choice, by reader."""
    models = [name.rpartition("/")[2] for name in study.group(CHOICE)]
    results: dict[str, Any] = {"models": len(models)}
    for reader in READERS:
        pairs = study.compare(
            (reading(f"{CAPTIONS}/{model}", reader), f"{CHOICE}/{model}")
            for model in models
        )
        results[reader] = count_signs(pairs) | {
            "difference": spread(pair.difference for pair in pairs),
            "above": sum(pair.difference > 0 for pair in pairs),
            "size": float(np.mean([abs(pair.difference) for pair in pairs])),
        }
    choice, captions = (
        pd.Series([study.bias(f"{group}/{x}") for x in models])
        for group in (CHOICE, CAPTIONS)
    )
    results["correlation"] = _correlation(choice, captions)["rho"]
    return results


def reading(name: str, reader: str) -> str:
    """Return the name of a reading of an observer's captions."""
    return name if reader == READERS[0] else f"{name}:{reader}"


def readers(study: Study) -> dict[str, Any]:
    """Return how much the shape bias depends on who reads the captions."""
    names = study.group(CAPTIONS)
    results: dict[str, Any] = {"models": len(names)}
    for reader in READERS:
        readings = [study.marks[reading(name, reader)] for name in names]
        results[reader] = {
            "bias": spread(marks.bias for marks in readings),
            "decisions": spread(marks.either.mean() for marks in readings),
            "unanswered": spread(marks.unanswered.mean() for marks in readings),
        }
    for first, second in itertools.combinations(READERS, 2):
        pairs = study.compare((reading(x, second), reading(x, first)) for x in names)
        key = f"{second}_{first}"
        results[key] = count_signs(pairs) | {
            "difference": spread(pair.difference for pair in pairs)
        }
        largest = max(pairs, key=lambda pair: abs(pair.difference))
        results[f"{key}_largest"] = {
            "model": study.title(largest.first),
            "first": study.bias(largest.second),
            "second": study.bias(largest.first),
        }
        first_biases, second_biases = (
            pd.Series([study.bias(reading(name, reader)) for name in names])
            for reader in (first, second)
        )
        correlation = _correlation(first_biases, second_biases)
        results[f"{key}_correlation"] = correlation["rho"]
    shift = results["words_plurals"]["difference"]["mean"]
    biases = [study.bias(name) for name in names]
    gaps = [abs(x - y) for x, y in itertools.combinations(biases, 2)]
    results["gaps"] = {
        "all": len(gaps),
        "smaller": sum(gap < shift for gap in gaps),
        "shift": shift,
    }
    return results | _forced(study, names) | _agreement(study, names)


def _forced(study: Study, names: Sequence[str]) -> dict[str, Any]:
    """Return the published labels of captions in which the judge found no class, pooled."""
    shape = either = images = 0
    with_class = [0, 0]
    for name in names:
        marks = study.marks[name]
        letters = study.letters[reading(name, "judge")]
        has_no_class = letters == letter_answers.NONE
        images += int(has_no_class.sum())
        shape += int(marks.shape[has_no_class].sum())
        either += int(marks.either[has_no_class].sum())
        with_class[0] += int(marks.shape[~has_no_class].sum())
        with_class[1] += int(marks.either[~has_no_class].sum())
    return {
        "forced": {
            "captions": images,
            "share": images / (len(names) * len(study.shape)),
            "decisions": either / images,
            "bias": shape / either,
        },
        "with_class_bias": with_class[0] / with_class[1],
    }


def _agreement(study: Study, names: Sequence[str]) -> dict[str, Any]:
    """Return how often readers who both name one class of a caption name the same."""
    results = {}
    for first, second in itertools.combinations(READERS, 2):
        num_same = num_both = 0
        for name in names:
            letters = [study.letters[reading(name, x)] for x in (first, second)]
            is_named = np.isin(letters, [*letter_answers.DIGITS]).all(0)
            num_both += int(is_named.sum())
            num_same += int((is_named & (letters[0] == letters[1])).sum())
        results[f"agree_{second}_{first}"] = {
            "captions": num_both,
            "share": num_same / num_both,
        }
    return results


def prompts(study: Study) -> dict[str, Any]:
    """Return the same CLIPs with three prompts."""
    models = sorted({x.rpartition("_None")[0] for x in study.group("clip")} - {""})
    models = [x for x in models if f"{x}_None" in study.marks]
    pairs = [
        pair
        for model in models
        for pair in itertools.combinations([f"{model}_{x}" for x in PROMPTS], 2)
    ]
    compared = study.compare(pairs)
    ranges = [np.ptp([study.bias(f"{x}_{p}") for p in PROMPTS]) for x in models]
    return {
        "models": len(models),
        "pairs": count_signs(compared),
        "range": spread(ranges),
        "end": max(max(abs(pair.lower), abs(pair.upper)) for pair in compared),
        "between": spread(study.bias(f"{x}_None") for x in models),
        "shares": components({x: [f"{x}_{p}" for p in PROMPTS] for x in models}, study),
    }


def components(
    levels: Mapping[str, Sequence[str]], study: Study
) -> dict[str, float | int]:
    """Return variance components of the shape bias: shares of models, of levels, and the rest.

    levels: the same number of observers (or readings) for each model.
    """
    rows = [
        {"model": model, "level": level, "score": study.bias(name)}
        for model, names in levels.items()
        for level, name in enumerate(names)
    ]
    result = stats.sources_of_variance(
        pd.DataFrame(rows), sources=("model", "level"), score="score"
    )
    total = float(result.total.value)
    model, level = (float(x) / total for x in result.component)
    return {
        "model": model,
        "level": level,
        "rest": 1 - model - level,
        "deviation": math.sqrt(total),
    }


def variances(study: Study) -> dict[str, Any]:
    """Return variance components of models and tasks, and of models and readers."""
    models = [name.rpartition("/")[2] for name in study.group(CHOICE)]
    groups = {x: [f"{CHOICE}/{x}", f"{CAPTIONS}/{x}"] for x in models}
    by_reader = {
        x: [reading(x, reader) for reader in READERS] for x in study.group(CAPTIONS)
    }
    return {
        "task": components(groups, study),
        "reader": components(by_reader, study),
    }


def transformers(study: Study) -> dict[str, Any]:
    """Return VLMs by multiple choice compared with ViTs that are classifiers of ImageNet."""
    vits = [*study.table.index[study.table["kind"] == "ViT"]]
    pairs = study.compare(itertools.product(study.group(CHOICE), vits))
    (gpt,) = study.compare([(f"{CHOICE}/openai_vision", _VIT_B)])
    return {
        "models": len(vits),
        "fine_tuned_clips": len({*vits} & {*FINE_TUNED}),
        "pairs": count_signs(pairs),
        "gpt": {
            "model": study.title(_VIT_B),
            "bias": study.bias(_VIT_B),
            "pvalue": gpt.pvalue,
        },
    }


def unanswered(study: Study) -> dict[str, Any]:
    """Return the bounds of the shape bias if all unanswered images had one cue."""
    gpt = f"{CHOICE}/openai_vision"
    answering = [name for name in study.group(CHOICE) if name != gpt]
    judged = {
        name: bounds(study.marks[reading(name, "judge")])
        for name in study.group(CAPTIONS)
    }
    widest = max(judged, key=lambda name: np.ptp(judged[name]))
    marks = study.marks[reading(widest, "judge")]
    return {
        "gpt": {
            "bias": study.bias(gpt),
            "decisions": int(study.marks[gpt].either.sum()),
            "unanswered": int(study.marks[gpt].unanswered.sum()),
            "bounds": bounds(study.marks[gpt]),
        },
        "others": max(int(study.marks[name].unanswered.sum()) for name in answering),
        "next": {
            "model": study.title(answering[-1]),
            "bias": study.bias(answering[-1]),
        },
        "judged": {
            "model": study.title(widest),
            "bias": marks.bias,
            "unanswered": int(marks.unanswered.sum()),
            "bounds": judged[widest],
        },
        "judged_width": spread(float(np.ptp(ends)) for ends in judged.values()),
    }


def bounds(marks: Marks) -> tuple[float, float]:
    """Return the shape bias if all unanswered images were decided for texture, and for shape."""
    total = int(marks.either.sum() + marks.unanswered.sum())
    shape = int(marks.shape.sum())
    return shape / total, (shape + int(marks.unanswered.sum())) / total


def people(study: Study) -> dict[str, Any]:
    """Return shape bias, accuracy and consistency with people of all groups."""
    table = study.table
    is_person, is_choice = (table["group"] == x for x in ("people", CHOICE))
    choice = table[is_choice]
    sin = table.loc["texture-vs-shape/resnet50-train-60-epochs"]
    by_group = {}
    for name, is_member in (
        ("people", is_person),
        ("choice", is_choice),
        ("captions", table["group"] == CAPTIONS),
        (
            "clip",
            table["prompt"] == "80 templates",
        ),
        ("cnn", (table["kind"] == "CNN") & (table.index != sin.name)),
        ("vit", table["kind"] == "ViT"),
    ):
        members = table[is_member]
        by_group[name] = {
            column: spread(members[column])
            for column in ("shape_bias", "accuracy", "like_people")
        } | {"observers": len(members)}
    alike = choice["like_people"].idxmax()
    biased = choice["shape_bias"].idxmax()
    return {
        "groups": by_group,
        "bias_accuracy": _correlation(choice["shape_bias"], choice["accuracy"]),
        "bias_decisions": _correlation(choice["shape_bias"], choice["decisions"]),
        "bias_like": _correlation(choice["shape_bias"], choice["like_people"]),
        "accuracy_like": _correlation(choice["accuracy"], choice["like_people"]),
        "alike": _facts(study, alike),
        "biased": _facts(study, biased),
        "stylized": _facts(study, sin.name),
        # Rounded outwards: the page says that no interval goes beyond these.
        "upper": math.ceil(100 * choice["upper"].max()) / 100,
        "people_lower": math.floor(100 * table.loc[is_person, "lower"].min()) / 100,
    }


def _correlation(x: pd.Series, y: pd.Series) -> dict[str, float]:
    """Return Spearman's correlation and its p-value."""
    result = scipy.stats.spearmanr(x, y)
    return {"rho": float(result.statistic), "pvalue": float(result.pvalue)}


def _facts(study: Study, name: str) -> dict[str, Any]:
    """Return the numbers of one observer."""
    row = study.table.loc[name]
    columns = ("shape_bias", "accuracy", "like_people", "decisions")
    return {"model": row["model"]} | {x: float(row[x]) for x in columns}


def results(study: Study) -> dict[str, Any]:
    """Return all numbers of the page, by section."""
    sections = (
        ranking,
        pictures,
        encoders,
        transformers,
        tasks,
        readers,
        prompts,
        variances,
        unanswered,
        people,
    )
    return {section.__name__: section(study) for section in sections}


def tables(study: Study) -> dict[str, str]:
    """Return the tables of the page as Markdown, by the names of their fields."""
    return {
        "table_models": _models_table(study),
        "table_encoders": _encoders_table(study),
        "table_readers": _readers_table(study),
        "table_captions": _captions_table(study),
        "table_groups": _groups_rows(study),
    }


def _models_table(study: Study) -> str:
    """Return the table of the models that chose an option."""
    ranks = ranking(study)["ranks"]
    rows = []
    for name in study.group(CHOICE):
        row, model = study.table.loc[name], name.rpartition("/")[2]
        encoder = ENCODERS.get(model)
        cells = (
            row["model"],
            f"{row['shape_bias']:.3f} [{row['lower']:.3f}, {row['upper']:.3f}]",
            "{} [{}, {}]".format(*ranks[name]),
            f"{row['decisions']:,}",
            str(row["unanswered"]),
            f"{row['accuracy']:.2f}",
            f"{row['like_people']:.2f}",
            f"{study.bias(f'{encoder}_None'):.3f}" if encoder else "–",
            f"{study.bias(f'{CAPTIONS}/{model}'):.3f}",
        )
        rows.append(cells)
    head = (
        "Model",
        "Shape bias",
        "Rank",
        "Decisions",
        "Unanswered",
        "Accuracy",
        "Like people",
        "Its encoder",
        "Captions",
    )
    return prose.markdown(head, rows)


def _encoders_table(study: Study) -> str:
    """Return the table of VLMs and their image encoders, with sources."""
    rows = []
    for models, is_trained, source in ENCODER_SOURCES:
        (encoder,) = {ENCODERS[model] for model in models}
        names = ", ".join(study.title(f"{CHOICE}/{model}") for model in models)
        rows.append((names, study.title(f"{encoder}_None"), is_trained, source))
    return prose.markdown(("VLM", "Image encoder", "Trained further", "Source"), rows)


def _readers_table(study: Study) -> str:
    """Return the table of readers of captions, over all models."""
    numbers, rows = readers(study), []
    for reader, title in READER_TITLES.items():
        bias, decisions = numbers[reader]["bias"], numbers[reader]["decisions"]
        cells = (
            title,
            f"{bias['mean']:.3f}",
            f"{bias['low']:.2f} to {bias['high']:.2f}",
            f"{100 * decisions['mean']:.0f} %",
            f"{100 * numbers[reader]['unanswered']['mean']:.0f} %",
        )
        rows.append(cells)
    head = (
        "Reader",
        "Mean shape bias",
        "Models",
        "Decided for a cue",
        "None or several",
    )
    return prose.markdown(head, rows)


def _captions_table(study: Study) -> str:
    """Return the table of models that described the images, with a column for each reader."""
    rows = [
        (
            study.title(name),
            *(f"{study.bias(reading(name, reader)):.3f}" for reader in READERS),
            f"{study.marks[reading(name, 'judge')].unanswered.sum():,}",
        )
        for name in study.group(CAPTIONS)
    ]
    head = ("Model", *READER_TITLES.values(), "None or several (judge)")
    return prose.markdown(head, rows)


def _groups_rows(study: Study) -> str:
    """Return the rows of the table of groups: mean, lowest and highest."""
    groups = people(study)["groups"]
    rows = []
    for name, title in GROUP_TITLES.items():
        cells = [
            "{mean:.2f} ({low:.2f} to {high:.2f})".format(**groups[name][column])
            for column in ("shape_bias", "accuracy", "like_people")
        ]
        title = f"{groups[name]['observers']} {title}"
        rows.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(rows)


def text(numbers: Mapping[str, Any], page_tables: Mapping[str, str]) -> str:
    """Return the page as Markdown; numbers: of `results`. page_tables: of `tables`."""
    return prose.fill(TEMPLATE.read_text("utf-8"), {**numbers, **page_tables})


def _estimates(
    study: Study, names: Mapping[str, str]
) -> dict[str, tuple[float, float, float]]:
    """Return shape bias and interval of observers by the titles of rows."""
    columns = ["shape_bias", "lower", "upper"]
    return {
        title: tuple(float(x) for x in study.table.loc[name, columns])
        for title, name in names.items()
    }


def figure(study: Study) -> str:
    """Return the figure of models with multiple choice, captions and their encoders, as SVG."""
    models = {study.title(x): x.rpartition("/")[2] for x in study.group(CHOICE)}
    estimates = {
        "multiple choice": _estimates(
            study, {title: f"{CHOICE}/{x}" for title, x in models.items()}
        ),
        "captions": _estimates(
            study, {title: f"{CAPTIONS}/{x}" for title, x in models.items()}
        ),
        "its image encoder as CLIP": {
            title: (study.bias(f"{ENCODERS[x]}_None"), math.nan, math.nan)
            for title, x in models.items()
            if x in ENCODERS
        },
    }
    return _draw([*models], estimates)


def readers_figure(study: Study) -> str:
    """Return the figure of the readers of captions as SVG."""
    names = {study.title(name): name for name in study.group(CAPTIONS)}
    estimates = {
        title: {
            row: (study.bias(reading(name, reader)), math.nan, math.nan)
            for row, name in names.items()
        }
        for reader, title in READER_TITLES.items()
    }
    return _draw([*names], estimates)


def _draw(rows: Sequence[str], estimates: Mapping[str, Mapping[str, tuple]]) -> str:
    """Return a figure with a row for each model and a lane for each name of `estimates`."""
    # Narrower than `plots.rows`: its letters would be too small on a phone.
    height = 0.34 * len(rows) + 0.6
    fig, ((axes,),) = plots.grid(1, [*estimates], cell=(0, height), alone=5.2)
    axes.set(ylim=(len(rows) - 0.5, -0.5))
    axes.set_yticks(range(len(rows)), rows)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("shape bias (0: texture, 1: shape)", **plots.ink())
    looks = {name: plots.marked(i) for i, name in enumerate(estimates)}
    legend = plots.in_lanes(axes, rows, estimates, looks, unit=1)
    plots.legend_above(fig, legend)
    return plots.to_svg(plots.laid_out(fig))


def main(argv: Sequence[str] | None = None) -> int:
    """Write the page, its figures and its numbers."""
    parser = command.parser("vision_language", __doc__)
    command.add_out(parser, "the page and its figures", pathlib.Path("docs"))
    args = parser.parse_args(argv)
    study = Study(stored_answers.read(), stored_answers.read_captions())
    numbers = results(study)
    NUMBERS.write_text(json.dumps(rounded(numbers), indent=1) + "\n", encoding="utf-8")
    print(f"written: {NUMBERS}")
    for name, content in (
        (PAGE, text(numbers, tables(study))),
        (FIGURE, figure(study)),
        (READERS_FIGURE, readers_figure(study)),
    ):
        (args.out / name).write_text(content, encoding="utf-8")
        print(f"written: {args.out / name}")
    return 0


def rounded(numbers: Any) -> Any:
    """Return nested numbers with six digits after the point."""
    if isinstance(numbers, Mapping):
        return {key: rounded(value) for key, value in numbers.items()}
    if isinstance(numbers, list | tuple):
        return [rounded(value) for value in numbers]
    return round(numbers, 6) if isinstance(numbers, float) else numbers


if __name__ == "__main__":
    sys.exit(main())
