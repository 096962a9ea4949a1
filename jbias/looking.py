"""What `python -m jbias.look` does: draws sheets of a suite's measures, and saliency."""

import argparse
import collections
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import ml_collections
import numpy as np
from etils import epath
from jaxtyping import Int
from matplotlib import figure as mpl_figure

from jbias import config as jc
from jbias import (
    config_files,
    console,
    measuring,
    mesh,
    saliency,
    shown,
    stimuli,
    subjects,
    suite,
    suite_measure,
    survey,
)
from jbias.data import spec, wordnet
from jbias.evals import occlusion, show
from jbias.report import contact_sheet, figures, saliency_figures

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


class Drawn(NamedTuple):
    """What is drawn of one network in figures that several share."""

    names: tuple[str, str]  # A short one, and one that says which run it is of.
    sheets: int  # Of its own.
    seen: Mapping[str, saliency_figures.Seen]  # By set.
    mean: Mapping[str, saliency_figures.Mean]


def run(args: argparse.Namespace, changes: Sequence[str]) -> int:
    """Draws what the arguments name; returns the exit code."""
    out, say = epath.Path(args.out), console.logger(None)
    config = config_files.load(args.suite, changes, flag="suite")
    _narrow(config, args.set, args.only)
    with config.unlocked():
        config.run.gib = 0.0  # Few images are shown: they are read from their files.
        config.run.devices = args.devices or config.run.get("devices", 0)
    paths = measuring.checked(args, out, config)
    look = _look(args, suite.open(config, say, only=args.only), out, say)
    drawn, found, seeds = _sheets(look, bool(paths)), [], collections.Counter()
    step = str(args.step or look.asked.run["step"])
    for name, subject, refused in measuring.networks(paths, args, step, say):
        if refused:
            look.refuse(name, refused.removeprefix(f"{name}: "))
            continue
        key = subject.about["path"], subject.fields["run"]
        seeds[key] += 1
        if not args.seeds or seeds[key] <= args.seeds:
            try:
                found.append(_of_network(look, subject))
            except measuring.OWN_FAULT as error:
                look.refuse(subject.name, survey.line(error))
    drawn += sum(one.sheets for one in found) + _saliency(look, found)
    left = f"; {len(look.left)} not, see above" if look.left else ""
    say(f"drew {drawn} figures in {out}{left}")
    return 2 if not drawn else 1 if look.left else 0


def _narrow(
    config: ml_collections.ConfigDict, wanted: Sequence[str], only: Sequence[str]
) -> None:
    """Leaves the sets that are wanted; ValueError for one that no measure is shown on."""
    measures = [
        one for name, one in config.measures.items() if not only or name in only
    ]
    known = dict.fromkeys(name for one in measures for name in one.get("sets", ()))
    for name in wanted:
        if name not in known:
            raise ValueError(f"--set: unknown {name!r}; {jc.nearest(name, known)}")
    for one in config.measures.values() if wanted else ():
        one.sets = tuple(name for name in one.get("sets", ()) if name in wanted)


def _look(args, asked: suite.Suite, out: epath.Path, say) -> Look:
    often = collections.Counter(dataset for _, dataset in asked.tasks())
    sizes = {name: len(asked.sources[name]) for name in often}
    least = min(sizes, key=sizes.get)
    count = min(args.images, sizes[least])
    if count < args.images:
        say(f"--images: {least} has {count} images, so {count} of each set are drawn")
    rows = {name: np.linspace(0, n - 1, count).round() for name, n in sizes.items()}
    usual = inspect.signature(occlusion.make).parameters["site"].default
    sites = (
        options.get("site", usual)
        for name, options in asked.config["measures"].items()
        if options.get("probe", name) == "occlusion"
    )
    return Look(
        asked=asked,
        rows={name: row.astype(np.int32) for name, row in rows.items()},
        sets=args.set or tuple(name for name, _ in often.most_common(1)),
        site=args.site or next(sites, usual),
        maps=args.maps,
        devices=mesh.make(asked.run["devices"]),
        out=out,
        say=say,
        left=[],
    )


def _sheets(look: Look, networks: bool) -> int:
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


def _of_network(look: Look, subject: subjects.Subject) -> Drawn:
    """Looks into a network, and draws the sheets that it has a part in."""
    names = _names(subject)
    network = subject.network(mesh.dtype(look.asked.run["precision"]))
    variables = mesh.replicate(network.variables, look.devices)
    network = network._replace(variables=variables)
    prepared = _prepared(look, subject, names[1])
    seen, means, sheets = {}, {}, 0
    for dataset in (name for name in look.sets if name in prepared):
        try:
            of = (look, network, names[1], dataset, prepared[dataset])
            seen[dataset], means[dataset] = _seen(*of)
        except measuring.OWN_FAULT as error:
            look.refuse(f"{names[1]}: saliency@{dataset}", survey.line(error))
    for task in (task for task in look.tasks if task.dataset in prepared):
        few = look.few(task.dataset, prepared[task.dataset])
        made = look.asked.made(*task, few.classes)
        moved = [name for name in made.conditions if made.steps.get(name)]
        if not moved:
            continue
        try:
            shown.check(task.measure.probe, made, few)
            of = (look.asked, task, network, moved, few, look.devices)
            pictures = stimuli.of(*of)
        except measuring.OWN_FAULT as error:
            look.refuse(f"{names[1]}: {task.name}", survey.line(error))
            continue
        look.sheet(f"{subject.name}/{task.name}", task, pictures, f", {names[1]}")
        sheets += 1
    return Drawn(names, sheets, seen, means)


def _seen(look: Look, network: show.Network, label: str, dataset: str, given):
    """The maps of the images that are drawn, and the mean of many, or None."""
    few = look.few(dataset, given)
    batches = shown.batches(look.asked, few, look.devices)
    found = saliency.seen(network, batches, few, look.site)
    if not look.maps:
        return found, None
    some = shown.some(given, look.maps)
    batches = shown.batches(look.asked, some, look.devices)
    with console.counted(look.say, f"{label}: maps", len(some.index)) as (tell, _):
        return found, saliency.mean(network, batches, look.site, tell)


def _prepared(look: Look, subject, label: str) -> dict[str, shown.Shown]:
    """The sets that a network can answer; says why it cannot answer others."""
    found, foreign = {}, []
    for dataset in look.rows:
        try:
            found[dataset] = shown.prepare(subject, look.asked, dataset, look.say)
        except spec.Mismatch:
            foreign.append(dataset)
    if foreign:
        look.refuse(label, shown.foreign(subject, look.asked, foreign))
    return found


def _saliency(look: Look, found: Sequence[Drawn]) -> int:
    """Draws the figures that networks share; returns how many."""
    drawn, short = 0, [one.names[0] for one in found]
    several = [one.names[short.count(one.names[0]) > 1] for one in found]
    for dataset in look.sets:
        all_of = list(zip(several, found, strict=True))
        seen = {name: one.seen[dataset] for name, one in all_of if dataset in one.seen}
        means = {
            name: one.mean[dataset] for name, one in all_of if one.mean.get(dataset)
        }
        if seen:
            title = f"Grad-CAM at {look.site}, {dataset}"
            images = stimuli.images(look.asked, look.few(dataset), look.devices) / 255
            names = look.names(dataset)
            fig = saliency_figures.over(images, names, seen, title=title)
            look.write(f"saliency@{dataset}", fig)
        if means:
            title = f"Mean of Grad-CAM at {look.site}, {dataset}"
            fig = saliency_figures.means(means, title=title)
            look.write(f"mean_saliency@{dataset}", fig)
        drawn += bool(seen) + bool(means)
    return drawn


def _names(subject: subjects.Subject) -> tuple[str, str]:
    """Method/model and seed, and the same with the run's folder."""
    if not subject.is_trained:
        return subject.name, subject.name
    fields = subject.fields
    method = fields["variant"] or fields["algorithm"]
    name = f"{method}/{fields['model']} seed {fields['seed']}"
    return name, f"{epath.Path(subject.about['path']).name} {name}"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 2} more" if len(names) > 2 else ""
    return ", ".join(names[:2]) + more
