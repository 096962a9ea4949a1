"""Finds attributes where none are given: clusters of what a network sees in images.

    python -m jbias.prepare clusters --checkpoint=resnet50.pth --data=folder --root=photos
    python -m jbias.prepare clusters --checkpoint=runs/erm --data=shapes --site=stage2 --balanced

Images go through the network; the features of each class are clustered by k-means (k-means++,
the best of 10 starts), and its clusters sorted by size: D1 is the union of the largest of each
class, D8 of the smallest (Hu, Sang, Wang and Jiang 2021, https://arxiv.org/abs/2111.09190).
Writes OUT/<split>.csv, which the option columns=OUT/<split>.csv of that set reads back as
its column `cluster`; and for each class OUT/<split>-<number>-<class>.png, a row a cluster with
the images nearest to its centre. Features stay in OUT/features: a command that was
stopped, or one with another --k and --out and these --features, begins from them. To train on D1 alone: shift=only-D1.
"""

import argparse
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import threadpoolctl
from jaxtyping import Float, Int

from jbias import data
from jbias.data import annotations, base, subset
from jbias.measure import measuring, subjects
from jbias.prepare import claims, embeddings, kmeans, reading, sheet
from jbias.runtime import cli, console

_WHERE = "prepare clusters"
_RULE = ("k", "restarts", "seed", "normalise", "balanced", "least")
_NETWORK = (*cli.FILE_FLAGS, "checkpoint", "step", "network")


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the subcommand."""
    cli.add_network_flags(parser)
    pixels = "pixels; 0 is what a run was trained with, of others 224 (%(default)s)"
    reading.add_options(parser, size=0, pixels=pixels)
    parser.set_defaults(command=clusters)
    add = parser.add_argument
    add("--out", default="clusters", help="the folder to write into (%(default)s)")
    add("--features", default="", help="where features are kept (OUT/features)")
    add("--options", default="", help="further options of the set: label=Male,a=b")
    add("--network", default="", help="which of several, by name; the first if empty")
    add("--site", default="", help="where in it; by itself the last, pooled")
    add("--k", type=int, default=8, help="clusters of each class (%(default)s)")
    add("--restarts", type=int, default=10, help="of k-means (%(default)s)")
    add("--seed", type=int, default=0, help="of k-means (%(default)s)")
    add("--normalise", action="store_true", help="features to length 1 first")
    add("--balanced", action="store_true", help="clusters of equal size")
    add("--least", type=int, help="images of each cluster (as many as --k)")
    add("--name", default="cluster", help="of the column (%(default)s)")
    add("--shown", type=int, default=12, help="images a row of a picture; 0: none")


def clusters(
    out: str,
    *,
    features: str,
    site: str,
    options: str,
    name: str,
    shown: int,
    **arguments: Any,
) -> str:
    """Clusters one split; returns what it did.

    Raises ValueError, one line, for what is unknown, too few images in a class or a
    cluster, and a folder that holds clusters of other settings.
    """
    rule = _rule({key: arguments.pop(key) for key in _RULE})
    console.silence_warnings()
    subject = _network({key: arguments.pop(key, None) for key in _NETWORK})
    arguments["size"] = arguments["size"] or _size(subject)
    kind, split, given = reading.asked(arguments)
    given |= reading.further(_WHERE, options)
    source, whole, places = _source(kind, split, given)
    members = _members(source, rule["k"])
    folder = pathlib.Path(out).expanduser()
    path = folder / f"{split.partition('[')[0].replace('/', '-')}.csv"
    made_by = embeddings.described(subject, source, site)
    own = {"made_by": "jbias.prepare clusters", **made_by, "column": name, **rule}
    claims.refuse_others(_WHERE, folder, path.name, own)
    kept = pathlib.Path(features).expanduser() if features else folder / "features"
    blocks = embeddings.of(kept, subject, source, made_by)
    found = _found(source.classes, members, blocks, rule)
    if shown:
        _show(path.with_suffix(""), source, members, blocks, found, rule, shown)
    cells = np.full(len(whole), "", object)
    for index, one in zip(members, found, strict=True):
        cells[places[index]] = [_named(number, rule["k"]) for number in one.number]
    annotations.write(str(path), whole, {name: cells}, network=subject.name, **own)
    return _told(path, name, subject, made_by["site"], found)


def _rule(asked: Mapping[str, Any]) -> dict[str, Any]:
    """How to cluster; ValueError for numbers that mean nothing."""
    rule = {**asked, "least": asked["k"] if asked["least"] is None else asked["least"]}
    for key, least in (("k", 2), ("restarts", 1), ("seed", 0), ("least", 1)):
        if rule[key] < least:
            raise ValueError(
                f"{_WHERE}: --{key} must be {least} or more, got {rule[key]}"
            )
    return rule


def _network(asked: Mapping[str, Any]) -> subjects.Subject:
    """Opens the one that is asked for."""
    args = argparse.Namespace(**asked)
    if not args.checkpoint:
        raise ValueError(f"{_WHERE}: --checkpoint must name a network, got none")
    paths = measuring.checked(args, pathlib.Path("."), {})
    opened = measuring.networks(
        paths, args, str(args.step or "best"), console.logger(None)
    )
    names = []
    for one in opened:
        if one.refused:
            raise ValueError(f"{_WHERE}: {one.refused}")
        if args.network in ("", one.name):
            return one.subject
        names.append(one.name)
    raise ValueError(
        f"{_WHERE}: --network must be one of those in --checkpoint, got"
        f" {args.network!r}; {base.did_you_mean(args.network, names)}"
    )


def _size(subject: subjects.Subject) -> int:
    return subject.about.get("config", {}).get("size", 224)


def _source(
    name: str, split: str, options: Mapping[str, Any]
) -> tuple[base.Source, base.Source, Int[np.ndarray, "n"]]:
    """The images, the whole split that `columns` counts in, and where they are there."""
    source = data.load(name, split, **options)
    narrows = data.DATASETS[name].narrows
    wide = {key: value for key, value in options.items() if key not in narrows}
    if (base := split.partition("[")[0]) == split and wide == options:
        return source, source, np.arange(len(source))
    whole = data.load(name, base, **wide)
    return source, whole, subset.positions_in(source, split, whole, "clusters")


def _members(source: base.Source, k: int) -> list[Int[np.ndarray, "m"]]:
    """Numbers of the images of each class."""
    labels = source.columns["label"]
    members = [np.flatnonzero(labels == i) for i in range(len(source.classes))]
    few = min(range(len(members)), key=lambda i: len(members[i]))
    if len(members[few]) < k:
        raise ValueError(
            f"{_WHERE}: every class must have --k={k} images or more, got"
            f" {len(members[few])} of class {source.classes[few]!r}; take a smaller --k"
        )
    return members


def _found(
    classes: Sequence[str],
    members: Sequence[Int[np.ndarray, "m"]],
    blocks: Sequence[Float[np.ndarray, "b d"]],
    rule: Mapping[str, Any],
) -> list[kmeans.Clusters]:
    """Clusters of each class, the largest first."""
    found = []
    with (
        # Products are thin: threads would wait for one another, and sum otherwise.
        threadpoolctl.threadpool_limits(1),
        console.progress_bar("clustering", len(classes)) as progress,
    ):
        for k, (name, index) in enumerate(zip(classes, members, strict=True)):
            rows = _rows(blocks, index, rule)
            seed = (rule["seed"], k)
            one = kmeans.fit(rows, rule["k"], restarts=rule["restarts"], seed=seed)
            one = kmeans.balanced(rows, one) if rule["balanced"] else one
            if one.sizes.min() < rule["least"]:
                raise ValueError(
                    f"{_WHERE}: every cluster must have {rule['least']} images, class"
                    f" {name!r} has one of {one.sizes.min()} in {len(index)}; take"
                    " --balanced, a smaller --k, or another --least"
                )
            found.append(one)
            progress(k + 1, len(classes))
    return found


def _rows(blocks, index, rule) -> Float[np.ndarray, "m d"]:
    """Features of some images as they are clustered."""
    rows = embeddings.rows(blocks, index).astype(np.float64)
    if rule["normalise"]:
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return rows


def _show(stem: pathlib.Path, source, members, blocks, found, rule, shown: int) -> None:
    """Writes a picture of each class: a row a cluster, nearest to the centre first."""
    with console.progress_bar("drawing", len(found)) as progress:
        for k, (index, one) in enumerate(zip(members, found, strict=True)):
            apart = kmeans.squared(_rows(blocks, index, rule), one.centres)
            pictures = {}
            for number, size in enumerate(one.sizes):
                own = np.flatnonzero(one.number == number)
                nearest = own[np.argsort(apart[own, number], kind="stable")][:shown]
                pictures[f"{_named(number, rule['k'])} ({size:,})"] = [
                    source[int(index[i])]["image"] for i in nearest
                ]
            name = re.sub(r"[^\w.-]+", "_", source.classes[k])
            path = f"{stem}-{k:0{len(str(len(found) - 1))}d}-{name}.png"
            told = f"{source.name}, {source.classes[k]}: nearest to each centre"
            sheet.write(path, pictures, foot=told)
            progress(k + 1, len(found))


def _named(number: int, k: int) -> str:
    return f"D{number + 1:0{len(str(k))}d}"


def _told(path: pathlib.Path, name: str, subject, site: str, found) -> str:
    """How many images each D_i has, and what to do with them."""
    sizes = np.array([one.sizes for one in found])
    lines = [
        f"{_named(i, sizes.shape[1])}: {column.sum():,} images, {column.min():,} to"
        f" {column.max():,} of a class"
        for i, column in enumerate(sizes.T)
    ]
    last = f"{path}: column {name!r} by {subject.name} at {site}"
    return "\n".join([*lines, f"{last}; read it with columns={str(path)!r}"])
