r"""Audit models: find image attributes that lower the accuracy, and by how much.

    jbias audit --checkpoint=runs/x --data=attributed --root=DIR \
        --attributes=hair,background --out=audit/
    jbias audit --checkpoint=net.pth --model=resnet50 --classes=names.txt \
        --data=attributed --root=DIR
    jbias audit --runs='runs/*' --data=shapes --data.factors=True \
        --data.correlation=0.0625 --data.n=4096

Nothing is trained. Each network classifies each image once. From these decisions, the command
computes the accuracy under all kinds and levels of shift of each attribute. An attribute is a
column of the data set with named values, such as the hair colour. Marginal shifts (M0 to M4) change
P(value), conditional shifts (C0 to C6) change P(value | class), and joint shifts (J0 to J4) change
P(value) and P(value | class). Level 0 is the control, without a shift. All seeds of a run form one
model; each weights file is a model.

Writes to --out: index.html (a page that can be read offline), which ranks the attributes by
the drop in accuracy, and shows the drop at each level, pairs of images (see --pairs), and
probabilities in and out of distribution; tables/ (CSV, LaTeX); figures/ (SVG; --figures adds
PDF and PNG); results.json (all numbers). With several models, these files are in models/<name>/.
networks/<name>/ has the decisions of each network, from which the same command resumes.

Every class needs images of every value of the attribute. Values and classes with too few
images are left out of the attribute's tests, and the page names them.

Exit codes: 0 done; 1 some network was left out; 2 no network could be audited, or arguments
are wrong; 130 stopped by Ctrl-C, 143 by SIGTERM. Standard error has the reason.
"""

import argparse
import dataclasses
import functools
import json
import pathlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from jbias import config as jc
from jbias import errors
from jbias.runtime import cli, console, outputs

_SET, _MEASURE = "audited", "accuracy"
_SIZE = 224  # Pixels a side for networks from files, which do not record theirs.
# As jbias.data.shifts.KINDS, which is slow to import.
_KINDS = ("marginal", "conditional", "joint")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command `jbias audit`; return the exit code.

    Exit codes: see the module's docstring. Invalid arguments raise SystemExit(2).
    argv: the arguments; None: the process's arguments.
    """
    args, options = cli.parse(parser(), argv, "data", _check)
    if not args.checkpoint:
        parser().error("--checkpoint is missing, e.g. --checkpoint=runs/x")
    if not args.data:
        parser().error("--data is missing, e.g. --data=attributed --root=DIR")
    return cli.run(lambda: run(args, options), rerun="resumes")


def _check(arguments: Mapping[str, Any]) -> None:
    """Raise ValueError for an unknown preset or kind of shift; arguments: values by name."""
    jc.check(arguments)
    errors.check_all_known("--kinds", arguments["kinds"], _KINDS)


def parser() -> cli.Parser:
    """Return the parser of the command line."""
    usage = "%(prog)s --checkpoint PATH --data NAME [--root DIR] [options]"
    parser = cli.Parser("audit", __doc__, usage=usage)
    cli.add_network_flags(parser)
    parser.add_argument(
        "--data",
        metavar="NAME",
        help="required: data set whose images the networks classify, such as attributed, "
        "celeba or shapes (docs/data.md). --data.KEY=VALUE sets an option of the data set, e.g. "
        "--data.label=smile",
    )
    parser.add_argument(
        "--root",
        metavar="DIR",
        help="folder of the data set, short for --data.root=DIR; required for data sets that "
        "are read from files",
    )
    parser.add_argument(
        "--split",
        default="test",
        metavar="SPLIT",
        help="split of the data set whose images are used (default: %(default)s)",
    )
    parser.add_argument(
        "--size",
        type=cli.at_least(1),
        metavar="PIXELS",
        help="side of the images in pixels (default: the size at which runs were trained; 224 "
        "for weights files)",
    )
    cli.add_count(
        parser,
        "--images",
        0,
        0,
        "number of images, taken at equal intervals from the split; 0 uses all images",
    )
    parser.add_argument(
        "--reference",
        action="append",
        default=[],
        metavar="PATH",
        help="networks, as for --checkpoint, that cannot use the attribute as a shortcut, such "
        "as networks trained on every value of the attribute equally often in every class. "
        "Their drop in accuracy can only come from harder images, and is subtracted from the "
        "drop of the audited networks. The flag may be repeated (default: subtract nothing)",
    )
    cli.add_names(
        parser,
        "--attributes",
        (),
        "columns of the data set to audit, separated by commas (default: all columns with named "
        "values)",
    )
    cli.add_names(
        parser,
        "--kinds",
        _KINDS,
        f"kinds of shift, separated by commas: {', '.join(_KINDS)}. A drop under a marginal "
        "shift can also come from harder images; a drop under a conditional shift comes only "
        "from shortcuts (default: all three)",
    )
    parser.add_argument(
        "--apart",
        action="store_true",
        help="count each seed of a run as a model of its own (default: all seeds of a run are "
        "one model)",
    )
    tau = cli.number(float, lambda tau: 0 <= tau < 100, "a number from 0 to below 100")
    parser.add_argument(
        "--tau",
        type=tau,
        default=5.0,
        metavar="POINTS",
        help="smallest drop in accuracy that counts, in percentage points: an attribute is a "
        "'bug' if its drop is significantly larger than POINTS (default: %(default)g)",
    )
    parser.add_argument(
        "--alpha",
        **cli.ALPHA,
        metavar="P",
        help="significance level, between 0 and 1: the largest accepted probability of one or "
        "more false 'bugs' among all tests of a model (default: %(default)s)",
    )
    cli.add_count(
        parser,
        "--draws",
        low=100,
        default=2000,
        help="number of bootstrap samples for intervals, at least 100",
    )
    cli.add_count(
        parser,
        "--seed",
        low=0,
        default=0,
        help="random seed of the split of the images into halves, and of the bootstrap",
    )
    cli.add_count(
        parser,
        "--pairs",
        low=0,
        default=8,
        help="number of pairs of images to show per attribute; 0 shows none. The images of a "
        "pair have the same class and different values of the attribute, and the network "
        "classifies only one of them correctly",
    )
    cli.add_count(
        parser,
        "--devices",
        low=0,
        default=0,
        help="number of GPUs, TPU chips or CPUs of this machine to use; 0 uses all",
    )
    parser.add_argument(
        "--out",
        default="audit",
        metavar="DIR",
        help="folder to write the results into (default: %(default)s)",
    )
    cli.add_figures(parser)
    return parser


class Answers(NamedTuple):
    """The decisions of one network on all images of the data set.

    model: name of the model, which the seeds of a run share. network: name of the network.
    classes: names of the network's classes.
    """

    model: str
    network: str
    decisions: "decisions.Decisions"
    classes: tuple[str, ...]


def run(args: argparse.Namespace, options: Sequence[str]) -> int:
    """Audit the given networks and write the report to --out; return the exit code.

    args: the parsed arguments. options: options of the data set, such as --data.label=smile.
    ValueError if no network could be audited, and for invalid arguments.
    """
    from jbias.evals import command, networks
    from jbias.report.pages import audit_page

    call = command.Command("audited")
    paths = networks.check_arguments(args, args.out, {})
    outputs.check_report_folder(args.out, ("models",))
    reference_paths = networks.find_checkpoints(args.reference)
    opened_suite = _open_suite(args, options, [*paths, *reference_paths], call.say)
    columns, values, notes = _columns(opened_suite.sources[_SET], args.attributes)
    auditor = Auditor(args, opened_suite, columns, values, notes)
    models: dict[str, list[Answers]] = {}
    for answers in auditor.answers(call, paths):
        models.setdefault(answers.model, []).append(answers)
    strict_call = command.Command("audited", strict="--reference")
    reference = list(auditor.answers(strict_call, reference_paths))
    if not models:
        raise ValueError(
            "--checkpoint: no network could be audited; the lines above say why"
        )
    audits = [
        auditor.test(name, answers, reference, call.say)
        for name, answers in models.items()
    ]
    lines = audit_page.write(
        audits,
        pathlib.Path(args.out),
        notes=[*call.left_out.values()],
        figures=args.figures,
    )
    for line in lines:
        call.say(line)
    return call.code


def _open_suite(
    args: argparse.Namespace,
    options: Sequence[str],
    paths: Sequence[str],
    log: Callable[[str], None],
) -> "suites.Suite":
    """Return a suite that measures the accuracy on the data set of --data.

    options: changes such as --data.label=smile. paths: checkpoints, for the image size.
    log: receives log lines. ValueError, which names the flag, for invalid arguments.
    """
    import ml_collections

    from jbias.evals import suites

    data_options = {"root": args.root} if args.root else {}
    for text in options:
        key, _, value = text.removeprefix("--data.").partition("=")
        if "." in key:
            errors.refuse("--data.KEY", "have a key without dots, such as label", key)
        jc.check_numbers(f"--data.{key}", value)
        data_options[key] = jc.parse_value(value)
    config = ml_collections.ConfigDict()
    config.size = args.size or _common_size(paths)
    config.sets = {_SET: {"data": args.data, "split": args.split, **data_options}}
    measure = dict(probe="plain", sets=(_SET,), images=args.images)
    config.measures = {_MEASURE: measure}
    config.run = dict(devices=args.devices, step=args.step or "best")
    lines: list[str] = []
    try:
        opened_suite = suites.open_suite(config, lines.append)
    except ValueError as error:
        _, is_absent, reason = "".join(lines[-1:]).partition(suites.ABSENT)
        message = reason if is_absent else str(error)
        raise ValueError(message.replace(f"suite.sets.{_SET}", "--data")) from error
    for line in lines:
        log(line)
    return opened_suite


def _common_size(paths: Sequence[str]) -> int:
    """Return the image side in pixels that all networks were trained with.

    paths: workdirs of runs, and files of weights, for which 224 pixels are assumed. ValueError if
    the sides differ.
    """
    from etils import epath

    from jbias.evals import networks
    from jbias.models import trained

    runs = [epath.Path(path) for path in paths if networks.is_trained(path)]
    sizes = {trained.read_json(run / "config.json", ("size",))["size"] for run in runs}
    if len(runs) < len(paths):
        sizes.add(_SIZE)
    if len(sizes) > 1:
        different = ", ".join(map(str, sorted(sizes)))
        errors.refuse("--size", f"be given for networks of {different} pixels together")
    return sizes.pop()


def _columns(
    source: "base.Source", requested: Sequence[str]
) -> tuple[dict[str, "np.ndarray"], dict[str, tuple[str, ...]], list[str]]:
    """Return the columns to audit, the names of their values, and notes for the page.

    Columns and value names are by name of the column. An entry of a column is the index of
    its value's name; -1: the image has no value. Values without names are named "0", "1", ...
    A column that equals an earlier one is left out, with a note.

    requested: names of columns; empty for all columns whose values have names. The columns label
    and accepted_... are not attributes. ValueError for unknown names, and if no column is left.
    """
    import numpy as np

    from jbias.data import set_options

    is_attribute = lambda name: name != "label" and not name.startswith("accepted_")
    attributes = [name for name in source.columns if is_attribute(name)]
    for name in requested:
        if name not in attributes:
            known = errors.suggest(name, attributes) if attributes else "it has none"
            errors.refuse("--attributes", f"be columns of {source.name}", name, known)
    names = list(requested) or [name for name in attributes if name in source.values]
    # The column `attribute` is often a copy of a column with a better name.
    names.sort(key=lambda name: name == "attribute")
    columns, values, notes = {}, {}, []
    for name in names:
        column = np.asarray(source.columns[name])
        value_names = source.values.get(name, ())
        equal = [other for other, c in columns.items() if np.array_equal(c, column)]
        if equal:
            notes.append(f"{name} is the same as {equal[0]} in every image.")
            continue
        if set_options.NO_VALUE in value_names:
            is_empty = column == value_names.index(set_options.NO_VALUE)
            column = np.where(is_empty, -1, column)
            notes.append(
                f"{is_empty.sum():,} images without {name} are not used in its tests."
            )
        if name not in source.values:
            value_names = map(str, range(int(column.max(initial=-1)) + 1))
        values[name] = tuple(value_names)
        columns[name] = column
    if not columns:
        raise ValueError(
            f"--data: {source.name} must have a column of attributes, got"
            f" {', '.join(source.columns)}; name columns by --attributes, or give a set"
            " that has some, such as attributed"
        )
    return columns, values, notes


class Auditor(NamedTuple):
    """The data set whose images the networks classify, and its columns to audit.

    args: the parsed arguments. suite: as `_open_suite` returns it. columns, values, notes: as
    `_columns` returns them.
    """

    args: argparse.Namespace
    suite: "suites.Suite"
    columns: Mapping[str, "np.ndarray"]
    values: Mapping[str, tuple[str, ...]]
    notes: list[str]

    def answers(self, call, paths: Sequence[str]) -> Iterator[Answers]:
        """Yield the decisions of each network; skip networks that are not measured completely.

        call: the `command.Command`, which records the reasons. paths: paths of the networks.
        """
        from etils import epath

        from jbias import timm_networks
        from jbias.evals import decision_files, runner

        open_timm = timm_networks.opener(self.args, self.suite, call.say)
        folder = epath.Path(self.args.out) / "networks"
        for network in call.load(paths, self.args, open_timm=open_timm):
            name = network.name
            problems = None  # Stays None if the network raises an error.
            with call.leaving_out(name):
                problems = runner.run_suite(network, self.suite, folder, call.say)
            if problems:
                call.leave_out(name, "; ".join(problems))
            if problems != []:
                continue
            call.done.append(name)
            measure_path = folder / name / "measures" / f"{_MEASURE}@{_SET}.json"
            classes = json.loads(measure_path.read_text("utf-8"))["classes"]
            path = folder / name / "decisions" / _SET / f"{_MEASURE}.parquet"
            yield Answers(
                model=_model_name(network, self.args.apart),
                network=name,
                decisions=decision_files.read_conditions(path)[""],
                classes=tuple(classes),
            )

    def test(
        self,
        name: str,
        answers: Sequence[Answers],
        reference: Sequence[Answers],
        log: Callable[[str], None],
    ) -> "audit.Audited":
        """Return the tests of every attribute for one model.

        name: name of the model. answers: decisions of the model's networks. reference: decisions of
        the networks of --reference, empty without these networks. log: receives log lines. Only
        images for which every network has a decision are used.
        """
        import numpy as np

        from jbias.data import tables
        from jbias.measures import attribute_audit, attribute_reliance
        from jbias.report.pages import audit_page

        args, notes = self.args, self.notes
        source = self.suite.sources[_SET]
        answered = [
            answer.decisions.columns["index"] for answer in (*answers, *reference)
        ]
        index = functools.reduce(np.intersect1d, answered)
        if len(index) < len(source):
            note = f"{len(index):,} of {len(source):,} images of the set are shown."
            notes = [*notes, note]
        label = np.asarray(source.columns["label"])[index]
        columns = {key: column[index] for key, column in self.columns.items()}
        classes = tuple(map(tables.readable, source.classes))
        stacked = _stack(answers, index)
        reference_correct = _stack(reference, index)["correct"] if reference else None
        reliance = {}
        with console.progress_bar(f"{name}: testing", len(columns)) as show_progress:
            for key, column in columns.items():
                reliance[key] = attribute_reliance.measure(
                    stacked["correct"],
                    label,
                    column,
                    against=reference_correct,
                    names=(classes, self.values[key]),
                    kinds=args.kinds,
                    draws=args.draws,
                    seed=args.seed,
                )
                show_progress(len(reliance), 0)
        plural = "" if len(columns) == 1 else "s"
        log(f"{name}: {len(columns)} attribute{plural} tested")
        candidates = attribute_audit.rank_candidates(
            stacked["correct"],
            label,
            columns,
            reliance,
            against=reference_correct,
            tau=args.tau / 100,
            alpha=args.alpha,
        )
        audited = audit_page.Audited(
            model=name,
            networks=tuple(answer.network for answer in answers),
            reference=tuple(answer.network for answer in reference),
            dataset=source.name,
            classes=classes,
            answers=tuple(map(tables.readable, answers[0].classes)),
            index=index,
            label=label,
            columns=columns,
            values=self.values,
            **stacked,
            candidates=candidates,
            examples={},
            notes=notes,
            tau=args.tau / 100,
            alpha=args.alpha,
            draws=args.draws,
            seed=args.seed,
        )
        return dataclasses.replace(audited, examples=dict(self.examples(audited)))

    def examples(
        self, audited: "audit.Audited"
    ) -> Iterator[tuple[str, "audit.Examples"]]:
        """Yield (name, examples) for each attribute on the page that has examples.

        Examples are at most --pairs pairs of images that differ in the attribute, one
        classified correctly and one wrongly by the first network. Nothing is yielded if
        --pairs is 0. audited: the tests of one model.
        """
        import numpy as np

        from jbias.evals import set_batches
        from jbias.measures import attribute_audit
        from jbias.report.pages import audit_page

        if not self.args.pairs:
            return
        shown_names = {candidate.name for candidate in audited.shown}
        label = audited.label
        for candidate in audited.shown:
            other_columns = {
                key: column
                for key, column in audited.columns.items()
                if key != candidate.name
            }
            other_shown = [
                column for key, column in other_columns.items() if key in shown_names
            ]
            agrees = attribute_audit.agreement(
                candidate.result,
                candidate.kind,
                label,
                audited.columns[candidate.name],
            )
            pairs = attribute_audit.flipping_pairs(
                audited.correct[0],
                audited.likelihood[0],
                agrees,
                label,
                np.array(list(other_columns.values())).reshape(-1, len(label)),
                self.args.pairs,
                first=np.array(other_shown).reshape(-1, len(label)),
            )
            if pairs:
                rows = [pair.agrees for pair in pairs]
                rows += [pair.disagrees for pair in pairs]
                index = audited.index[rows].astype(np.int32)
                selected = set_batches.select(self.suite, _SET, index)
                images = set_batches.read_images(self.suite, selected)
                agreeing, disagreeing = np.split(images, 2)
                yield candidate.name, audit_page.Examples(pairs, agreeing, disagreeing)


def _model_name(network: "networks.Network", apart: bool) -> str:
    """Return the name of a network's model: the run's folder, or else the network's name.

    apart: False: the seeds of a run are one model; True: each network is a model. If the name
    of the run differs from that of its folder, the result is "FOLDER RUN".
    """
    if apart or "config" not in network.about:
        return network.name
    folder = pathlib.PurePath(network.about["path"]).name
    run = network.fields["run"]
    return folder if folder == run else f"{folder} {run}"


def _stack(answers: Sequence[Answers], index: "np.ndarray") -> dict[str, Any]:
    """Return arrays (networks, images) of the networks' decisions, by name.

    Names: "prediction" (class), "correct" (bool), "likelihood" (probability of the label) and
    "confidence" (probability of the prediction). answers: at least one. index: indices of images in
    the data set; every network has a decision for each of these images.
    """
    import numpy as np

    by_network = []
    for answer in answers:
        decided = answer.decisions
        rows = np.searchsorted(decided.columns["index"], index)
        by_network.append(
            {
                "prediction": decided.prediction[rows],
                "correct": decided.right[rows],
                "likelihood": decided.columns["likelihood"][rows],
                "confidence": decided.columns["confidence"][rows],
            }
        )
    return {
        key: np.stack([columns[key] for columns in by_network]) for key in by_network[0]
    }


if __name__ == "__main__":
    sys.exit(main())
