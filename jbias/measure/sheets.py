"""What is drawn of a suite, and the sheets of it that no network has a part in."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np
from etils import epath
from jaxtyping import Int
from matplotlib import figure as mpl_figure

from jbias.data import wordnet
from jbias.measure import shown, stimuli, suite, suite_measure
from jbias.report import contact_sheet, figures

FORMATS = {"png": figures.to_png, "svg": figures.to_svg, "pdf": figures.to_pdf}


class Look(NamedTuple):
    """What is drawn of a suite, and where it goes."""

    asked: suite.Suite
    rows: Mapping[str, Int[np.ndarray, "n"]]  # Images, by set.
    sets: tuple[str, ...]  # Whose saliency is drawn.
    site: str
    maps: int
    devices: jax.sharding.Mesh
    out: epath.Path
    say: Callable[[str], None]
    left: list[str]  # What was left out.

    @property
    def tasks(self) -> list[suite_measure.Task]:
        """All measures that show images of their own making, or as they are."""
        tasks = (suite_measure.Task(*one) for one in self.asked.tasks())
        return [task for task in tasks if not task.measure.inside]

    def refuse(self, what: str, why: str) -> None:
        self.say(f"not drawn: {what}: {why}")
        self.left.append(what)

    def write(self, name: str, fig: mpl_figure.Figure) -> None:
        """Keeps a figure in all formats."""
        for ending, to in FORMATS.items():
            path = self.out / f"{name}.{ending}"
            path.parent.mkdir(parents=True, exist_ok=True)
            drawn = to(fig)
            path.write_bytes(drawn.encode() if isinstance(drawn, str) else drawn)
        self.say(f"drawn: {self.out / name}.png")

    def sheet(
        self, name: str, task: suite_measure.Task, pictures, more: str = ""
    ) -> None:
        """Draws and keeps a row an image of the task's set, a column a condition."""
        names, title = self.names(task.dataset), f"{task.name}{more}"
        self.write(name, contact_sheet.draw(pictures, names, title=title))

    def few(self, dataset: str, given: shown.Shown | None = None) -> shown.Shown:
        """The images that are drawn of a set, before a network or before none."""
        return stimuli.rows(self.asked, dataset, self.rows[dataset], given)

    def names(self, dataset: str) -> list[str]:
        """What rows are called: the image's number in its set, and its class."""
        source = self.asked.sources[dataset]
        labels = np.asarray(source.columns["label"])[self.rows[dataset]]
        return [
            f"{i} {wordnet.readable(source.classes[k]) if k >= 0 else ''}".strip()
            for i, k in zip(self.rows[dataset], labels)
        ]


def without_networks(look: Look, networks: bool) -> int:
    """Draws all that no network has a part in; returns how many sheets."""
    plain, drawn = {}, 0
    for measure, dataset in look.asked.tasks():
        if measure.inside:
            look.say(f"no sheet: {measure.name}@{dataset}: shows images as they are")
    for task in look.tasks:
        made = look.asked.made(*task)
        if set(made.conditions) == {""}:
            plain.setdefault(task.measure.name, []).append(task)
            continue
        moved = [name for name in made.conditions if made.steps.get(name)]
        if moved and not networks:
            look.say(
                f"{task.name}: without {_some(moved)}, made by a network; give --checkpoint"
            )
        still = [name for name in made.conditions if name not in moved]
        if set(still) - {""}:
            few = look.few(task.dataset)
            of = (look.asked, task, stimuli.NOBODY, still, few, look.devices)
            look.sheet(task.name, task, stimuli.of(*of))
            drawn += 1
    for name, tasks in plain.items():
        look.write(name, _as_they_are(look, name, tasks))
    return drawn + len(plain)


def _as_they_are(look: Look, name: str, tasks: Sequence[suite_measure.Task]):
    """A column a set; what their images are stands below where sets differ in that."""
    columns, names = {}, {}
    for task in tasks:
        few, names[task.dataset] = look.few(task.dataset), look.names(task.dataset)
        of = (look.asked, task, stimuli.NOBODY, ("",), few, look.devices)
        columns[task.dataset] = stimuli.of(*of)[stimuli.AS_IT_IS]
    first = names[tasks[0].dataset]
    if all(one == first for one in names.values()):
        return contact_sheet.draw(columns, first, title=name)
    notes = {
        dataset: [contact_sheet.Note((one,)) for one in of]
        for dataset, of in names.items()
    }
    return contact_sheet.draw(columns, notes=notes, title=name)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 2} more" if len(names) > 2 else ""
    return ", ".join(names[:2]) + more
