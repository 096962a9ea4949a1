"""What `python -m jbias.look` does: draws sheets of a suite's measures, and saliency."""

import argparse
import collections
import inspect
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import ml_collections
import numpy as np
from etils import epath

from jbias import config as jc
from jbias import config_files, mesh
from jbias.data import spec
from jbias.evals import occlusion, show
from jbias.measure import (
    measuring,
    saliency,
    sheets,
    shown,
    stimuli,
    subjects,
    suite,
    survey,
)
from jbias.report import saliency_figures
from jbias.terminal import console


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
    drawn, found, seeds = (
        sheets.without_networks(look, bool(paths)),
        [],
        collections.Counter(),
    )
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
        jc.check_known("--set", name, known)
    for one in config.measures.values() if wanted else ():
        one.sets = tuple(name for name in one.get("sets", ()) if name in wanted)


def _look(args, asked: suite.Suite, out: epath.Path, say) -> sheets.Look:
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
    return sheets.Look(
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


def _of_network(look: sheets.Look, subject: subjects.Subject) -> Drawn:
    """Looks into a network, and draws the sheets that it has a part in."""
    names = _names(subject)
    network = subject.network(mesh.dtype(look.asked.run["precision"]))
    variables = mesh.replicate(network.variables, look.devices)
    network = network._replace(variables=variables)
    prepared = _prepared(look, subject, names[1])
    seen, means, count = {}, {}, 0
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
        count += 1
    return Drawn(names, count, seen, means)


def _seen(look: sheets.Look, network: show.Network, label: str, dataset: str, given):
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


def _prepared(look: sheets.Look, subject, label: str) -> dict[str, shown.Shown]:
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


def _saliency(look: sheets.Look, found: Sequence[Drawn]) -> int:
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
