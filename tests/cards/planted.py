"""Cards with planted decisions, for the tests of this folder."""

import csv
import json
import pathlib

import numpy as np

from jbias.answers import letter_answers, stimulus_names
from jbias.cards import card, cli, folders, published, stimuli, tables
from jbias.data import tables as data_tables
from jbias.measures import human_answers
from jbias.measuring import cli as measure_cli

CONFLICTS = data_tables.cue_conflicts()
CLASSES = stimulus_names.CLASSES16


def cues(name: str) -> tuple[str, str]:
    """Return the classes of shape and texture of a published image."""
    shape, _, texture = name.partition("-")
    return shape.rstrip("0123456789"), texture.rstrip("0123456789")


def decide(num_shape: int, num_texture: int, num_neither: int, num_none: int) -> dict:
    """Return decisions by image: of the first conflicts, so many for each cue, neither, no answer."""
    conflicts = [name for name in CONFLICTS if len({*cues(name)}) == 2]
    kinds = np.repeat(range(4), [num_shape, num_texture, num_neither, num_none])
    decided = {}
    for name, kind in zip(conflicts, kinds):
        shape, texture = cues(name)
        other = next(x for x in CLASSES if x not in (shape, texture))
        decided[name] = (shape, texture, other, "na")[kind]
    return decided


def write_table(path: pathlib.Path, decided: dict) -> pathlib.Path:
    """Write decisions as a table that `jbias measure` reads; return its path."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["imagename", "object_response"])
        writer.writerows(decided.items())
    return path


def write_people(folder: pathlib.Path, count: int) -> pathlib.Path:
    """Write the answers of the first people of the standing table as model-vs-human does."""
    header = [*human_answers.COLUMNS]
    rows = letter_answers.read(str(letter_answers.ANSWERS))
    persons = [row for row in rows if row["group"] == "people"][:count]
    folder.mkdir()
    for i, person in enumerate(letter_answers.to_observers(persons)):
        subject = f"subject-{i + 1:02d}"
        path = folder / f"cue-conflict_{subject}_session_1.csv"
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(header)
            for k, image in enumerate(person.images):
                answer = (
                    CLASSES[person.decision[k]] if person.decision[k] >= 0 else "na"
                )
                label = CLASSES[person.label[k]]
                writer.writerow([subject, 1, k, 1.0, answer, label, 0, f"{image}.png"])
    return folder


def measure(folder: pathlib.Path, decided: dict, *flags: str, name="planted") -> str:
    """Measure decisions and return the folder of results."""
    table = write_table(folder / f"{name}.csv", decided)
    out = folder / "measured"
    assert measure_cli.main([str(table), f"--out={out}", *flags]) == 0
    return str(out / name)


def write_card(measured: str, folder: pathlib.Path, *flags: str) -> pathlib.Path:
    """Write the card of results by the command; return the card's folder."""
    assert cli.main([measured, f"--cards={folder}", *flags]) == 0
    return folder / pathlib.Path(measured).name


def read(folder: pathlib.Path) -> dict:
    """Return the content of a card."""
    return json.loads((folder / card.FILE).read_text())


def save(folder: pathlib.Path, content: dict, *, sealed: bool) -> None:
    """Write card.json; sealed: with the digest of the content."""
    if sealed:
        content = {**content, "digest": card.digest(content)}
    (folder / card.FILE).write_text(card.to_text(content))


def results(
    *card_tables: tables.Table, name: str = "planted", kind: str = "network"
) -> folders.Results:
    """Return results of a model with these tables."""
    names = {"cue-conflict": published.CUE_CONFLICT}
    return folders.Results(
        model={
            "name": name,
            "kind": kind,
            "file": "planted.pth",
            "digest": "0123456789abcdef",
            "tables": {},
            "task": "",
            "prompt": "",
            "seed": 3,
            "asked": None,
        },
        preprocessing="mean [0.5], std [0.5]",
        date="2026-01-02T03:04:05+00:00",
        versions={"jbias": "0.1.0", "commit": "", "parser": "", "reader": ""},
        stimuli={
            table.dataset: stimuli.describe(
                names.get(table.dataset, f"planted/{table.dataset}"),
                [table],
                digest=_digest(table),
                preprocessing="",
            )
            for table in card_tables
        },
        tables=card_tables,
        left_out=(),
    )


def _digest(table: tables.Table) -> str:
    """Return the digest of a set of published conflicts, or one of nothing."""
    is_conflict = table.dataset == "cue-conflict"
    name = published.CUE_CONFLICT if is_conflict else table.dataset
    return (is_conflict and stimuli.digest_table(name, table)) or "0" * 64


def conflict_table(decided: dict, **options) -> tables.Table:
    """Return decisions about published conflicts as a table of a card."""
    shape, texture = zip(*map(cues, decided))
    return tables.Table(
        dataset="cue-conflict",
        num_classes=16,
        images=tuple(decided),
        label=shape,
        texture=texture,
        decided={"": tuple(decided.values())},
        options=options,
    )


def filtered_table(
    measure: str, conditions, *, num_images: int, **options
) -> tables.Table:
    """Return random decisions among four classes under the conditions of a measure."""
    rng, names = np.random.default_rng(0), np.array(["a", "b", "c", "d"])
    label = names[rng.integers(4, size=num_images)]
    decided = {}
    for i, condition in enumerate(conditions):
        is_right = rng.random(num_images) < 1 / (1 + i / 8)
        other = names[rng.integers(4, size=num_images)]
        decided[condition] = tuple(np.where(is_right, label, other).tolist())
    return tables.Table(
        dataset="photos",
        measure=measure,
        num_classes=4,
        images=tuple(f"{i:06d}" for i in range(num_images)),
        label=tuple(label.tolist()),
        decided=decided,
        options=options,
    )
