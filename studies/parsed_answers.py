"""Compare the parser of raw responses with published readings of 17,920 responses.

    python -m studies.parsed_answers --decisions=DIR --out=FILE.json

Parses the responses to questions by multiple choice of 14 vision-language models about the 1,280
cue conflicts, and compares the classes with those that the authors published (`pred_label`).
Prints the agreement, and writes the agreement, the numbers of responses by the parser's rule,
and every response on which the two differ, with a judgement.

DIR is the folder `raw-data` of https://github.com/paulgavrikov/vlm_shapebias at 459198f.
Takes a few seconds on one core.
"""

import collections
import json
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from jbias.answers import columns, parsing, table_rows
from jbias.measures import cue_conflict
from studies import command

OUT = command.RESULTS / "parsed_answers.json"
SOURCE = (
    "Gavrikov et al., Can We Talk Models Into Seeing the World Differently?, ICLR 2025; "
    "https://github.com/paulgavrikov/vlm_shapebias at 459198f, raw-data/vlm/vqa; "
    "CC BY-SA 4.0"
)
# Verdict and reason by model and image, from reading each response.
JUDGEMENTS: Mapping[tuple[str, str], tuple[str, str]] = {
    ("instructblip_flan_t5_xl", "clock10-clock3"): (
        "ours",
        (
            "J is the clock, and all sentences are about a clock. The published reading is None; the "
            "first word is 'JnThe', with the letter n for a line break."
        ),
    ),
    ("instructblip_flan_t5_xl", "truck2-clock1"): (
        "published",
        (
            "The response gives J and a clock first, which fits, and then goes on to the other "
            "letters. Our parser counts the later letters as further answers, and is cautious."
        ),
    ),
    ("instructblip_flan_t5_xl", "elephant6-cat2"): (
        "ours",
        (
            "B is the bear, but the sentence after B names an elephant, and the later letters name "
            "further options: the response has no answer. The published reading is the letter alone."
        ),
    ),
    ("gemini_pro_vision", "elephant10-knife3"): (
        "ours",
        (
            "The sentence names a bird and the last line its letter, D. The published reading is "
            "None."
        ),
    ),
    ("llava_rlhf_1_5_13b", "knife7-boat3"): (
        "ours",
        "Both conclusions say that the best option is C. bicycle. The published reading is None.",
    ),
    ("llava_rlhf_1_5_13b", "knife3-knife1"): (
        "ours",
        (
            "The only class in the text is the clock, and the conclusion says so, without a letter. "
            "The published reading is None, as the question asked for a letter."
        ),
    ),
    ("llava_rlhf_1_5_13b", "clock1-truck3"): (
        "ours",
        "The response says that the correct option is G. car. The published reading is None.",
    ),
}


class Reading(NamedTuple):
    """A response with the published class and ours; "" for no answer."""

    file: str
    model: str
    image: str
    response: str
    published: str
    parsed: parsing.Parsed


def read(folder: pathlib.Path) -> Iterator[Reading]:
    """Yield the responses in the files of a folder; ValueError if the folder has no files."""
    paths = sorted((folder / "vlm/vqa").glob("*.csv"))
    if not paths:
        raise ValueError(
            f"--decisions: {folder} must have files vlm/vqa/*.csv, has none; give the folder "
            "raw-data"
        )
    for path in paths:
        rows = table_rows.read(str(path))
        where, header = next(rows)
        roles = columns.recognise(where, header, {})
        image, decision, raw = (
            header.index(name) for name in (roles.image, roles.decision, roles.raw)
        )
        for _, cells in rows:
            yield Reading(
                file=path.name,
                model=path.stem.split("_", 2)[2],
                image=cells[image],
                response=cells[raw],
                published=parsing.match_class(cells[decision], parsing.CLASSES16),
                parsed=parsing.parse(cells[raw]),
            )


def compare(readings: list[Reading]) -> dict[str, Any]:
    """Return the agreement, the numbers by rule, and each disagreement with its judgement."""
    differing = [x for x in readings if x.parsed.decision != x.published]
    rules = collections.Counter(x.parsed.rule or x.parsed.reason for x in readings)
    return {
        "source": SOURCE,
        "parser": parsing.VERSION,
        "responses": len(readings),
        "agreeing": len(readings) - len(differing),
        "agreement": (len(readings) - len(differing)) / len(readings),
        "responses_by_rule": dict(sorted(rules.items())),
        "echoes": _describe_echoes(readings),
        "disagreements": [_describe(x) for x in differing],
    }


def _describe(reading: Reading) -> dict[str, str]:
    """Return a disagreement as an entry of the result."""
    verdict, reason = JUDGEMENTS.get((reading.model, reading.image), ("", ""))
    return {
        "file": reading.file,
        "image": reading.image,
        "response": reading.response,
        "published": reading.published,
        "ours": reading.parsed.decision,
        "why_not": reading.parsed.reason,
        "right": verdict,
        "judgement": reason,
    }


def _describe_echoes(readings: list[Reading]) -> dict[str, Any]:
    """Return the effect of responses that are the list of options from A on.

    shape_bias: of the models with such responses; `as_published` with A as the answer, and
    `as_no_answer`.
    """
    echoes = [x for x in readings if _is_echo(x)]
    cues = collections.Counter(name for x in echoes for name in {*_cues(x)})
    num_agreeing = sum(
        not _is_echo(x) and x.parsed.decision == x.published for x in readings
    )
    biases = {}
    for model in sorted({x.model for x in echoes}):
        members = [x for x in readings if x.model == model]
        decisions = [x.parsed.decision for x in members]
        without = ["" if _is_echo(x) else x.parsed.decision for x in members]
        biases[model] = {
            "as_published": _shape_bias(members, decisions),
            "as_no_answer": _shape_bias(members, without),
        }
    return {
        "note": "Responses that list all options from A on. The published reading and ours take "
        "the first, airplane. As few of the images show an airplane, they may be echoes of the "
        "question: agreement_as_no_answer is the agreement if they had no answer.",
        "responses": len(echoes),
        "classes_of_their_images": dict(cues.most_common()),
        "agreement_as_no_answer": num_agreeing / len(readings),
        "shape_bias": biases,
    }


def _is_echo(reading: Reading) -> bool:
    """Return True for a response that lists the options from A on."""
    is_list = reading.parsed.rule == "first of a list"
    return is_list and reading.response.strip().startswith("A")


def _cues(reading: Reading) -> list[str]:
    """Return the classes of the shape and the texture of an image, from its name."""
    return [cue.rstrip("0123456789") for cue in reading.image.split("-")]


def _shape_bias(readings: list[Reading], decisions: list[str]) -> float:
    """Return the shape bias of decisions about the images of readings."""
    shape, texture = zip(*map(_cues, readings), strict=True)
    return round(cue_conflict.shape_bias(decisions, shape, texture).value, 4)


def main() -> None:
    """Compare, print the agreement and write the result."""
    parser = command.parser("parsed_answers", __doc__)
    parser.add_argument(
        "--decisions",
        type=pathlib.Path,
        required=True,
        metavar="DIR",
        help="folder with the published files, vlm/vqa/*.csv",
    )
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        default=OUT,
        metavar="FILE",
        help=f"file to write (default: {OUT.relative_to(command.ROOT)})",
    )
    options = parser.parse_args()
    try:
        readings = list(read(options.decisions))
    except ValueError as error:
        parser.error(str(error))
    result = compare(readings)
    text = json.dumps(result, indent=1, ensure_ascii=False) + "\n"
    options.out.write_text(text, encoding="utf-8")
    print(
        f"{result['agreeing']:,} of {result['responses']:,} responses are read as published "
        f"({result['agreement']:.2%}); {options.out} written"
    )


if __name__ == "__main__":
    main()
