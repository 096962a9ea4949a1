"""The results of a card as .eval_results/*.yaml, the form that the Hugging Face Hub reads.

Form: https://huggingface.co/docs/hub/eval-results, and eval_results.yaml of huggingface/hub-docs;
huggingface_hub reads it by `parse_eval_result_entries`. The Hub shows results on benchmarks alone: data
sets with an eval.yaml, whose tasks are named here by `task_id`. Texts are written as JSON, which is
YAML.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from jbias import errors
from jbias.cards import claims

FILE = ".eval_results/jbias.yaml"
_BENCHMARK = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(@[0-9a-f]{7,40})?")


def parse(benchmark: str, source: str = "") -> dict[str, str]:
    """Return the entry "hub" of card.json.

    benchmark: OWNER/NAME or OWNER/NAME@REVISION of a data set on the Hub. source: an address that
    the Hub links to, or "". ValueError for other texts.
    """
    must = "be OWNER/NAME or OWNER/NAME@REVISION, a data set on the Hugging Face Hub"
    errors.check(
        _BENCHMARK.fullmatch(benchmark) is not None, "--benchmark", must, benchmark
    )
    must = "begin with https:// and have no spaces"
    is_link = not source or re.fullmatch(r"https://\S+", source) is not None
    errors.check(is_link, "--source", must, source)
    name, _, revision = benchmark.partition("@")
    return {"benchmark": name, "revision": revision, "source": source}


def task_id(content: Mapping[str, Any], number: Mapping[str, Any]) -> str:
    """Return the task of a number: its name, with its set if several sets may have the name."""
    count = sum(x["name"] == number["name"] for x in content["numbers"])
    is_unique = count == 1 and number["neither"] is not None
    name = number["name"] if is_unique else f"{number['name']}_{number['set']}"
    return re.sub(r"[^A-Za-z0-9]+", "_", name)


def write(content: Mapping[str, Any]) -> str:
    """Return the results of a card as YAML; content: of card.json, with an entry "hub"."""
    hub = content["hub"]
    lines = []
    for number in content["numbers"]:
        if number["value"] is None or not claims.has_claim(content, number):
            continue
        lines += [
            "- dataset:",
            f"    id: {_quote(hub['benchmark'])}",
            f"    task_id: {_quote(task_id(content, number))}",
        ]
        if hub["revision"]:
            lines.append(f"    revision: {_quote(hub['revision'])}")
        lines += [
            f"  value: {number['value']:.6f}",
            f"  date: {_quote(content['date'])}",
        ]
        if hub["source"]:
            lines += [
                "  source:",
                f"    url: {_quote(hub['source'])}",
                '    name: "jbias card"',
            ]
        lines.append(f"  notes: {_quote(_notes(content, number))}")
    return "\n".join(lines) + "\n"


def _notes(content: Mapping[str, Any], number: Mapping[str, Any]) -> str:
    """Return the details of a number in words."""
    stimuli, unanswered = content["stimuli"][number["set"]], number["unanswered"]
    words = [
        f"n = {number['n']} {number['unit']}",
        f"{stimuli['name']}, {_images(stimuli)}, digest {stimuli['digest'][:16]}",
        f"{unanswered['count']} of {unanswered['n']} unanswered",
    ]
    if number["lower"] is not None and number["upper"] is not None:
        interval = f"{number['lower']:.4f} to {number['upper']:.4f}"
        words.insert(0, f"{interval} ({number['interval']})")
    if number["neither"]:
        neither = number["neither"]
        words.append(f"{neither['count']} of {neither['n']} for neither cue")
    words.append(f"jbias {content['versions']['jbias']}")
    return "; ".join([*words, *content["doubts"]])


def _images(stimuli: Mapping[str, Any]) -> str:
    """Return the number of images of a set, "640 of 1280 images" for a part of a published set."""
    total = stimuli["published"]
    part = "" if total in (None, stimuli["images"]) else f" of {total}"
    return f"{stimuli['images']}{part} images"


def _quote(text: str) -> str:
    """Return a text as YAML."""
    return json.dumps(text, ensure_ascii=False)
