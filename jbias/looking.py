"""What `python -m jbias.look` does: draws sheets of a suite's measures, and saliency."""

import argparse
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import ml_collections
import numpy as np
from etils import epath
from jaxtyping import Float, Int
from matplotlib import figure as mpl_figure

from jbias import config as jc
from jbias import (
    console,
    feed,
    measuring,
    mesh,
    saliency,
    shown,
    subjects,
    suite,
    survey,
)
from jbias.data import spec, wordnet
from jbias.evals import occlusion, probe, show
from jbias.report import contact_sheet, figures

AS_IT_IS = "as it is"
_FORMATS = {"png": figures.to_png, "svg": figures.to_svg, "pdf": figures.to_pdf}
# Stands where no network is asked.
_NOBODY = show.Network(apply=probe.as_it_is, variables={})

Pictures = Mapping[str, Float[np.ndarray, "n h w 3"]]  # By the name of a column.


class Look(NamedTuple):
    """All that is to be drawn, and where it goes."""

    asked: suite.Suite
    rows: Mapping[str, Int[np.ndarray, "n"]]  # Images, by set.
    sets: tuple[str, ...]  # Whose saliency is drawn.
    site: str
    maps: int
    devices: jax.sharding.Mesh
    out: epath.Path
    say: Callable[[str], None]

    def write(self, name: str, fig: mpl_figure.Figure) -> None:
        """Keeps a figure in all formats."""
        for ending, to in _FORMATS.items():
            path = self.out / f"{name}.{ending}"
            path.parent.mkdir(parents=True, exist_ok=True)
            drawn = to(fig)
            path.write_bytes(drawn.encode() if isinstance(drawn, str) else drawn)
        self.say(f"drawn: {self.out / name}.png")

    def names(self, dataset: str) -> list[str]:
        """What rows are called: the image's number in its set, and its class."""
        source = self.asked.sources[dataset]
        labels = np.asarray(source.columns["label"])[self.rows[dataset]]
        known = [wordnet.readable(name) for name in source.classes]
        return [
            f"{i} {known[label] if label >= 0 else ''}".strip()
            for i, label in zip(self.rows[dataset], labels)
        ]


def run(args: argparse.Namespace, changes: Sequence[str]) -> int:
    """Draws what the arguments name; returns the exit code."""
    out, say = epath.Path(args.out), console.logger(None)
    config = measuring.load(args.suite, changes)
    _narrow(config, args.set, args.only)
    config.run.gib = 0.0  # Few images are shown: they are read from their files.
    if args.devices:
        config.run.devices = args.devices
    paths = measuring.checked(args, out)
    asked = suite.open(config, say, only=args.only)
    look = _look(args, asked, out, say)
    drawn, left = _sheets(look), []
    step = args.step or asked.run["step"]
    opened = measuring.networks(paths, args, step, say)
    chosen, count = [], {}
    for name, subject, refused in opened:
        if refused:
            say(f"not drawn: {refused}")
            left.append(name)
            continue
        key = subject.about["path"], subject.fields["run"]
        count[key] = count.get(key, 0) + 1
        if not args.seeds or count[key] <= args.seeds:
            chosen.append(subject)
    found = []
    for subject, label in zip(chosen, labels(chosen)):
        try:
            found.append(_of_network(look, subject, label, left))
        except measuring.OWN_FAULT as error:
            say(f"not drawn: {label}: {survey.line(error)}")
            left.append(label)
    drawn += sum(len(one.sheets) for one in found) + _saliency(look, found)
    say(f"drew {drawn} figures in {out}" + (f"; {len(left)} not" if left else ""))
    return 2 if not drawn else 1 if left else 0


def _narrow(
    config: ml_collections.ConfigDict, wanted: Sequence[str], only: Sequence[str]
) -> None:
    """Leaves the sets that are wanted; ValueError for one that no measure is shown on."""
    known = [
        name
        for name in config.sets
        if any(
            name in one.get("sets", ())
            for key, one in config.measures.items()
            if not only or key in only
        )
    ]
    for name in wanted:
        if name not in known:
            raise ValueError(f"--set: unknown {name!r}; {jc.nearest(name, known)}")
    for one in config.measures.values() if wanted else ():
        one.sets = tuple(name for name in one.get("sets", ()) if name in wanted)


def _look(args, asked: suite.Suite, out: epath.Path, say) -> Look:
    here = dict.fromkeys(dataset for _, dataset in asked.tasks())
    sizes = {name: len(asked.sources[name]) for name in asked.sources if name in here}
    if not sizes:
        raise ValueError("--set, --only: no measure is left; name others")
    least = min(sizes, key=sizes.get)
    count = min(args.images, sizes[least])
    if count < args.images:
        say(f"--images: {least} has {count} images, so {count} of each set are drawn")
    return Look(
        asked=asked,
        rows={
            name: np.linspace(0, n - 1, count).round().astype(np.int32)
            for name, n in sizes.items()
        },
        sets=tuple(sizes) if args.set else tuple(sizes)[:1],
        site=args.site or _site(asked),
        maps=args.maps,
        devices=mesh.make(asked.run["devices"]),
        out=out,
        say=say,
    )


def _site(asked: suite.Suite) -> str:
    """Where the suite's occlusion looks."""
    usual = inspect.signature(occlusion.make).parameters["site"].default
    measures = (
        suite.measure(name, one, asked.config["sets"])
        for name, one in asked.config["measures"].items()
    )
    sites = [
        one.options.get("site", usual) for one in measures if one.probe == "occlusion"
    ]
    return next(iter(sites), usual)


def _sheets(look: Look) -> int:
    """Draws all that no network has a part in; returns how many sheets."""
    asked, plain, drawn = look.asked, {}, 0
    tasks = [survey.Task(*one) for one in asked.tasks()]
    for task in tasks:
        if task.measure.inside:
            look.say(
                f"no sheet: {task.name} looks into networks, at images as they are"
            )
            continue
        made = asked.made(*task)
        if set(made.conditions) == {""} and made.show is probe.as_it_is:
            plain.setdefault(task.measure.name, []).append(task)
            continue
        still = [name for name in made.conditions if not made.steps.get(name)]
        if moved := [name for name in made.conditions if made.steps.get(name)]:
            look.say(
                f"{task.name}: {_some(moved)} made by a network, each in a folder of its"
                " own, by --checkpoint"
            )
        if set(still) - {""}:
            pictures = _shown(look, task, _NOBODY, still, _rows(look, task.dataset))
            look.write(task.name, _sheet(look, task.name, task.dataset, pictures))
            drawn += 1
    for name, several in plain.items():
        columns = {}
        for task in several:
            rows = _rows(look, task.dataset)
            columns[task.dataset] = _shown(look, task, _NOBODY, [""], rows)[AS_IT_IS]
        names = look.names(several[0].dataset) if len(several) == 1 else ()
        notes = {
            task.dataset: [
                contact_sheet.Note(tuple(contact_sheet.wrapped(one, 13)[:3]))
                for one in look.names(task.dataset)
            ]
            for task in (several if len(several) > 1 else ())
        }
        title = f"{name}: images as they are"
        look.write(name, contact_sheet.draw(columns, names, notes=notes, title=title))
        drawn += 1
    return drawn


class Drawn(NamedTuple):
    """What is drawn of one network in figures that several share."""

    label: str
    sheets: int  # Of its own.
    seen: Mapping[str, tuple[saliency.Seen, tuple[str, ...]]]  # By set; with classes.
    mean: Mapping[str, saliency.Mean]


def _of_network(
    look: Look, subject: subjects.Subject, label: str, left: list[str]
) -> Drawn:
    """Looks into a network, and draws the sheets that it makes."""
    asked = look.asked
    network = subject.network(mesh.dtype(asked.run["precision"]))
    variables = mesh.replicate(network.variables, look.devices)
    network = network._replace(variables=variables)
    prepared = _prepared(look, subject, label, left)
    found, means, sheets = {}, {}, 0
    for dataset in (name for name in look.sets if name in prepared):
        given = prepared[dataset]
        rows = _rows(look, dataset, given)
        rule = next(iter(given.rules.values()))
        batches = shown.batches(asked, rows, look.devices)
        seen = saliency.seen(network, batches, rule, look.site)
        found[dataset] = seen, given.classes
        if look.maps:
            some = shown.some(given, look.maps)
            batches = shown.batches(asked, some, look.devices)
            with console.counted(look.say, f"{label}: maps", len(some.index)) as tell:
                means[dataset] = saliency.mean(network, batches, look.site, tell)
    for task in (survey.Task(*one) for one in asked.tasks()):
        if task.measure.inside or task.dataset not in prepared:
            continue
        given = prepared[task.dataset]
        made = asked.made(*task, given.classes)
        moved = [name for name in made.conditions if made.steps.get(name)]
        if not moved:
            continue
        try:
            shown.check(made, given)
            rows = _rows(look, task.dataset, given)
            pictures = _shown(look, task, network, moved, rows)
        except measuring.OWN_FAULT as error:
            look.say(f"not drawn: {label}: {task.name}: {survey.line(error)}")
            left.append(f"{label}: {task.name}")
            continue
        fig = _sheet(look, f"{task.name}, {label}", task.dataset, pictures)
        look.write(f"{subject.name}/{task.name}", fig)
        sheets += 1
    return Drawn(label, sheets, found, means)


def _prepared(look: Look, subject, label: str, left: list[str]) -> dict[str, Any]:
    """The sets that a network can answer; says why it cannot answer others."""
    found, foreign = {}, []
    for dataset in look.rows:
        try:
            found[dataset] = shown.prepare(subject, look.asked, dataset, look.say)
        except spec.Mismatch:
            foreign.append(dataset)
    if foreign:
        why = shown.foreign(subject, look.asked, foreign)
        look.say(f"not drawn: {label}: {why}")
        left.append(label)
    return found


def _saliency(look: Look, found: Sequence[Drawn]) -> int:
    """Draws the figures of all networks; returns how many."""
    drawn = 0
    for dataset in look.sets:
        seen = {one.label: one.seen[dataset] for one in found if dataset in one.seen}
        if not seen:
            continue
        images = _images(look, dataset)
        columns, notes = {AS_IT_IS: images}, {}
        for label, (of, classes) in seen.items():
            columns[label] = [*map(contact_sheet.over, images, of.maps)]
            notes[label] = [
                contact_sheet.Note(
                    (*contact_sheet.wrapped(_class(classes[k]), 16)[:2], f"{p:.0%}"), r
                )
                for k, p, r in zip(of.decided, of.chance, of.right)
            ]
        title = f"Grad-CAM at {look.site}, {dataset}"
        foot = (
            "Light is where the evidence for the decision lies, the largest of each map"
            " is 1. Below: the decision and its probability."
        )
        names = look.names(dataset)
        look.write(
            f"saliency@{dataset}",
            contact_sheet.draw(
                columns,
                names,
                notes=notes,
                title=title,
                foot=foot,
                least=180,
                across=12,
            ),
        )
        drawn += 1
        means = {one.label: one.mean[dataset] for one in found if dataset in one.mean}
        if means:
            look.write(f"mean_saliency@{dataset}", _means(look, dataset, means))
            drawn += 1
    return drawn


def _means(look: Look, dataset: str, means: Mapping[str, saliency.Mean]):
    """The mean maps side by side, in the same colours."""
    top = max(float(one.map.max()) for one in means.values()) or 1.0
    notes = {
        label: [contact_sheet.Note((f"to {one.map.max():.2f}", f"{one.empty} empty"))]
        for label, one in means.items()
    }
    count = max(one.count for one in means.values())
    return contact_sheet.draw(
        {label: [one.map / top] for label, one in means.items()},
        notes=notes,
        title=f"Mean Grad-CAM at {look.site} of {count} images, {dataset}",
        foot=f"From 0, black, to {top:.2f}, nearly white. Empty are maps without evidence.",
        least=180,
        across=12,
    )


def labels(chosen: Sequence[subjects.Subject]) -> list[str]:
    """What networks are called: method/model and seed; or more where that is not enough."""
    found = []
    for one in chosen:
        fields = one.fields
        if not one.is_trained:
            found.append(one.name)
            continue
        method = fields["variant"] or fields["algorithm"]
        found.append(f"{method}/{fields['model']} seed {fields['seed']}")
    return [
        label
        if found.count(label) == 1
        else f"{epath.Path(one.about['path']).name} {label}"
        for label, one in zip(found, chosen)
    ]


def _rows(look: Look, dataset: str, given: shown.Shown | None = None) -> shown.Shown:
    """The images that are drawn, with their classes where a network has these."""
    asked, index = look.asked, look.rows[dataset]
    held = asked.images[dataset]
    label = np.full(len(asked.sources[dataset]), -1, np.int32)
    target = label.copy()
    if given is not None:
        label[given.index], target[given.index] = given.columns["label"], given.target
    return shown.Shown(
        images=feed.Kept(asked.sources[dataset], index)
        if held is None
        else held[index],
        index=index,
        columns={"label": label[index]},
        target=target[index],
        rules=given.rules if given else {},
        classes=given.classes if given else (),
    )


def _shown(
    look: Look, task: survey.Task, network: show.Network, conditions, rows: shown.Shown
) -> Pictures:
    """What a network gets under some conditions, and first the images as they are."""
    made = look.asked.made(*task, rows.classes)
    found = {AS_IT_IS: []}
    for batch in shown.batches(look.asked, rows, look.devices):
        found[AS_IT_IS].append(np.asarray(batch.image)[: batch.count])
        for name in conditions:
            if name:
                stimuli = show.shown(network, made, batch, name)
                found.setdefault(name, []).append(np.asarray(stimuli)[: batch.count])
    return {name: np.concatenate(parts) for name, parts in found.items()}


def _images(look: Look, dataset: str) -> Float[np.ndarray, "n h w 3"]:
    batches = shown.batches(look.asked, _rows(look, dataset), look.devices)
    return np.concatenate([np.asarray(b.image)[: b.count] for b in batches]) / 255


def _sheet(look: Look, title: str, dataset: str, pictures: Pictures):
    return contact_sheet.draw(pictures, look.names(dataset), title=title)


def _class(name: str) -> str:
    return wordnet.readable(name)


def _some(names: Sequence[str]) -> str:
    more = len(names) - 2
    told = ", ".join(names[:2]) + (f" and {more} more" if more > 0 else "")
    return told + (" are" if len(names) > 1 else " is")
