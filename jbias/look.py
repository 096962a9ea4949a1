r"""Draw the test images of measures, and saliency maps of networks.

    jbias look --suite=configs/suites/distortion.py:data=cifar10,root=DIR
    jbias look --runs='runs/distortion/*' --only=occlusion,cut_occlusion \
        --suite=configs/suites/distortion.py:data=cifar10,root=DIR
    jbias look --checkpoint=zoo/ --site=stage4 --set=cue-conflict \
        --suite=configs/suites/biases.py:data=imagenet,root=DIR,stimuli=DIR

Draws one figure, <measure>@<set>, for each measure of the suite and each of its test sets: one
row per image, one column per condition (such as the severity of a corruption), with the pixels
that a network gets when it is measured. Measures that do not change images share one figure,
<measure>, with one column per set. Images are taken at equal intervals from each set, and are
the same in all figures.

With --checkpoint, also draws for the networks (the first seed of each run, see --seeds):

    saliency@<set>             Grad-CAM heat map of each network over each image, with the
                               network's decision and its probability
    mean_saliency@<set>        mean heat map of each network over many images
    <network>/<measure>@<set>  conditions that depend on the network, such as attacks and
                               images with their most salient pixels masked

Each figure is written to --out as a PNG, an SVG and a PDF file. Images are enlarged by
a whole-number factor, without interpolation.

Exit codes: 0 done; 1 a network, or some of its figures, was left out; 2 nothing could be
drawn, or arguments are wrong; 130 stopped by Ctrl-C, 143 by SIGTERM. Standard error has the
reason.
"""

import argparse
import collections
import inspect
import os
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jbias import config as jc
from jbias import errors
from jbias.runtime import cli, console, files, model_paths, outputs, timm_names

_NETWORK_FLAGS = (*cli.FILE_FLAGS, "step", "site", "seeds", "maps")
_DEFAULTS = {"only": (), "set": (), "seeds": 1, "maps": 256}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command `jbias look`; return the exit code.

    Exit codes: see the module's docstring. Invalid arguments raise SystemExit(2).
    argv: the arguments; None: the process's arguments.
    """
    args, changes = cli.parse(parser(), argv, "suite", jc.check)
    if not args.suite:
        parser().error("--suite is missing, e.g. --suite=jbias:suites/distortion")
    unused = () if args.checkpoint else _NETWORK_FLAGS
    cli.settle(parser, args, unused, "without --checkpoint", _DEFAULTS)
    return cli.run(
        lambda: run(args, changes),
        rerun="draws all figures again",
        check=lambda: model_paths.check_checkpoints(
            args.checkpoint or (), "--checkpoint (or --runs)"
        ),
    )


def parser() -> cli.Parser:
    """Return the parser of the command line."""
    usage = "%(prog)s --suite FILE[:ARGS] [--checkpoint PATH] [options]"
    parser = cli.Parser("look", __doc__, usage=usage)
    cli.add_suite_flags(parser)
    cli.add_names(
        parser,
        "--set",
        None,
        "names of the suite's test sets to draw, separated by commas (default: all sets; for "
        "saliency maps, the set that most measures use)",
    )
    cli.add_count(
        parser,
        "--images",
        1,
        8,
        "number of images, which are the rows of a figure; at most the size of the smallest set",
    )
    parser.add_argument(
        "--site",
        metavar="NAME",
        help="layer of the networks from which Grad-CAM is computed, e.g. stage2 (default: the "
        "layer of the suite's measure occlusion, or stage3 if the suite has no such measure)",
    )
    parser.add_argument(
        "--seeds",
        type=cli.at_least_0,
        metavar="N",
        help="number of seeds of each run to draw, beginning with the first seed; 0 draws all "
        "(default: 1)",
    )
    parser.add_argument(
        "--maps",
        type=cli.at_least_0,
        metavar="N",
        help="number of images over which the mean heat map is taken; 0 draws no mean heat map "
        "(default: 256)",
    )
    parser.add_argument(
        "--out",
        default="pictures",
        metavar="DIR",
        help="folder to write the figures into (default: %(default)s)",
    )
    return parser


class Look(NamedTuple):
    """The suite to draw, the images of each set, and the folder of the figures.

    call: the running command, for messages and the list of drawn figures. out: the folder.
    """

    call: "command.Command"
    suite: "suites.Suite"
    rows: Mapping[str, "np.ndarray"]  # Indices of the images to draw, by set.
    sets: tuple[str, ...]  # Sets whose saliency is drawn.
    site: str  # Layer of the saliency maps.
    maps: int  # Number of images in a mean map.
    out: "epath.Path"

    @property
    def tasks(self) -> list["suites.Task"]:
        """The suite's measures and sets, except measures of features inside a network."""
        return [task for task in self.suite.tasks() if not self.looks_inside(task)]

    def looks_inside(self, task: "suites.Task") -> bool:
        """Return True if a measure reads activations instead of decisions."""
        from jbias.evals.activations import inside

        probe = self.suite.make_probe(task.measure, task.dataset)
        return isinstance(probe, inside.Inside)

    def write(self, name: str, fig: "mpl_figure.Figure") -> None:
        """Write a figure as PNG, SVG and PDF, and log its path.

        name: path in `out` without extension. ValueError: see `check`.
        """
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
        """Raise ValueError if writing a figure would overwrite another program's file.

        name: see `write`. A figure of jbias has three files, PNG, SVG and PDF: if some but not all
        of them exist, or a file has other content (`outputs.check_file`), jbias did not write it.
        """
        paths = [self.out / f"{name}.{form}" for form in ("png", "svg", "pdf")]
        existing = [path for path in paths if os.path.lexists(path)]
        for path in existing:
            outputs.check_file(path)
        if len(existing) not in (0, len(paths)):
            raise ValueError(
                f"--out: {existing[0]} exists already, without the other formats of a "
                "figure of jbias; remove it or name another folder"
            )

    def draw_sheet(
        self,
        name: str,
        title: str,
        task: "suites.Task",
        conditions: Sequence[str],
        *,
        bound: "inference.BoundNetwork | None" = None,
        prepared: "set_batches.PreparedSet | None" = None,
    ) -> None:
        """Draw and write a sheet: one row per image, one column per condition.

        name: see `write`. title: title above the sheet. task: the measure and the set. conditions:
        conditions of the measure. bound, prepared: the network on which the conditions depend, and
        the drawn images as this network gets them; None if the conditions depend on no network.
        """
        from jbias.report import image_sheets

        self.check(name)  # Before images are made, which may take long.
        pictures = self.pictures(task, conditions, bound=bound, prepared=prepared)
        names = self.row_names(task.dataset)
        self.write(name, image_sheets.draw(pictures, names, title=title))

    def pictures(
        self,
        task: "suites.Task",
        conditions: Sequence[str],
        *,
        bound: "inference.BoundNetwork | None" = None,
        prepared: "set_batches.PreparedSet | None" = None,
    ) -> dict[str, "np.ndarray"]:
        """Return the drawn images of a set under each condition, by condition.

        Values are arrays (n, h, w, 3), floats in [0, 1]. The key of condition "" is
        `set_batches.UNCHANGED`; if "" is not among the conditions, the first entry has this key
        and the unchanged images as uint8. Arguments: see `draw_sheet`.
        """
        from jbias.evals import set_batches

        return set_batches.condition_images(
            self.suite,
            task,
            bound or set_batches.NO_NETWORK,
            conditions,
            prepared or self.subset(task.dataset),
        )

    def subset(
        self, dataset: str, prepared: "set_batches.PreparedSet | None" = None
    ) -> "set_batches.PreparedSet":
        """Return the drawn images of a set.

        prepared: the set as a network gets it; None: as decoded.
        """
        from jbias.evals import set_batches

        return set_batches.select(self.suite, dataset, self.rows[dataset], prepared)

    def row_names(self, dataset: str) -> list[str]:
        """Return the names of rows, such as "12 dog": an image's index in its set, and class.

        Images without a class (label -1) have only the index.
        """
        from jbias.data import tables

        source, rows = self.suite.sources[dataset], self.rows[dataset]
        classes = [*map(tables.readable, source.classes), ""]  # Label -1 is no class.
        labels = source.columns["label"][rows]
        return [
            f"{index} {classes[label]}".strip()
            for index, label in zip(rows, labels, strict=True)
        ]


class NetworkDrawings(NamedTuple):
    """The saliency maps of one network, for the figures that all networks share."""

    names: tuple[str, str]  # Short name, and the name with the run's folder.
    saliency: Mapping[str, "image_sheets.NetworkMaps"]  # By set.
    mean_saliency: Mapping[str, "image_sheets.MeanMap | None"]  # By set.


def run(args: argparse.Namespace, changes: Sequence[str]) -> int:
    """Draw the given suite and networks; return the exit code.

    0 if everything was drawn, 1 if networks, sets or figures were left out, and 2 if nothing was
    drawn. A network or figure that fails is left out, with a line on stderr. args: the parsed
    flags. changes: changes of the suite, such as --suite.run.batch=8. ValueError for invalid
    arguments.
    """
    from jbias import timm_networks
    from jbias.evals import command, networks, suites

    call = command.Command("drawn")
    # gib=0: the few images that are drawn are read from files, not kept in memory.
    config = command.load_suite(args, changes, gib=0.0)
    _keep_sets(config.get("measures", {}), args.set, args.only)
    paths = networks.check_arguments(args, args.out, config)
    timm_networks.check([x for x in paths if timm_names.is_timm(x)], "--checkpoint")
    look = _make_look(args, suites.open_suite(config, call.say, only=args.only), call)
    _draw_stimuli(look, bool(paths))
    drawings: list[NetworkDrawings] = []
    num_seeds = collections.Counter()
    open_timm = timm_networks.opener(args, look.suite, call.say)
    loaded = call.load(paths, args, look.suite.run["step"], open_timm=open_timm)
    for network in loaded:
        run_key = network.about["path"], network.fields["run"]
        num_seeds[run_key] += 1
        if not args.seeds or num_seeds[run_key] <= args.seeds:
            with call.leaving_out(network.name):
                drawings.append(_draw_network(look, network))
    _draw_saliency(look, drawings)
    omitted = f"; {len(call.left_out)} not, see above" if call.left_out else ""
    call.say(f"drew {len(call.done)} figures in {look.out}{omitted}")
    return call.code


def _keep_sets(
    measures: Mapping[str, Any], sets: Sequence[str], only: Sequence[str]
) -> None:
    """Remove all sets except the given ones from a suite's measures, in place.

    measures: options by name. sets: names of sets; empty: keep all. only: names of the
    measures that are drawn; empty: all. ValueError for a set that no drawn measure has.
    """
    known = {
        dataset
        for name, measure in measures.items()
        if not only or name in only
        for dataset in measure.get("sets", ())
    }
    errors.check_all_known("--set", sets, known)
    if sets:
        for measure in measures.values():
            measure["sets"] = [
                dataset for dataset in measure.get("sets", ()) if dataset in sets
            ]


def _make_look(
    args: argparse.Namespace, opened_suite: "suites.Suite", call: "command.Command"
) -> Look:
    """Return the Look of a suite, with evenly spaced images of each set.

    If a set has fewer images than --images, the number of its images is used for all sets, and a
    line is logged. Saliency is drawn for --set, or for the set that most measures use. The layer of
    the saliency maps is --site, or else the layer of the suite's measure occlusion, or the default
    of occlusion. call: the running command.
    """
    import numpy as np
    from etils import epath

    from jbias.stimuli import occlusion

    num_measures = collections.Counter(dataset for _, dataset in opened_suite.tasks())
    sizes = {name: len(opened_suite.sources[name]) for name in num_measures}
    smallest = min(sizes, key=sizes.get)
    count = min(args.images, sizes[smallest])
    if count < args.images:
        call.say(
            f"--images: {smallest} has {count} images, so {count} of each set are drawn"
        )
    rows = {
        name: np.linspace(0, size - 1, count).round().astype(np.int32)
        for name, size in sizes.items()
    }
    default_site = inspect.signature(occlusion.make).parameters["site"].default
    sites = [
        measure.get("site", default_site)
        for name, measure in opened_suite.config["measures"].items()
        if measure.get("probe", name) == "occlusion"
    ]
    return Look(
        call=call,
        suite=opened_suite,
        rows=rows,
        sets=args.set or tuple(name for name, _ in num_measures.most_common(1)),
        site=args.site or (sites[0] if sites else default_site),
        maps=args.maps,
        out=epath.Path(args.out),
    )


def _draw_network(look: Look, network: "networks.Network") -> NetworkDrawings:
    """Draw the sheets that depend on a network; return its maps for the shared figures.

    A sheet or map that fails is left out, with a line on stderr.
    """
    from jbias.evals import set_batches, suites

    short_name, name = _names(network)
    call, opened_suite = look.call, look.suite
    bound = network.bind(opened_suite.dtype, opened_suite.devices)
    set_requests = {
        set_batches.SetRequest(dataset, keep_unanswerable=False): ()
        for dataset in look.rows
    }
    by_request, problems = set_batches.prepare_all(
        network, opened_suite, set_requests, call.say
    )
    prepared = {request.dataset: ready for request, ready in by_request.items()}
    for problem in problems:
        call.leave_out(f"{name}: {problem}", f"{name}: {problem}")
    saliency, mean_saliency = {}, {}
    for dataset in look.sets:
        if dataset in prepared:
            with call.leaving_out(f"{name}: saliency@{dataset}"):
                saliency[dataset], mean_saliency[dataset] = _saliency(
                    look,
                    bound,
                    title=f"{name}: maps",
                    dataset=dataset,
                    prepared=prepared[dataset],
                )
    for task in look.tasks:
        if task.dataset not in prepared:
            continue
        subset = look.subset(task.dataset, prepared[task.dataset])
        probe = opened_suite.make_probe(task.measure, task.dataset, subset.classes)
        dependent = suites.network_conditions(probe)
        if dependent:
            with call.leaving_out(f"{name}: {task.name}"):
                set_batches.check_needs(task.measure.probe, probe, bound, subset)
                look.draw_sheet(
                    f"{network.name}/{task.name}",
                    f"{task.name}, {name}",
                    task,
                    dependent,
                    bound=bound,
                    prepared=subset,
                )
    return NetworkDrawings((short_name, name), saliency, mean_saliency)


def _saliency(
    look: Look,
    bound: "inference.BoundNetwork",
    *,
    title: str,
    dataset: str,
    prepared: "set_batches.PreparedSet",
) -> tuple["image_sheets.NetworkMaps", "image_sheets.MeanMap | None"]:
    """Return the saliency maps of the drawn images of a set, and a mean map or None.

    The mean map is over `look.maps` images; None if `look.maps` is 0. Decisions follow the set's
    first decision rule. bound: the network. title: title of the progress bar. dataset: name of
    the set. prepared: the set as this network gets it. ValueError if the layer or the network has
    no maps.
    """
    import numpy as np

    from jbias.data import tables
    from jbias.evals import heatmaps, inference, plain, set_batches, suites
    from jbias.report import image_sheets

    subset = look.subset(dataset, prepared)
    batches = list(set_batches.device_batches(look.suite, subset))
    maps = np.concatenate(list(heatmaps.batch_maps(bound, batches, look.site)))
    rule = next(iter(subset.rules.values()))
    unchanged = suites.as_stimuli(plain.make())
    answers = inference.run_probe(bound, unchanged, batches, {"": rule})[""]
    predictions = answers["prediction"]
    shown = image_sheets.NetworkMaps(
        maps,
        [tables.readable(subset.classes[label]) for label in predictions],
        answers["confidence"],
        predictions == subset.columns["label"],
    )
    if not look.maps:
        return shown, None
    averaged = set_batches.subsample(prepared, look.maps)
    batches = set_batches.device_batches(look.suite, averaged)
    total, count, num_empty = 0.0, 0, 0
    with console.count_images(look.call.say, title, len(averaged.index)) as (add, _):
        for maps in heatmaps.batch_maps(bound, batches, look.site):
            total = total + maps.sum(0, dtype=np.float64)
            count += len(maps)
            num_empty += int((maps.max((1, 2)) == 0).sum())
            add(len(maps))
    return shown, image_sheets.MeanMap(total / count, count, num_empty)


def _draw_saliency(look: Look, drawings: Sequence[NetworkDrawings]) -> None:
    """Draw the saliency of all networks: a figure per set, and a figure of mean maps per set.

    Networks have their short names, or their long names if short ones are equal. A set for which
    no network has maps is skipped. There is no figure of mean maps if `look.maps` is 0.
    """
    from jbias.evals import set_batches
    from jbias.report import image_sheets

    short_names = [drawing.names[0] for drawing in drawings]
    named = {}
    for drawing in drawings:
        short_name, long_name = drawing.names
        is_unique = short_names.count(short_name) == 1
        named[short_name if is_unique else long_name] = drawing
    for dataset in look.sets:
        saliency = {
            name: drawing.saliency[dataset]
            for name, drawing in named.items()
            if dataset in drawing.saliency
        }
        if not saliency:
            continue
        title = f"Grad-CAM at {look.site}, {dataset}"
        images = set_batches.read_images(look.suite, look.subset(dataset)) / 255
        fig = image_sheets.saliency(
            images, look.row_names(dataset), saliency, title=title
        )
        look.write(f"saliency@{dataset}", fig)
        if look.maps:
            means = {name: named[name].mean_saliency[dataset] for name in saliency}
            fig = image_sheets.mean_maps(means, title=f"Mean of {title}")
            look.write(f"mean_saliency@{dataset}", fig)


def _names(network: "networks.Network") -> tuple[str, str]:
    """Return a network's short name "method/model seed N", and its long name.

    The long name is the name of the run's folder and the short name. For a network from a file, the
    two names are the network's name.
    """
    if "config" not in network.about:
        return network.name, network.name
    fields = network.fields
    method = fields["variant"] or fields["algorithm"]
    name = f"{method}/{fields['model']} seed {fields['seed']}"
    return name, f"{pathlib.PurePath(network.about['path']).name} {name}"


def _draw_stimuli(look: Look, has_networks: bool) -> None:
    """Draw the sheets of all conditions that do not depend on a network.

    A measure that does not change images has one figure, with a column per set.
    A line is logged about each measure without a sheet. has_networks: False: the conditions
    that depend on a network are logged as left out.
    """
    from jbias.evals import suites

    unchanged: dict[str, list[suites.Task]] = {}  # By measure.
    log = look.call.say
    for task in look.suite.tasks():
        if look.looks_inside(task):
            log(f"no sheet: {task.name}: does not change images")
    for task in look.tasks:
        probe = look.suite.make_probe(task.measure, task.dataset)
        conditions = suites.conditions(probe)
        if conditions == ("",):
            unchanged.setdefault(task.measure.name, []).append(task)
            continue
        dependent = suites.network_conditions(probe)
        if dependent and not has_networks:
            names = ", ".join(dependent[:2])
            if len(dependent) > 2:
                names += f" and {len(dependent) - 2} more"
            log(
                f"{task.name}: without {names}, which depend on a network; give "
                "--checkpoint"
            )
        independent = [name for name in conditions if name not in dependent]
        if set(independent) - {""}:
            look.draw_sheet(task.name, task.name, task, independent)
    for name, tasks in unchanged.items():
        look.write(name, _unchanged_sheet(look, name, tasks))


def _unchanged_sheet(
    look: Look, title: str, tasks: Sequence["suites.Task"]
) -> "mpl_figure.Figure":
    """Return a figure with one column of unchanged images per set.

    title: text above the sheet. tasks: one per set. If the rows have the same names in all
    sets, rows are named; otherwise every image is named.
    """
    from jbias.report import image_sheets

    columns = {}
    for task in tasks:
        pictures = look.pictures(task, [""])
        columns[task.dataset] = next(iter(pictures.values()))
    names = {dataset: look.row_names(dataset) for dataset in columns}
    first, *later_names = names.values()
    if all(row_names == first for row_names in later_names):
        return image_sheets.draw(columns, first, title=title)
    notes = {
        dataset: [image_sheets.PictureNote((name,)) for name in row_names]
        for dataset, row_names in names.items()
    }
    return image_sheets.draw(columns, notes=notes, title=title)


if __name__ == "__main__":
    sys.exit(main())
