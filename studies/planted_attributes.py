"""Measure how often an audit detects a planted attribute, and no other attribute.

    python -m studies.planted_attributes
    python -m studies.planted_attributes --attribute=size --workdir=runs/size --name=planted-size

Trains ResNet-18s on the embedded set `shapes` under a shift of one of its seventeen factors
(docs/data.md#factors-of-the-embedded-set), and audits each seed separately. There are three levels
(docs/shifts.md#a-shift): C6, an extreme conditional shift, and M4, an extreme marginal shift, with
8 epochs of training, and C0, no shift, with 15. The texture is independent of the class. An audit
is right if it ranks the planted attribute first, with the right kind of shift; at C0, if it
reports none. Writes OUT/NAME.json and OUT/NAME.md. Run the same command again to continue after an
interruption.

Takes about an hour on two cores (an estimate).
"""

import argparse
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks import result_files
from jbias import audit, study
from jbias.data.embedded import shapes
from studies import command


class Plant(NamedTuple):
    """The shift that a level plants, and the training of its networks.

    every: interval between evaluations.
    """

    kind: str
    epochs: int
    every: str


PLANTS = {
    "C6": Plant("conditional", 8, "4 epochs"),
    "M4": Plant("marginal", 8, "4 epochs"),
    "C0": Plant("", 15, "5 epochs"),
}
CORRELATION = 0.0625  # 1/16: texture is independent of the class.


def main(argv: Sequence[str] | None = None) -> None:
    """Train and audit the networks, write the tally."""
    parser = command.parser("planted_attributes", __doc__)
    add = parser.add_argument
    add(
        "--workdir",
        default="runs/planted",
        metavar="DIR",
        help="folder for the runs and audits (default: %(default)s)",
    )
    add(
        "--attribute",
        default="background",
        choices=shapes.FACTOR_NAMES,
        metavar="FACTOR",
        help=f"attribute to plant: {', '.join(shapes.FACTOR_NAMES)} (default: %(default)s)",
    )
    add(
        "--seeds",
        type=int,
        default=10,
        metavar="N",
        help="seeds (networks) per level (default: %(default)s)",
    )
    add(
        "--images",
        type=int,
        default=4096,
        metavar="N",
        help="test images in each audit (default: %(default)s)",
    )
    add(
        "--name",
        default="planted-cpu",
        help="file name of the results, without suffix (default: %(default)s)",
    )
    command.add_out(parser, "the results", command.RESULTS)
    options = parser.parse_args(argv)
    for level, plant in PLANTS.items():
        _train(level, plant, options)
    audits = {level: _audit(level, options) for level in PLANTS}
    tallies = {
        level: _tally(audits[level], level, options.attribute) for level in PLANTS
    }
    result_files.write(
        options.name,
        {"tally": tallies, "audits": audits},
        _text(tallies, options),
        ratios={},
        out=options.out,
        seeds=options.seeds,
        attribute=options.attribute,
        images=options.images,
    )


def _train(level: str, plant: Plant, options: argparse.Namespace) -> None:
    """Train the networks of a level."""
    recipe = f"correlation={CORRELATION},seeds={options.seeds},epochs={plant.epochs}"
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
        raise SystemExit(
            f"studies.planted_attributes: the networks of {level} were not trained"
        )


def _audit(level: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Audit each seed of a level; return accuracy and ranked attributes per seed."""
    (run,) = pathlib.Path(options.workdir).glob(f"*/{options.attribute}/{level}")
    out = pathlib.Path(options.workdir) / "audits" / level
    code = audit.main(
        [
            f"--checkpoint={run}",
            "--apart",
            "--data=shapes",
            "--split=test",
            f"--out={out}",
            "--data.factors=True",
            f"--data.correlation={CORRELATION}",
            f"--data.n={options.images}",
        ]
    )
    if code:
        raise SystemExit(f"studies.planted_attributes: {run} could not be audited")
    models = json.loads((out / "results.json").read_text())["models"]
    return [_read_audit(out / model["folder"] / "results.json") for model in models]


def _read_audit(path: pathlib.Path) -> dict[str, Any]:
    """Return model, accuracy and ranked attributes of one network's audit."""
    result = json.loads(path.read_text())
    keys = ("attribute", "verdict", "kind", "drop", "drop_low", "drop_high", "p_holm")
    ranked = [{key: row[key] for key in keys} for row in result["ranked"]]
    return {
        "model": result["model"],
        "accuracy": result["accuracy"],
        "ranked": ranked,
    }


def _tally(
    audits: Sequence[Mapping[str, Any]], level: str, attribute: str
) -> dict[str, Any]:
    """Return the counts of seeds by the audit's answer, and lists over seeds.

    first: the planted attribute is ranked first and is a bug. first_and_kind: also of the
    right kind. others: another attribute is a bug. none: no attribute is a bug. drop and
    next: drops in accuracy of the first and second attribute.
    """
    first = [seed_audit["ranked"][0] for seed_audit in audits]
    bugs = [
        [row["attribute"] for row in seed_audit["ranked"] if row["verdict"] == "bug"]
        for seed_audit in audits
    ]
    is_first = [r["attribute"] == attribute and r["verdict"] == "bug" for r in first]
    is_kind = [r["kind"] == PLANTS[level].kind for r in first]
    return {
        "seeds": len(audits),
        "candidates": len(audits[0]["ranked"]),
        "accuracy": [seed_audit["accuracy"] for seed_audit in audits],
        "first": sum(is_first),
        "first_and_kind": sum(map(all, zip(is_first, is_kind, strict=True))),
        "others": sum(any(name != attribute for name in names) for names in bugs),
        "none": sum(not names for names in bugs),
        "drop": [r["drop"] for r in first],
        "next": [seed_audit["ranked"][1]["drop"] for seed_audit in audits],
    }


def _text(tallies: Mapping[str, Mapping[str, Any]], options: argparse.Namespace) -> str:
    """Return the tallies as Markdown."""
    count = next(iter(tallies.values()))["candidates"]
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
    for level, tally in tallies.items():
        n = tally["seeds"]
        low, high = 100 * min(tally["drop"]), 100 * max(tally["drop"])
        accuracy = [100 * value for value in tally["accuracy"]]
        cells = [
            f"{PLANTS[level].kind or 'nothing'} ({level})",
            f"{min(accuracy):.1f} to {max(accuracy):.1f}",
            f"{tally['first']} of {n}",
            f"{tally['first_and_kind']} of {n}",
            f"{tally['others']} of {n}",
            f"{tally['none']} of {n}",
            f"{low:.1f} to {high:.1f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
