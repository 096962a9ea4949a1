"""Networks and people whose decisions about the images of a page are known.

The networks of the embedded stimuli are in stored/networks.csv; stored/README.md says how they were
trained. For Geirhos' cue conflicts, people and networks are those of the standing table.
"""

import csv
import dataclasses
import itertools
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Int

from jbias import errors
from jbias.answers import letter_answers, observers, tables
from jbias.observing import stimuli

STORED = pathlib.Path(__file__).parent / "stored" / "networks.csv"
PEOPLE = "people/"  # Begin of the names of people in the standing table.
# Networks of the standing table on pages of Geirhos' cue conflicts.
_NETWORKS = ("texture-vs-shape/resnet50", "texture-vs-shape/resnet50-train-60-epochs")


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Compared:
    """A network, or several people, with decisions about the images of a page."""

    name: str
    note: str  # A sentence about the network or the people; "" for none.
    # By place of the group: class id, NO_ANSWER or NO_ROW of each member and image.
    decisions: tuple[Int[np.ndarray, "m n"], ...]


def of_embedded(shown: stimuli.Stimuli) -> list[Compared]:
    """Return the stored networks.

    ValueError if the stored decisions are about images that were drawn in another way.
    """
    with STORED.open(encoding="utf-8", newline="") as file:
        rows = [*csv.DictReader(file)]
    by_network: dict[str, dict[str, Mapping[str, str]]] = {}
    for row in rows:
        by_network.setdefault(row["network"], {})[row["set"]] = row
    compared = []
    for name, by_set in by_network.items():
        answers = []
        for group in shown.groups:
            row = by_set[group.dataset]
            if row["fingerprint"] != group.fingerprint:
                raise ValueError(
                    f"{STORED}: must be decisions about the drawn images, got others for "
                    f"{group.dataset}; store them again, see README.md there"
                )
            answers.append(letter_answers.decode(row["answers"])[None])
        note = next(iter(by_set.values()))["about"]
        compared.append(Compared(name=name, note=note, decisions=tuple(answers)))
    return compared


def of_folder(shown: stimuli.Stimuli, decisions: str = "") -> list[Compared]:
    """Return the observers of files of decisions, or those of the standing table.

    decisions: a file or folder; "" for the standing table, which knows published cue conflicts
    only: [] for other images. ValueError for files that are no decisions about the images.
    """
    if decisions:
        members = tables.read(decisions)
        compared = [
            _compared(x.name, note="", members=[x], shown=shown) for x in members
        ]
        known = [x for x in compared if _num_rows(x)]
        if not known:
            raise ValueError(
                f"--decisions: {decisions} must be about images of --stimuli, got "
                f"{errors.abbreviate(members[0].images[0])} and others; name images as in the "
                "folder"
            )
        return known
    if not {x for group in shown.groups for x in group.ids} <= {
        *letter_answers.images()
    }:
        return []
    table = {x.name: x for x in letter_answers.standing_table()}
    people = [x for name, x in table.items() if name.startswith(PEOPLE)]
    compared = [
        _compared(
            f"{len(people)} people",
            note="People of Geirhos et al. 2019 on the same images, in a laboratory.",
            members=people,
            shown=shown,
        )
    ]
    for name in _NETWORKS:
        member = table[name]
        compared.append(
            _compared(member.factors["model"], note="", members=[member], shown=shown)
        )
    return compared


def _compared(
    name: str,
    *,
    note: str,
    members: Sequence[observers.Observer],
    shown: stimuli.Stimuli,
) -> Compared:
    """Return the decisions of members about the images; classes are matched by name.

    Upper and lower case are the same, unless two classes of the page differ in case alone.
    """
    ids = {name: number for number, name in enumerate(shown.classes)}
    folded = {name.casefold(): number for name, number in ids.items()}
    is_cased = len(folded) < len(ids)
    answers = []
    for group in shown.groups:
        rows = np.full((len(members), len(group.ids)), observers.NO_ROW, np.int32)
        place = {image: i for i, image in enumerate(group.ids)}
        for row, member in zip(rows, members, strict=True):
            for image, decision in zip(member.images, member.decision, strict=True):
                if image in place:
                    answer = member.classes[decision] if decision >= 0 else ""
                    other = observers.NO_ANSWER
                    if not is_cased:
                        other = folded.get(answer.casefold(), other)
                    row[place[image]] = ids.get(answer, other)
        answers.append(rows)
    return Compared(name=name, note=note, decisions=tuple(answers))


def _num_rows(compared: Compared) -> int:
    """Return the number of images of the page that the members decided about."""
    return sum(int((x != observers.NO_ROW).sum()) for x in compared.decisions)


@dataclasses.dataclass(frozen=True)
class PublishedPeople:
    """Ten people on Geirhos' cue conflicts, which are other images than the embedded ones."""

    shape_bias: float  # Over all decisions of all people for either cue.
    kappa: float  # Mean error consistency of all pairs of people.
    count: int


def published_people() -> PublishedPeople:
    """Return shape bias and error consistency of the people in the standing table."""
    from jbias.stats import consistency  # Slow to import, so not before a refusal.

    people = [x for x in letter_answers.standing_table() if x.name.startswith(PEOPLE)]
    biases = [x.shape_bias for x in people]
    num_shape = sum(x.n_shape for x in biases)
    num_texture = sum(x.n_texture for x in biases)
    correct = [x.decision == x.label for x in people]
    kappas = [
        consistency.error_consistency(a, b).kappa
        for a, b in itertools.combinations(correct, 2)
    ]
    return PublishedPeople(
        shape_bias=num_shape / (num_shape + num_texture),
        kappa=float(np.mean(kappas)),
        count=len(people),
    )
