r"""Draws what measures show a network, and where networks look.

    python -m jbias.look --suite=configs/suites/distortion.py:data=cifar10,root=DIR
    python -m jbias.look --runs='runs/distortion/*' --only=occlusion,cut_occlusion \
        --suite=configs/suites/distortion.py:data=cifar10,root=DIR
    python -m jbias.look --checkpoint=zoo/ --site=stage4 --set=cue-conflict \
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
drawn, or arguments are wrong; 130 stopped. Standard error says why.
"""

import argparse
import collections
import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import ml_collections
from etils import epath

from jbias import config as jc
from jbias.runtime import cli, console

_OF_NETWORKS = (*cli.FILE_FLAGS, "step", "site", "seeds", "maps")


def main(argv: Sequence[str] | None = None) -> int:
    """Does what the arguments say; returns the exit code."""
    args, changes = cli.parse(parser(), argv, "suite", jc.check)
    if not args.suite:
        parser().error("--suite is missing, e.g. --suite=jbias:suites/distortion")
    given = [name for name in _OF_NETWORKS if getattr(args, name) is not None]
    if given and not args.checkpoint:
        parser().error(f"--{given[0]} says nothing without --checkpoint; leave it out")
    args.only, args.set = args.only or (), args.set or ()
    args.seeds = 1 if args.seeds is None else args.seeds
    args.maps = 256 if args.maps is None else args.maps
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

    suite: "suite.Suite"
    rows: Mapping[str, "np.ndarray"]  # Numbers of images, by set.
    sets: tuple[str, ...]  # Whose saliency is drawn.
    site: str
    maps: int
    out: epath.Path
    log: Callable[[str], None]
    drawn: list[str]
    omitted: list[str]

    @property
    def tasks(self) -> list["suite.Task"]:
        """All measures that show images of their own making, or as they are."""
        return [task for task in self.suite.tasks() if not task.measure.inside]

    def refuse(self, what: str, why: str) -> None:
        self.log(f"not drawn: {what}: {why}")
        self.omitted.append(what)

    @contextlib.contextmanager
    def leaving_out(self, what: str) -> Iterator[None]:
        """Goes on without what a network cannot give."""
        from jbias.evals import loading, networks

        try:
            yield
        except loading.NETWORK_ERRORS as error:
            self.refuse(what, networks.describe_error(error))

    def write(self, name: str, fig: "mpl_figure.Figure") -> None:
        """Keeps a figure in all formats."""
        from jbias.report import plots

        path = self.out / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(plots.to_png(fig))
        path.with_suffix(".svg").write_text(plots.to_svg(fig))
        path.with_suffix(".pdf").write_bytes(plots.to_pdf(fig))
        self.log(f"drawn: {path}")
        self.drawn.append(name)

    def sheet(self, name: str, task: "suite.Task", pictures, more: str = "") -> None:
        """Draws and keeps a row an image of the task's set, a column a condition."""
        from jbias.report import image_sheets

        names, title = self.names(task.dataset), f"{task.name}{more}"
        self.write(name, image_sheets.draw(pictures, names, title=title))

    def subset(self, dataset: str, given=None) -> "prepared_sets.PreparedSet":
        """The images that are drawn of a set, before a network or before none."""
        from jbias.evals import prepared_sets

        return prepared_sets.select(self.suite, dataset, self.rows[dataset], given)

    def pictures(
        self, task: "suite.Task", conditions: Sequence[str]
    ) -> dict[str, "np.ndarray"]:
        """What conditions that no network has a part in make of a set's images."""
        from jbias.evals import prepared_sets

        of = prepared_sets.NO_NETWORK, conditions, self.subset(task.dataset)
        return prepared_sets.condition_images(self.suite, task, *of)

    def names(self, dataset: str) -> list[str]:
        """What rows are called: the image's number in its set, and its class."""
        import numpy as np

        from jbias.data import tables

        source = self.suite.sources[dataset]
        labels = np.asarray(source.columns["label"])[self.rows[dataset]]
        return [
            f"{i} {tables.readable(source.classes[k]) if k >= 0 else ''}".strip()
            for i, k in zip(self.rows[dataset], labels)
        ]


class NetworkDrawings(NamedTuple):
    """What is drawn of one network in figures that several share."""

    names: tuple[str, str]  # A short one, and one that says which run it is of.
    seen: Mapping[str, "image_sheets.Seen"]  # By set.
    mean: Mapping[str, "image_sheets.Mean"]


def run(args: argparse.Namespace, changes: Sequence[str]) -> int:
    """Draws what the arguments name; returns the exit code."""
    from jbias.evals import loading, suite

    out, say = epath.Path(args.out), console.logger(None)
    config = jc.load(args.suite, changes, flag="suite")
    _narrow(config, args.set, args.only)
    with config.unlocked():
        config.run.gib = 0.0  # Few images are shown: they are read from their files.
        config.run.devices = args.devices or config.run.get("devices", 0)
    paths = loading.check_arguments(args, out, config)
    look = _look(args, suite.open_suite(config, say, only=args.only), out, say)
    _without_networks(look, bool(paths))
    found: list[NetworkDrawings] = []
    seeds = collections.Counter()
    opened = loading.open_networks(paths, args, say, look.suite.run["step"])
    for name, subject, refused in opened:
        if refused:
            look.refuse(name, refused.removeprefix(f"{name}: "))
            continue
        key = subject.about["path"], subject.fields["run"]
        seeds[key] += 1
        if not args.seeds or seeds[key] <= args.seeds:
            with look.leaving_out(subject.name):
                found.append(_of_network(look, subject))
    _saliency(look, found)
    omitted = f"; {len(look.omitted)} not, see above" if look.omitted else ""
    say(f"drew {len(look.drawn)} figures in {out}{omitted}")
    return 2 if not look.drawn else 1 if look.omitted else 0


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


def _look(args, asked: "suite.Suite", out: epath.Path, say) -> Look:
    import numpy as np

    from jbias.evals import occlusion

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
        suite=asked,
        rows={name: row.astype(np.int32) for name, row in rows.items()},
        sets=args.set or tuple(name for name, _ in often.most_common(1)),
        site=args.site or next(sites, usual),
        maps=args.maps,
        out=out,
        log=say,
        drawn=[],
        omitted=[],
    )


def _of_network(look: Look, subject: "networks.Network") -> NetworkDrawings:
    """Looks into a network, and draws the sheets that it has a part in."""
    from jbias.evals import prepared_sets

    short, name = _names(subject)
    network = prepared_sets.place(subject, look.suite)
    wanted = [(dataset, False) for dataset in look.rows]
    found, lacking = prepared_sets.prepare_all(subject, look.suite, wanted, look.log)
    prepared = {dataset: given for (dataset, _), given in found.items()}
    for why in lacking:
        look.refuse(name, why)
    seen, means = {}, {}
    for dataset in (dataset for dataset in look.sets if dataset in prepared):
        with look.leaving_out(f"{name}: saliency@{dataset}"):
            of = (look, network, name, dataset, prepared[dataset])
            seen[dataset], means[dataset] = _seen(*of)
    for task in (task for task in look.tasks if task.dataset in prepared):
        few = look.subset(task.dataset, prepared[task.dataset])
        made = look.suite.make_probe(*task, few.classes)
        moved = [
            condition for condition in made.conditions if made.steps.get(condition)
        ]
        if moved:
            pictures = {}
            with look.leaving_out(f"{name}: {task.name}"):
                prepared_sets.check_gradients(task.measure.probe, made, few)
                of = (look.suite, task, network, moved, few)
                pictures = prepared_sets.condition_images(*of)
            if pictures:
                look.sheet(f"{subject.name}/{task.name}", task, pictures, f", {name}")
    return NetworkDrawings((short, name), seen, means)


def _seen(look: Look, network: "predict.BoundNetwork", label: str, dataset: str, given):
    """The maps of the images that are drawn, and the mean of many, or None.

    Decisions are by the first rule of how the set is answered. ValueError for a site that
    cannot be looked at, or a network.
    """
    import numpy as np

    from jbias.data import tables
    from jbias.evals import grad_cam, predict, prepared_sets, probes
    from jbias.report import image_sheets

    few = look.subset(dataset, given)
    batches = [*prepared_sets.device_batches(look.suite, few)]
    maps = np.concatenate([*grad_cam.batch_maps(network, batches, look.site)])
    rule = next(iter(few.rules.values()))
    found = predict.run_probe(network, probes.make_plain(), batches, {"": rule})[""]
    names = [tables.readable(few.classes[k]) for k in found["prediction"]]
    right = found["prediction"] == few.columns["label"]
    seen = image_sheets.Seen(maps, names, found["confidence"], right)
    if not look.maps:
        return seen, None
    some = prepared_sets.subsample(given, look.maps)
    batches = prepared_sets.device_batches(look.suite, some)
    total, count, empty = 0.0, 0, 0
    with console.count_images(look.log, f"{label}: maps", len(some.index)) as (tell, _):
        for maps in grad_cam.batch_maps(network, batches, look.site):
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
        if seen:
            title = f"Grad-CAM at {look.site}, {dataset}"
            few, names = look.subset(dataset), look.names(dataset)
            images = prepared_sets.read_images(look.suite, few) / 255
            fig = image_sheets.saliency(images, names, seen, title=title)
            look.write(f"saliency@{dataset}", fig)
        if seen and look.maps:
            title = f"Mean of Grad-CAM at {look.site}, {dataset}"
            means = {name: named[name].mean[dataset] for name in seen}
            fig = image_sheets.mean_maps(means, title=title)
            look.write(f"mean_saliency@{dataset}", fig)


def _names(subject: "networks.Network") -> tuple[str, str]:
    """Method/model and seed, and the same with the run's folder."""
    if not subject.is_trained:
        return subject.name, subject.name
    fields = subject.fields
    method = fields["variant"] or fields["algorithm"]
    name = f"{method}/{fields['model']} seed {fields['seed']}"
    return name, f"{epath.Path(subject.about['path']).name} {name}"


def _without_networks(look: Look, networks: bool) -> None:
    """Draws all that no network has a part in."""
    plain: dict[str, list] = {}
    for task in look.suite.tasks():
        if task.measure.inside:
            look.log(f"no sheet: {task.name}: shows images as they are")
    for task in look.tasks:
        made = look.suite.make_probe(*task)
        if set(made.conditions) == {""}:
            plain.setdefault(task.measure.name, []).append(task)
            continue
        moved = [name for name in made.conditions if made.steps.get(name)]
        if moved and not networks:
            look.log(
                f"{task.name}: without {_listed(moved)}, made by a network; give --checkpoint"
            )
        still = [name for name in made.conditions if name not in moved]
        if set(still) - {""}:
            look.sheet(task.name, task, look.pictures(task, still))
    for name, tasks in plain.items():
        look.write(name, _as_they_are(look, name, tasks))


def _as_they_are(look: Look, name: str, tasks: Sequence["suite.Task"]):
    """A column a set; what their images are stands below where sets differ in that."""
    from jbias.evals import prepared_sets
    from jbias.report import image_sheets

    columns = {
        task.dataset: look.pictures(task, [""])[prepared_sets.UNCHANGED]
        for task in tasks
    }
    names = {dataset: look.names(dataset) for dataset in columns}
    first, *others = names.values()
    if all(one == first for one in others):
        return image_sheets.draw(columns, first, title=name)
    notes = {
        set_: [image_sheets.Note((n,)) for n in each] for set_, each in names.items()
    }
    return image_sheets.draw(columns, notes=notes, title=name)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 2} more" if len(names) > 2 else ""
    return ", ".join(names[:2]) + more


if __name__ == "__main__":
    sys.exit(main())
