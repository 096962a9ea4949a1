r"""No benchmark of speed: how often an audit finds a planted attribute, and no other.

Networks of the embedded set are trained under a shift of one attribute of seventeen that
have nothing to do with the class, at the extreme levels C6 (a conditional shift) and M4
(marginal), and at C0, which is none; these as long as the embedded set's preset says,
the others half as long. Each seed is audited by itself. The right answer: that attribute
first, with the kind that was planted; and without a plant, no attribute.

    python -m benchmarks.planted --workdir=runs/planted --seeds=10

An hour of two cores. The same command goes on where it was stopped.
"""

import argparse
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks import measured
from jbias import audit, study


class Plant(NamedTuple):
    """What a level plants, and how its networks are trained."""

    kind: str
    epochs: int
    every: str  # When they are evaluated.


PLANTS = {
    "C6": Plant("conditional", 8, "4 epochs"),
    "M4": Plant("marginal", 8, "4 epochs"),
    "C0": Plant("", 15, "5 epochs"),
}
EVEN = 0.0625  # Texture says nothing of the class.


def main(argv: Sequence[str] | None = None) -> None:
    """Trains, audits and writes the tally."""
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = made.add_argument
    add("--workdir", default="runs/planted", metavar="DIR")
    add("--attribute", default="background", metavar="NAME")
    add("--seeds", type=int, default=10, metavar="N")
    add("--images", type=int, default=4096, metavar="N", help="of each audit")
    add("--name", default="planted-cpu")
    add("--out", default=measured.RESULTS, type=pathlib.Path)
    options = made.parse_args(argv)
    for level, plant in PLANTS.items():
        _train(level, plant, options)
    found = {level: _audited(level, options) for level in PLANTS}
    rows = {level: _tally(found[level], level, options.attribute) for level in PLANTS}
    more = {key: getattr(options, key) for key in ("attribute", "images")}
    measured.write(
        options.name,
        {"tally": rows, "audits": found},
        _text(rows, options),
        ratios={},
        out=options.out,
        seeds=options.seeds,
        **more,
    )


def _train(level: str, plant: Plant, options: argparse.Namespace) -> None:
    recipe = f"correlation={EVEN},seeds={options.seeds},epochs={plant.epochs}"
    code = study.main(
        [
            f"--config=configs/erm.py:{recipe}",
            f"--workdir={options.workdir}",
            f"--attributes={options.attribute}",
            f"--levels={level}",
            f"--config.eval_every={plant.every}",
            f"--config.save_every={plant.every}",
        ]
    )
    if code:
        raise SystemExit(f"benchmarks: the networks of {level} were not trained")


def _audited(level: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """What the audit says of each seed: its accuracy, and who hurts, in order."""
    (run,) = pathlib.Path(options.workdir).glob(f"*/{options.attribute}/{level}")
    out = pathlib.Path(options.workdir) / "audits" / level
    data = {"factors": True, "correlation": EVEN, "n": options.images}
    code = audit.main(
        [
            f"--checkpoint={run}",
            "--apart",
            "--data=shapes",
            "--split=test",
            f"--out={out}",
            *(f"--data.{key}={value}" for key, value in data.items()),
        ]
    )
    if code:
        raise SystemExit(f"benchmarks: {run} could not be audited")
    listed = json.loads((out / "results.json").read_text())["models"]
    return [_told(out / one["folder"] / "results.json") for one in listed]


def _told(path: pathlib.Path) -> dict[str, Any]:
    told = json.loads(path.read_text())
    keys = ("attribute", "verdict", "kind", "drop", "drop_low", "drop_high", "p_holm")
    ranked = [{key: one[key] for key in keys} for one in told["ranked"]]
    return {"model": told["model"], "accuracy": told["accuracy"], "ranked": ranked}


def _tally(
    audits: Sequence[Mapping[str, Any]], level: str, attribute: str
) -> dict[str, Any]:
    """How many seeds are answered rightly."""
    first = [one["ranked"][0] for one in audits]
    bugs = [[r for r in one["ranked"] if r["verdict"] == "bug"] for one in audits]
    is_first = [r["attribute"] == attribute and r["verdict"] == "bug" for r in first]
    of_kind = [r["kind"] == PLANTS[level].kind for r in first]
    return {
        "seeds": len(audits),
        "candidates": len(audits[0]["ranked"]),
        "accuracy": [one["accuracy"] for one in audits],
        "first": sum(is_first),
        "first_and_kind": sum(map(all, zip(is_first, of_kind))),
        "others": sum(any(r["attribute"] != attribute for r in some) for some in bugs),
        "none": sum(not some for some in bugs),
        "drop": [r["drop"] for r in first],
        "next": [one["ranked"][1]["drop"] for one in audits],
    }


def _text(rows: Mapping[str, Mapping[str, Any]], options: argparse.Namespace) -> str:
    count = next(iter(rows.values()))["candidates"]
    lines = [
        (
            f"Planted: {options.attribute}, one of {count} candidates; {options.images:,}"
            " images of the embedded set are shown to each network."
        ),
        "",
        (
            "| planted | accuracy, % | ranked first, a bug | and of the right kind |"
            " another is a bug | none is a bug | drop of the first, points |"
        ),
        "|---|---|---|---|---|---|---|",
    ]
    for level, one in rows.items():
        n, low, high = one["seeds"], 100 * min(one["drop"]), 100 * max(one["drop"])
        accuracy = [100 * value for value in one["accuracy"]]
        cells = [
            f"{PLANTS[level].kind or 'nothing'} ({level})",
            f"{min(accuracy):.1f} to {max(accuracy):.1f}",
            *(f"{one[key]} of {n}" for key in ("first", "first_and_kind")),
            *(f"{one[key]} of {n}" for key in ("others", "none")),
            f"{low:.1f} to {high:.1f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
