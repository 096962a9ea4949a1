r"""Draws the stimuli that measures show, and where networks look.

    jbias look --suite=configs/suites/distortion.py:data=cifar10,root=DIR
    jbias look --runs='runs/distortion/*' --only=occlusion,cut_occlusion \
        --suite=configs/suites/distortion.py:data=cifar10,root=DIR
    jbias look --checkpoint=zoo/ --site=stage4 --set=cue-conflict \
        --suite=configs/suites/biases.py:data=imagenet,root=DIR,stimuli=DIR

A sheet for each measure of the suite and each of its sets, <measure>@<set>: a row an
image, a column a condition, with the pixels that a network gets in measuring; what shows
images as they are has one sheet, <measure>, with a column a set. Images are evenly spaced
in each set, the same everywhere. Without networks that is all.

With networks, the first seed of each run:

    saliency@<set>             Grad-CAM of each over the images, what it decides, and how
                               probable that is to it
    mean_saliency@<set>        the mean map of each over many images
    <network>/<measure>@<set>  conditions that are made by the network, such as attacks and
                               what it finds salient hidden

All as PNG, SVG and PDF. In the PNG every pixel of an image is a square of whole pixels, and
nothing is resampled.

Exit codes: 0 done; 1 some network, or something of one, was left out; 2 nothing could be
drawn, or arguments are wrong; 130 or 143 stopped. Standard error says why.
"""

import argparse
import collections
import inspect
import os
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jbias import config as jc
from jbias.runtime import cli, console, files, outputs

_OF_NETWORKS = (*cli.FILE_FLAGS, "step", "site", "seeds", "maps")
_DEFAULTS = {"only": (), "set": (), "seeds": 1, "maps": 256}


def main(argv: Sequence[str] | None = None) -> int:
    """Does what the arguments say; returns the exit code."""
    args, changes = cli.parse(parser(), argv, "suite", jc.check)
    if not args.suite:
        parser().error("--suite is missing, e.g. --suite=jbias:suites/distortion")
    idle = () if args.checkpoint else _OF_NETWORKS
    cli.settle(parser, args, idle, "without --checkpoint", _DEFAULTS)
    return cli.run(lambda: run(args, changes), stopped="draws all anew")


def parser() -> cli.Parser:
    """The command line."""
    made = cli.Parser("look", __doc__)
    cli.add_suite_flags(made)
    add = made.add_argument
    what = (
        "sets of the suite, by their names there; if not given all of each measure, and "
        "for saliency the first"
    )
    cli.add_names(made, "--set", None, what)
    what = "rows of a sheet; of the smallest set at most all"
    cli.add_count(made, "--images", 1, 8, what)
    what = (
        "where networks are looked into for saliency, e.g. stage2 (default: as the suite's "
        "occlusion, stage3 if it does not say)"
    )
    add("--site", metavar="NAME", help=what)
    what = "so many seeds of each run, the first ones; 0 is all (default: 1)"
    add("--seeds", type=cli.at_least_0, metavar="N", help=what)
    what = (
        "so many images have a part in the mean map, evenly spaced; 0 draws none "
        "(default: 256)"
    )
    add("--maps", type=cli.at_least_0, metavar="N", help=what)
    add("--out", default="pictures", metavar="DIR", help="(default: %(default)s)")
    return made


class Look(NamedTuple):
    """What is drawn of a suite, and where it goes."""

    call: "command.Command"
    suite: "suites.Suite"
    rows: Mapping[str, "np.ndarray"]  # Numbers of images, by set.
    sets: tuple[str, ...]  # Whose saliency is drawn.
    site: str
    maps: int
    out: "epath.Path"

    @property
    def tasks(self) -> list["suites.Task"]:
        """All measures that show images of their own making, or as they are."""
        return [task for task in self.suite.tasks() if not task.measure.looks_inside]

    def write(self, name: str, fig: "mpl_figure.Figure") -> None:
        """Keeps a figure in all formats."""
        from jbias.report import plots

        self.check(name)
        path = self.out / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write(path, plots.to_png(fig), lasting=False)
        files.write(path.with_suffix(".svg"), plots.to_svg(fig), lasting=False)
        files.write(path.with_suffix(".pdf"), plots.to_pdf(fig), lasting=False)
        self.call.say(f"drawn: {path}")
        self.call.done.append(name)

    def check(self, name: str) -> None:
        """Raise ValueError where a file of that name is no figure of an earlier call.

        Figures lie in three formats; one that lies alone is of somebody else.
        """
        paths = [self.out / f"{name}.{form}" for form in ("png", "svg", "pdf")]
        there = [path for path in paths if os.path.lexists(path)]
        for path in there:
            outputs.check_file(path)
        if len(there) not in (0, len(paths)):
            raise ValueError(
                f"--out: {there[0]} is there already, without the other formats of a figure "
                "of jbias; remove it or name another folder"
            )

    def sheet(self, name: str, title: str, task: "suites.Task", *of) -> None:
        """Draws a row an image of the task's set, a column a condition, and keeps it."""
        from jbias.report import image_sheets

        self.check(name)  # Before images are made.
        pictures = self.pictures(task, *of)
        names = self.names(task.dataset)
        self.write(name, image_sheets.draw(pictures, names, title=title))

    def pictures(
        self, task: "suites.Task", conditions: Sequence[str], bound=None, few=None
    ) -> dict[str, "np.ndarray"]:
        """What conditions make of a set's images.

        bound, few: the network that has a part in it, and the images that it answers.
        """
        from jbias.evals import prepared_sets

        few, bound = few or self.subset(task.dataset), bound or prepared_sets.NO_NETWORK
        return prepared_sets.condition_images(self.suite, task, bound, conditions, few)

    def subset(self, dataset: str, given=None) -> "prepared_sets.PreparedSet":
        """The images that are drawn of a set, before a network or before none."""
        from jbias.evals import prepared_sets

        return prepared_sets.select(self.suite, dataset, self.rows[dataset], given)

    def names(self, dataset: str) -> list[str]:
        """What rows are called: the image's number in its set, and its class."""
        from jbias.data import tables

        source, rows = self.suite.sources[dataset], self.rows[dataset]
        classes = [*map(tables.readable, source.classes), ""]  # -1 is none.
        labels = source.columns["label"][rows]
        return [f"{i} {classes[k]}".strip() for i, k in zip(rows, labels, strict=True)]


class NetworkDrawings(NamedTuple):
    """What is drawn of one network in figures that several share."""

    names: tuple[str, str]  # A short one, and one that says which run it is of.
    seen: Mapping[str, "image_sheets.Seen"]  # By set.
    mean: Mapping[str, "image_sheets.Mean"]


def run(args: argparse.Namespace, changes: Sequence[str]) -> int:
    """Draws what the arguments name; returns the exit code."""
    from jbias.evals import command, networks, suites

    call = command.Command("drawn")
    # Few images are shown: they are read from their files.
    config = command.load_suite(args, changes, gib=0.0)
    _narrow(config.get("measures", {}), args.set, args.only)
    paths = networks.check_arguments(args, args.out, config)
    look = _look(args, suites.open_suite(config, call.say, only=args.only), call)
    _without_networks(look, bool(paths))
    found: list[NetworkDrawings] = []
    seeds = collections.Counter()
    for network in call.load(paths, args, look.suite.run["step"]):
        key = network.about["path"], network.fields["run"]
        seeds[key] += 1
        if not args.seeds or seeds[key] <= args.seeds:
            with call.leaving_out(network.name):
                found.append(_of_network(look, network))
    _saliency(look, found)
    omitted = f"; {len(call.left_out)} not, see above" if call.left_out else ""
    call.say(f"drew {len(call.done)} figures in {look.out}{omitted}")
    return call.code


def _narrow(measures: Mapping, wanted: Sequence[str], only: Sequence[str]) -> None:
    """Leaves the sets that are wanted; ValueError for one that no measure is shown on."""
    shown = [x for name, x in measures.items() if not only or name in only]
    known = dict.fromkeys(name for one in shown for name in one.get("sets", ()))
    jc.check_all_known("--set", wanted, known)
    for one in measures.values() if wanted else ():
        one["sets"] = [name for name in one.get("sets", ()) if name in wanted]


def _look(args, asked: "suites.Suite", call: "command.Command") -> Look:
    import numpy as np
    from etils import epath

    from jbias.evals import occlusion

    often = collections.Counter(dataset for _, dataset in asked.tasks())
    sizes = {name: len(asked.sources[name]) for name in often}
    least = min(sizes, key=sizes.get)
    count = min(args.images, sizes[least])
    if count < args.images:
        told = f"{least} has {count} images, so {count} of each set are drawn"
        call.say(f"--images: {told}")
    rows = {name: np.linspace(0, n - 1, count).round() for name, n in sizes.items()}
    usual = inspect.signature(occlusion.make).parameters["site"].default
    measures = asked.config["measures"].items()
    salient = (x for name, x in measures if x.get("probe", name) == "occlusion")
    sites = (options.get("site", usual) for options in salient)
    return Look(
        call=call,
        suite=asked,
        rows={name: row.astype(np.int32) for name, row in rows.items()},
        sets=args.set or tuple(name for name, _ in often.most_common(1)),
        site=args.site or next(sites, usual),
        maps=args.maps,
        out=epath.Path(args.out),
    )


def _of_network(look: Look, network: "networks.Network") -> NetworkDrawings:
    """Looks into a network, and draws the sheets that it has a part in."""
    from jbias.evals import prepared_sets

    (short, name), call, asked = _names(network), look.call, look.suite
    bound = network.bind(asked.dtype, asked.devices)
    requests = {
        prepared_sets.SetRequest(dataset, keep_unanswerable=False): ()
        for dataset in look.rows
    }
    by_request, lacking = prepared_sets.prepare_all(network, asked, requests, call.say)
    prepared = {request.dataset: ready for request, ready in by_request.items()}
    for why in lacking:
        call.leave_out(f"{name}: {why}", f"{name}: {why}")
    seen, means = {}, {}
    for dataset in (dataset for dataset in look.sets if dataset in prepared):
        with call.leaving_out(f"{name}: saliency@{dataset}"):
            of = bound, f"{name}: maps", dataset, prepared[dataset]
            seen[dataset], means[dataset] = _seen(look, *of)
    for task in (task for task in look.tasks if task.dataset in prepared):
        few = look.subset(task.dataset, prepared[task.dataset])
        made = asked.make_probe(*task, few.classes)
        if moved := [one for one in made.conditions if made.steps.get(one)]:
            with call.leaving_out(f"{name}: {task.name}"):
                prepared_sets.check_needs(task.measure.probe, made, bound, few)
                where, title = f"{network.name}/{task.name}", f"{task.name}, {name}"
                look.sheet(where, title, task, moved, bound, few)
    return NetworkDrawings((short, name), seen, means)


def _seen(look: Look, bound: "inference.BoundNetwork", title: str, dataset: str, given):
    """The maps of the images that are drawn, and the mean of many, or None.

    Decisions are by the first rule of how the set is answered. ValueError for a site that
    cannot be looked at, or a network.
    """
    import numpy as np

    from jbias.data import tables
    from jbias.evals import grad_cam, inference, prepared_sets, probe_registry
    from jbias.report import image_sheets

    few = look.subset(dataset, given)
    batches = [*prepared_sets.device_batches(look.suite, few)]
    maps = np.concatenate([*grad_cam.batch_maps(bound, batches, look.site)])
    rule = next(iter(few.rules.values()))
    found = inference.run_probe(
        bound, probe_registry.make_plain(), batches, {"": rule}
    )[""]
    names = [tables.readable(few.classes[k]) for k in found["prediction"]]
    right = found["prediction"] == few.columns["label"]
    seen = image_sheets.Seen(maps, names, found["confidence"], right)
    if not look.maps:
        return seen, None
    some = prepared_sets.subsample(given, look.maps)
    batches = prepared_sets.device_batches(look.suite, some)
    total, count, empty = 0.0, 0, 0
    with console.count_images(look.call.say, title, len(some.index)) as (tell, _):
        for maps in grad_cam.batch_maps(bound, batches, look.site):
            total = total + maps.sum(0, dtype=np.float64)
            count += len(maps)
            empty += int((maps.max((1, 2)) == 0).sum())
            tell(len(maps))
    return seen, image_sheets.Mean(total / count, count, empty)


def _saliency(look: Look, found: Sequence[NetworkDrawings]) -> None:
    """Draws the figures that networks share."""
    from jbias.evals import prepared_sets
    from jbias.report import image_sheets

    short = [one.names[0] for one in found]
    named = {one.names[short.count(one.names[0]) > 1]: one for one in found}
    for dataset in look.sets:
        seen = {n: one.seen[dataset] for n, one in named.items() if dataset in one.seen}
        if not seen:
            continue
        of = f"Grad-CAM at {look.site}, {dataset}"
        images = prepared_sets.read_images(look.suite, look.subset(dataset)) / 255
        fig = image_sheets.saliency(images, look.names(dataset), seen, title=of)
        look.write(f"saliency@{dataset}", fig)
        if look.maps:
            means = {name: named[name].mean[dataset] for name in seen}
            fig = image_sheets.mean_maps(means, title=f"Mean of {of}")
            look.write(f"mean_saliency@{dataset}", fig)


def _names(network: "networks.Network") -> tuple[str, str]:
    """Method/model and seed, and the same with the run's folder."""
    if "config" not in network.about:
        return network.name, network.name
    fields = network.fields
    method = fields["variant"] or fields["algorithm"]
    name = f"{method}/{fields['model']} seed {fields['seed']}"
    return name, f"{pathlib.PurePath(network.about['path']).name} {name}"


def _without_networks(look: Look, networks: bool) -> None:
    """Draws all that no network has a part in."""
    plain: dict[str, list] = {}
    say = look.call.say
    for task in look.suite.tasks():
        if task.measure.looks_inside:
            say(f"no sheet: {task.name}: shows images as they are")
    for task in look.tasks:
        made = look.suite.make_probe(*task)
        if set(made.conditions) == {""}:
            plain.setdefault(task.measure.name, []).append(task)
            continue
        moved = [name for name in made.conditions if made.steps.get(name)]
        if moved and not networks:
            more = f" and {len(moved) - 2} more" if len(moved) > 2 else ""
            what = f"{', '.join(moved[:2])}{more}"
            say(f"{task.name}: without {what}, made by a network; give --checkpoint")
        still = [name for name in made.conditions if name not in moved]
        if set(still) - {""}:
            look.sheet(task.name, task.name, task, still)
    for name, tasks in plain.items():
        look.write(name, _as_they_are(look, name, tasks))


def _as_they_are(look: Look, name: str, tasks: Sequence["suites.Task"]):
    """A column a set; what their images are stands below where sets differ in that."""
    from jbias.report import image_sheets

    made = {task.dataset: look.pictures(task, [""]) for task in tasks}
    columns = {dataset: next(iter(one.values())) for dataset, one in made.items()}
    names = {dataset: look.names(dataset) for dataset in columns}
    first, *others = names.values()
    if all(one == first for one in others):
        return image_sheets.draw(columns, first, title=name)
    notes = {x: [image_sheets.Note((n,)) for n in each] for x, each in names.items()}
    return image_sheets.draw(columns, notes=notes, title=name)


if __name__ == "__main__":
    sys.exit(main())
