"""Make the stored answers of the standing table from published files, and read and write them.

Answers are symbols, one per image, see `jbias.answers.letter_answers`. A row of answers.csv, which is
a file of the package jbias, is an observer: a person, or a model with one task and prompt.
studies/answers/captions.csv has further readings of the captions in answers.csv.
"""

import csv
import functools
import io
import pathlib
import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Int

from jbias import errors
from jbias.answers import letter_answers, observers, stimulus_names, submission_info
from jbias.answers import tables as decision_tables

FOLDER = pathlib.Path(__file__).parent / "answers"
CAPTIONS = FOLDER / "captions.csv"
COLUMNS = (
    "observer",
    "kind",
    "model",
    "task",
    "prompt",
    "group",
    "source",
    "licence",
    "decided_by",
    "file",
    "sha256",
    "answers",
)
CAPTION_COLUMNS = ("observer", "reader", "answers")
KINDS = ("person", "CNN", "ViT", "CLIP", "VLM", "other")
READERS = ("judge", "words", "plurals")  # Of captions, beside the published one.
PEOPLE = "people"  # Group of the persons that others are compared with.
GAVRIKOV = "https://github.com/paulgavrikov/vlm_shapebias"
GEIRHOS_2021 = "https://github.com/bethgelab/model-vs-human"
GEIRHOS_2019 = "https://github.com/rgeirhos/texture-vs-shape"


class Group(NamedTuple):
    """Properties that all observers of a folder of published files share."""

    kind: str
    task: str
    prompt: str
    source: str
    licence: str
    decided_by: str  # Step that made decisions of outputs.


NETWORKS_2019 = "texture-vs-shape"  # Group of the networks of Geirhos et al. 2019.
_SHARE_ALIKE, _NOT_STATED = "CC BY-SA 4.0", "none stated"
GROUPS = {
    "clip": Group(
        kind="CLIP",
        task="zero-shot",
        prompt="",
        source=GAVRIKOV,
        licence=_SHARE_ALIKE,
        decided_by="largest of the 16 classes",
    ),
    "inet_classifier": Group(
        kind="CNN",
        task="classifier",
        prompt="",
        source=GAVRIKOV,
        licence=_SHARE_ALIKE,
        decided_by="largest of the 16 classes, each the mean of its ImageNet classes",
    ),
    "vlm/vqa": Group(
        kind="VLM",
        task="multiple choice",
        prompt="16 options",
        source=GAVRIKOV,
        licence=_SHARE_ALIKE,
        decided_by="option that the response names",
    ),
    "vlm/captioning": Group(
        kind="VLM",
        task="captions",
        prompt="describe",
        source=GAVRIKOV,
        licence=_SHARE_ALIKE,
        decided_by="class whose text embedding is nearest to that of the caption",
    ),
    PEOPLE: Group(
        kind="person",
        task="multiple choice",
        prompt="",
        source=GEIRHOS_2021,
        licence=_NOT_STATED,
        decided_by="choice of one of the 16 classes",
    ),
    NETWORKS_2019: Group(
        kind="CNN",
        task="classifier",
        prompt="",
        source=GEIRHOS_2019,
        licence=_NOT_STATED,
        decided_by="ImageNet classes mapped to the 16 classes",
    ),
}
_CLIP_PROMPTS = {
    "none": "80 templates",
    "CLS": "{class}",
    "a_photo_of_a_CLS.": "a photo of a {class}.",
}
# Readable names by the names in the files.
MODELS = {
    "BAAI_EVA_CLIP_8B_448_None": "EVA-CLIP 8B, 448 px",
    "EVA01_g_14_laion400m_s11b_b41k": "EVA-01-CLIP g/14",
    "EVA02_E_14_plus_laion2b_s9b_b144k": "EVA-02-CLIP E/14+",
    "ViT_L_14_336_openai": "CLIP ViT-L/14, 336 px",
    "ViT_L_14_openai": "CLIP ViT-L/14",
    "clip_RN101_openai": "CLIP ResNet-101",
    "clip_RN50_openai": "CLIP ResNet-50",
    "resnet152": "ResNet-152 (timm)",
    "resnet50": "ResNet-50 (timm)",
    "tv_resnet50": "ResNet-50 (torchvision)",
    "vit_base_patch16_224.orig_in21k_ft_in1k": "ViT-B/16, ImageNet-21k and 1k",
    "vit_large_patch14_clip_224.openai_ft_in12k_in1k": (
        "CLIP ViT-L/14, fine-tuned on ImageNet-12k and 1k"
    ),
    "vit_large_patch14_clip_224.openai_ft_in1k": (
        "CLIP ViT-L/14, fine-tuned on ImageNet-1k"
    ),
    "vit_large_patch14_clip_336.openai_ft_in12k_in1k": (
        "CLIP ViT-L/14, 336 px, fine-tuned on ImageNet-12k and 1k"
    ),
    "cogagent_chat": "CogAgent",
    "cogvlm_chat": "CogVLM",
    "emu2_chat": "Emu2-Chat",
    "gemini_pro_vision": "Gemini Pro Vision 1.0",
    "instructblip_flan_t5_xl": "InstructBLIP Flan-T5-XL",
    "instructblip_vicuna_7b": "InstructBLIP Vicuna 7B",
    "internvl_chat": "InternVL-Chat 1.1",
    "internvl_chat_1_2_plus": "InternVL-Chat 1.2+",
    "llava_1_5_13b": "LLaVA-1.5 13B",
    "llava_1_5_7b": "LLaVA-1.5 7B",
    "llava_1_6_34b": "LLaVA-NeXT 34B",
    "llava_1_6_vicuna_13b": "LLaVA-NeXT 13B",
    "llava_1_6_vicuna_7b": "LLaVA-NeXT 7B",
    "llava_rlhf_1_5_13b": "LLaVA-RLHF 13B",
    "llava_rlhf_1_5_7b": "LLaVA-RLHF 7B",
    "moe_llava_phi2": "MoE-LLaVA Phi2",
    "moe_llava_qwen": "MoE-LLaVA Qwen",
    "moe_llava_stablelm": "MoE-LLaVA StableLM",
    "openai_vision": "GPT-4V (preview)",
    "qwen_chat": "Qwen-VL-Chat",
    "qwen_vl_max": "Qwen-VL-Max",
    "qwen_vl_plus": "Qwen-VL-Plus",
    "uform_gen_chat": "UForm-Gen-Chat",
}
_TRAINED_2019 = {  # Networks of Geirhos et al. 2019, by the names in the files.
    "resnet50": "ResNet-50 (Geirhos et al. 2019)",
    "densenet121": "DenseNet-121 (Geirhos et al. 2019)",
    "resnet50-train-60-epochs": "ResNet-50, Stylized-ImageNet",
}


def read(path: pathlib.Path = letter_answers.ANSWERS) -> pd.DataFrame:
    """Return the stored observers, a row each; ValueError for a file with a wrong row."""
    known = letter_answers.DIGITS + letter_answers.NONE + letter_answers.NO_ROW
    frame = pd.DataFrame(letter_answers.read(str(path), symbols=known))
    errors.check((*frame.columns,) == COLUMNS, path, f"have {COLUMNS}", frame.columns)
    for kind in frame["kind"]:
        errors.check_choice("kind", kind, KINDS)
    return frame


def read_captions(path: pathlib.Path = CAPTIONS) -> pd.DataFrame:
    """Return the further readings of captions, a row per observer and reader."""
    return pd.DataFrame(letter_answers.read(str(path)))


def panel(frame: pd.DataFrame) -> observers.Panel:
    """Return the decisions of the rows of `read`, in their order."""
    members = letter_answers.to_observers(frame.to_dict("records"))
    return observers.panels(members)[stimulus_names.CUE_CONFLICT]


def write(frame: pd.DataFrame, path: pathlib.Path = letter_answers.ANSWERS) -> None:
    """Write observers, in the order of groups and names."""
    ordered = frame.sort_values(["group", "observer"], kind="stable")
    path.write_text(format_csv(ordered), encoding="utf-8")


def format_csv(frame: pd.DataFrame) -> str:
    """Return a table as CSV; every cell that is no number is as it is, or quoted."""
    text = io.StringIO()
    frame.to_csv(text, index=False, lineterminator="\n", quoting=csv.QUOTE_MINIMAL)
    return text.getvalue()


def from_files(raw_data: pathlib.Path, people: pathlib.Path) -> pd.DataFrame:
    """Return the observers of published files, as rows of `read`.

    raw_data, people: the folders of --decisions and --people, see `standing_table`.
    """
    rows = []
    for group in ("clip", "inet_classifier", "vlm/captioning", "vlm/vqa"):
        for observer in decision_tables.read(str(raw_data / group)):
            rows.append(_row(observer, group, f"{group}/{_file_name(observer)}"))
    for observer in decision_tables.read(str(people)):
        group = PEOPLE if observer.name.startswith("subject") else NETWORKS_2019
        rows.append(_row(observer, group, _file_name(observer)))
    return pd.DataFrame(rows, columns=[*COLUMNS])


def captions_from_files(raw_data: pathlib.Path) -> pd.DataFrame:
    """Return further readings of the captions, as rows of `read_captions`.

    raw_data: the folder of --decisions, see `standing_table`. Readers: "judge", a language model
    that was asked which of the 16 objects the caption describes (published with the captions);
    "words", the names of the classes as whole words; "plurals", these or their plurals.
    """
    captions = str(raw_data / "vlm/captioning")
    judged = decision_tables.read(
        captions, parse="raw", columns={"raw": "pred_llm_judge"}
    )
    described = decision_tables.read(captions)
    rows = []
    for reader, members, read_classes in zip(
        READERS,
        (judged, described, described),
        (_letters, named_classes, functools.partial(named_classes, plurals=True)),
        strict=True,
    ):
        for observer in members:
            answers = np.full(len(letter_answers.images()), letter_answers.NO_ROW)
            place = {name: i for i, name in enumerate(letter_answers.images())}
            for name, response in zip(observer.images, observer.responses, strict=True):
                answers[place[name]] = _to_symbol(read_classes(response))
            rows.append(
                {
                    "observer": f"vlm/captioning/{observer.name}",
                    "reader": reader,
                    "answers": "".join(answers),
                }
            )
    frame = pd.DataFrame(rows, columns=[*CAPTION_COLUMNS])
    return frame.sort_values(["observer", "reader"])


def _to_symbol(classes: AbstractSet[int]) -> str:
    """Return the symbol of the only class of a set, or that of none or several."""
    if len(classes) == 1:
        return letter_answers.DIGITS[min(classes)]
    return letter_answers.SEVERAL if classes else letter_answers.NONE


def _letters(response: str) -> set[int]:
    """Return the ids of the classes whose letters stand alone in a judge's response."""
    return {ord(x) - ord("A") for x in re.findall(r"\b([A-P])\b", response)}


def named_classes(caption: str, *, plurals: bool = False) -> set[int]:
    """Return the ids of the classes whose names are whole words of a caption.

    plurals: True to count plurals, such as "clocks" and "knives", too.
    """
    words = set(re.findall(r"[a-z]+", caption.lower()))
    named = set()
    for number, name in enumerate(stimulus_names.CLASSES16):
        plural = f"{name[:-2]}ves" if name == "knife" else f"{name}s"
        if name in words or (plurals and plural in words):
            named.add(number)
    return named


def _aligned(observer: observers.Observer) -> Int[np.ndarray, "n"]:
    """Return the decisions of an observer about `letter_answers.images()`."""
    place = {name: i for i, name in enumerate(letter_answers.images())}
    decision = np.full(len(place), observers.NO_ROW, np.int32)
    decision[[place[name] for name in observer.images]] = observer.decision
    return decision


def from_submission(
    members: Sequence[observers.Observer], info: submission_info.Info
) -> pd.DataFrame:
    """Return the observers of an accepted submission, as rows of `read`."""
    rows = [
        {
            "observer": f"{letter_answers.SUBMISSIONS}/{observer.name}",
            "kind": info.kind,
            "model": observer.factors["model"],
            "task": observer.factors["task"],
            "prompt": observer.factors["prompt"],
            "group": letter_answers.SUBMISSIONS,
            "source": info.link,
            "licence": info.licence,
            "decided_by": info.decided_by,
            "file": pathlib.Path(observer.path).name,
            "sha256": observer.sha256,
            "answers": letter_answers.encode(_aligned(observer)),
        }
        for observer in members
    ]
    return pd.DataFrame(rows, columns=[*COLUMNS])


def _file_name(observer: observers.Observer) -> str:
    """Return the name of the file of an observer."""
    return pathlib.Path(observer.path).name


def _row(observer: observers.Observer, group: str, file: str) -> Mapping[str, str]:
    """Return the row of an observer of a published file."""
    common, name = GROUPS[group], observer.name
    if group == PEOPLE:
        model = f"person {int(name.rpartition('-')[2])}"
    elif group == NETWORKS_2019:
        model = _TRAINED_2019[name]
    else:
        model = MODELS[observer.factors["model"]]
    is_vit = group == "inet_classifier" and name.startswith("vit")
    prompt = observer.factors["prompt"]
    return {
        "observer": f"{group}/{name}",
        "kind": "ViT" if is_vit else common.kind,
        "model": model,
        "task": common.task,
        "prompt": _CLIP_PROMPTS[prompt] if prompt else common.prompt,
        "group": group,
        "source": common.source,
        "licence": common.licence,
        "decided_by": common.decided_by,
        "file": file,
        "sha256": observer.sha256,
        "answers": letter_answers.encode(_aligned(observer)),
    }
