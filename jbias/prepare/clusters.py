"""Find attributes of images without attribute labels: clusters of a network's features.

    jbias prepare clusters --checkpoint=resnet50.pth --data=folder --root=photos
    jbias prepare clusters --checkpoint=runs/erm --data=shapes --site=stage2 --balanced

The features of the images of each class are clustered by k-means, started by k-means++. The
clusters of a class are numbered by size: D1 is the largest cluster of every class, and DK, with
K the value of --k, the smallest (Hu, Sang, Wang and Jiang 2021,
https://arxiv.org/abs/2111.09190).

Writes

    OUT/<split>.csv                   the cluster of each image, in the column `cluster`; a
                                      config reads the file by columns=OUT/<split>.csv
    OUT/<split>-<number>-<class>.png  a figure per class: a row per cluster, with the images
                                      that are nearest to its centre
    OUT/features/                     the features, so that the same command continues where it
                                      was stopped

To train on D1 alone, use shift=only-D1 in the config (see `jbias train`). To try another --k,
give the same --features and a new --out.
"""

import argparse
import hashlib
import io
import json
import pathlib
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import threadpoolctl
from flax import errors as flax_errors
from flax import linen as nn
from jaxtyping import Float, Int, UInt8
from scipy import optimize
from sklearn import cluster, exceptions

from jbias import data, errors
from jbias.data import base, set_options
from jbias.evals import command, networks
from jbias.evals.activations import features
from jbias.models import taps
from jbias.prepare import dataset
from jbias.runtime import cli, console

_WHERE = "prepare clusters"
_MAX_STEPS = 300
_MAX_EXACT_ROWS = 2000  # With more rows, balanced clusters are assigned greedily.


Rows = Float[np.ndarray, "n d"]
Centres = Float[np.ndarray, "k d"]
Blocks = Sequence[Float[np.ndarray, "b d"]]  # Features of consecutive images.


class Clusters(NamedTuple):
    """The cluster of each row, and the centres of the clusters."""

    number: Int[np.ndarray, "n"]  # Cluster of each row, an index in `centres`.
    centres: Centres
    inertia: float  # Sum of squared distances to the centres.

    @property
    def sizes(self) -> Int[np.ndarray, "k"]:
        """Number of rows in each cluster, in the order of `centres`."""
        return np.bincount(self.number, minlength=len(self.centres))


def kmeans(
    rows: Rows, k: int, *, restarts: int = 10, seed: Sequence[int] = (0,)
) -> Clusters:
    """Return the k-means clusters with the least inertia of all starts, the largest first.

    Source: Lloyd 1982, with the starts of k-means++, Arthur and Vassilvitskii, SODA 2007: the
    first centre is a random row, each further centre a row drawn with probability
    proportional to its squared distance to the nearest centre. Computed in float64.
    Of clusters of equal size, the cluster with the first row comes first. A start depends only
    on the seed and the index of the start, so that more starts are never worse.

    rows: points to cluster. k: number of clusters. restarts: number of starts. seed: one or
    more integers, for the random starts. ValueError unless k is from 1 to the number of rows
    and restarts is at least 1.
    """
    rows = np.asarray(rows, np.float64)
    if not 1 <= k <= len(rows) or restarts < 1:
        must = f"kmeans: k must be from 1 to the {len(rows)} rows, and restarts 1 or"
        raise ValueError(f"{must} more, got {k} and {restarts}")
    rngs = (np.random.default_rng([*seed, start]) for start in range(restarts))
    starts = (lloyd(rows, plus_plus(rows, k, rng)) for rng in rngs)
    best = min(starts, key=lambda clusters: clusters.inertia)
    _, first = np.unique(best.number, return_index=True)
    order = np.lexsort((first, -best.sizes))
    number = np.argsort(order)[best.number].astype(np.int32)
    return Clusters(number, best.centres[order], best.inertia)


def plus_plus(rows: Rows, k: int, rng: np.random.Generator) -> Centres:
    """Return k of the rows, drawn by k-means++ as initial centres; see `kmeans`.

    If fewer than k rows are distinct, rows repeat.
    """
    index = [int(rng.integers(len(rows)))]
    nearest = squared_distances(rows, rows[index])[:, 0]
    while len(index) < k:
        total = nearest.sum()
        if total > 0:
            probability = nearest / total
        else:  # Every row is equal to a centre.
            probability = np.full(len(rows), 1 / len(rows))
        index.append(int(rng.choice(len(rows), p=probability)))
        nearest = np.minimum(nearest, squared_distances(rows, rows[index[-1:]])[:, 0])
    return rows[index]


def lloyd(rows: Rows, centres: Centres) -> Clusters:
    """Return the clusters after at most 300 steps of Lloyd's algorithm, by scikit-learn.

    centres: initial centres. A cluster without rows, which is possible if many rows are equal,
    takes the row that is farthest from its centre, from a cluster of several rows.
    """
    model = cluster.KMeans(
        len(centres), init=centres, n_init=1, max_iter=_MAX_STEPS, tol=0
    )
    with warnings.catch_warnings():  # About equal rows.
        warnings.simplefilter("ignore", exceptions.ConvergenceWarning)
        model.fit(rows)
    number, centres = model.labels_, model.cluster_centers_
    distances = ((rows - centres[number]) ** 2).sum(1)
    for empty in np.setdiff1d(np.arange(len(centres)), number):
        is_single = np.bincount(number, minlength=len(centres))[number] == 1
        farthest = int(np.where(is_single, -1, distances).argmax())
        number[farthest], centres[empty] = empty, rows[farthest]
        distances[farthest] = 0
    return Clusters(number, centres, inertia=_inertia(rows, number, centres))


def balance(rows: Rows, clusters: Clusters) -> Clusters:
    """Return clusters with the same centres and with sizes that differ by one at most.

    For up to 2,000 rows, the assignment has the least sum of squared distances. For more, each
    row takes the nearest centre whose cluster is not full, in descending order of the
    difference between the distances to the second nearest and to the nearest centre. If k does
    not divide n, the first clusters have one more row.
    """
    rows = np.asarray(rows, np.float64)
    n, k = len(rows), len(clusters.centres)
    room = np.full(k, n // k) + (np.arange(k) < n % k)
    distances = squared_distances(rows, clusters.centres)
    if n <= _MAX_EXACT_ROWS:
        slots = np.repeat(np.arange(k), room)
        _, column = optimize.linear_sum_assignment(distances[:, slots])
        number = slots[column]
    else:
        number = np.full(n, -1)
        nearest = np.sort(distances, 1)[:, :2]
        for row in np.argsort(nearest[:, 0] - nearest[:, -1], kind="stable"):
            number[row] = np.where(room > 0, distances[row], np.inf).argmin()
            room[number[row]] -= 1
    inertia = _inertia(rows, number, clusters.centres)
    return Clusters(number, clusters.centres, inertia=inertia)


def squared_distances(rows: Rows, centres: Centres) -> Float[np.ndarray, "n k"]:
    """Return squared distances of every row to every centre, |x|^2 - 2 x.c + |c|^2."""
    lengths = np.einsum("nd,nd->n", rows, rows)[:, None] + (centres**2).sum(1)
    return np.maximum(lengths - 2 * rows @ centres.T, 0)


def _inertia(rows: Rows, number: Int[np.ndarray, "n"], centres: Centres) -> float:
    """Return the sum of squared distances of rows to their centres, centres[number]."""
    return float(((rows - centres[number]) ** 2).sum())


_BLOCK = 512  # Images per file of features.
_MAX_COLUMNS = 8192  # Wider features are projected to this number of columns.


def provenance(
    subject: networks.FlaxNetwork, source: base.Source, site: str
) -> dict[str, Any]:
    """Return {"site", "identity", "source", "images_of", "preprocessing": value} of features.

    "identity" identifies the network, "images_of" is the fingerprint of the images.
    site: layer of the network, see models.taps; "" is the last site. ValueError for an unknown
    site.
    """
    known = taps.sites(subject.net, source.size)
    site = site or known[-1]
    if site not in known:
        nearest = errors.suggest(site, known, taps.abbreviate(known))
        raise ValueError(f"{_WHERE}: --site: unknown {site!r}; {nearest}")
    return {
        "site": site,
        "identity": networks.identity(subject),
        "source": source.name,
        "images_of": source.fingerprint,
        "preprocessing": source.preprocessing,
    }


def read_features(
    folder: pathlib.Path,
    subject: networks.FlaxNetwork,
    source: base.Source,
    made_by: Mapping[str, Any],
) -> list[Float[np.ndarray, "b d"]]:
    """Return the features of all images, in blocks of _BLOCK images mapped from disk.

    Maps and tokens are averaged to one vector per image, and vectors of more than _MAX_COLUMNS
    numbers are projected to _MAX_COLUMNS. Missing blocks are computed first.

    folder: the blocks are in a subfolder, named by a digest of `made_by`. made_by: the result
    of `provenance`. ValueError for an image that does not decode, a network that does not take
    images of this size, and features that are not finite.
    """
    words = json.dumps({**made_by, "block": _BLOCK}, sort_keys=True)
    folder = folder / hashlib.sha256(words.encode()).hexdigest()[:16]
    starts = range(0, len(source), _BLOCK)
    paths = [folder / f"{start // _BLOCK:06d}.npy" for start in starts]
    _write_blocks(subject, source, made_by["site"], paths)
    return [np.load(path, mmap_mode="r", allow_pickle=False) for path in paths]


def _write_blocks(
    subject: networks.FlaxNetwork,
    source: base.Source,
    site: str,
    paths: Sequence[pathlib.Path],
) -> None:
    """Compute the features of missing blocks and write them to `paths`, a path per block.

    site: layer of the network. ValueError: see `read_features`.
    """
    missing = [block for block, path in enumerate(paths) if not path.exists()]
    net = subject.net.clone(dtype=jnp.float32)

    def rows(block: int) -> range:
        return range(len(source))[block * _BLOCK :][:_BLOCK]

    def read(block: int) -> np.ndarray:
        return np.stack([source[i]["image"] for i in rows(block)])

    def size(block: int) -> int:
        return len(rows(block))

    with dataset.map_ahead(
        f"{subject.name} on {source.name}",
        read,
        items=missing,
        total=len(source),
        size=size,
        done=len(source) - sum(map(size, missing)),
    ) as blocks:
        for block, images in blocks:
            block_features = _read_block(net, subject, images=images, site=site)
            if not np.isfinite(block_features).all():
                must = f"{_WHERE}: features must be numbers, {subject.name} at {site}"
                raise ValueError(f"{must} gives others for images of {source.name}")
            buffer = io.BytesIO()
            np.save(buffer, block_features)
            dataset.write_file(paths[block], buffer.getvalue())


def _read_block(
    net: nn.Module,
    subject: networks.FlaxNetwork,
    *,
    images: UInt8[np.ndarray, "b h w 3"],
    site: str,
) -> Float[np.ndarray, "b d"]:
    """Return the features of images at a site of the network, averaged over positions.

    net: the module of `subject` in float32. ValueError if the network does not take images of
    this size.
    """
    try:
        site_features = features.read(
            net,
            subject.variables,
            images,
            sites=[site],
            pool=1,
            columns=_MAX_COLUMNS,
        )
        return site_features[site]
    except flax_errors.FlaxError as error:
        must = f"{_WHERE}: {subject.name} must take images of {images.shape[2]} pixels"
        got = str(error).partition(". ")[0]
        raise ValueError(f"{must}, got {got}; give another --size") from error


def add(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `jbias prepare clusters` to its parser."""
    parser.usage = "%(prog)s --checkpoint PATH [--data NAME] [--root DIR] [options]"
    cli.add_network_flags(parser)
    size_help = "side of the images in pixels (default: the size at which the run was "
    size_help += "trained; 224 for weights files)"
    dataset.add_options(parser, size=0, size_help=size_help)
    add = parser.add_argument
    out_help = "folder to write the table and the figures into (default: clusters)"
    add("--out", default="clusters", metavar="DIR", help=out_help)
    features_help = "folder to store the features in, or to read stored features from "
    features_help += "(default: OUT/features)"
    add("--features", default="", metavar="DIR", help=features_help)
    options_help = (
        "further options of the data set, separated by commas (docs/data.md), such "
    )
    options_help += "as label=Male for --data=celeba (default: no further options)"
    add("--options", default="", metavar="KEY=VALUE,...", help=options_help)
    network_help = "name of the network to use, if --checkpoint gives several networks "
    network_help += "(default: the first network)"
    add("--network", default="", metavar="NAME", help=network_help)
    site_help = (
        "layer whose output is clustered, averaged over positions, such as stage2; "
    )
    site_help += (
        "an unknown name is refused with a list of all names (default: the last "
    )
    site_help += "layer before the classifier, such as stage4 of a ResNet)"
    add("--site", default="", metavar="NAME", help=site_help)
    k_help = "number of clusters per class, at least 2 (default: 8)"
    add("--k", type=int, default=8, metavar="N", help=k_help)
    restarts_help = (
        "number of random starts of k-means in each class; the result with the "
    )
    restarts_help += "smallest sum of squared distances is used (default: 10)"
    add("--restarts", type=int, default=10, metavar="N", help=restarts_help)
    seed_help = "random seed of k-means (default: 0)"
    add("--seed", type=int, default=0, metavar="N", help=seed_help)
    normalise_help = (
        "scale each image's features to length 1 before clustering (default: do "
    )
    normalise_help += "not scale)"
    add("--normalise", action="store_true", help=normalise_help)
    balanced_help = (
        "make clusters of equal size (default: sizes as k-means returns them)"
    )
    add("--balanced", action="store_true", help=balanced_help)
    least_help = (
        "smallest number of images of a cluster; a smaller cluster stops the command "
    )
    least_help += "with an error (default: the value of --k)"
    add("--least", type=int, metavar="N", help=least_help)
    name_help = (
        "name of the column of clusters in OUT/<split>.csv; a config selects this "
    )
    name_help += "column by attribute=NAME (default: cluster)"
    add("--name", default="cluster", metavar="NAME", help=name_help)
    shown_help = "number of images in each row of a figure; 0 draws no figures "
    shown_help += "(default: 12)"
    add("--shown", type=int, default=12, metavar="N", help=shown_help)


def run(args: argparse.Namespace) -> str:
    """Cluster a split, write its files and return lines with the sizes of the clusters.

    args: the flags of `add`. ValueError for unknown names, too few images in a class or a
    cluster, and a folder with clusters of different settings.
    """
    rule = _rule(args)
    console.silence_warnings()
    subject = _network(args)
    args.size = args.size or subject.about.get("config", {}).get("size", 224)
    options = dataset.options(args) | dataset.parse_options(_WHERE, args.options)
    name, split = args.name, args.split
    source, whole, positions = _source(args.data, split, options)
    members = _members(source, rule["k"])
    folder = pathlib.Path(args.out).expanduser()
    path = folder / f"{split.partition('[')[0].replace('/', '-')}.csv"
    made_by = provenance(subject, source, args.site)
    settings = {"made_by": "jbias.prepare clusters", **made_by, "column": name, **rule}
    dataset.check_settings(_WHERE, folder, split=path.name, settings=settings)
    cache_folder = pathlib.Path(args.features or folder / "features").expanduser()
    blocks = read_features(cache_folder, subject, source=source, made_by=made_by)
    clusters = _cluster_classes(source.classes, members, blocks=blocks, rule=rule)
    if args.shown:
        _draw_classes(
            path.with_suffix(""),
            source,
            members=members,
            blocks=blocks,
            clusters=clusters,
            rule=rule,
            num_shown=args.shown,
        )
    cells = np.full(len(whole), "", object)
    for index, class_clusters in zip(members, clusters, strict=True):
        names = [_cluster_name(i, rule["k"]) for i in class_clusters.number]
        cells[positions[index]] = names
    set_options.write_columns(
        str(path), whole, {name: cells}, network=subject.name, **settings
    )
    return _summary(
        path, name, subject=subject, site=made_by["site"], clusters=clusters
    )


def _rule(args: argparse.Namespace) -> dict[str, Any]:
    """Return {"k", "restarts", "seed", "normalise", "balanced", "least": value} of the flags.

    "least" is the smallest allowed size of a cluster, by default k. ValueError for invalid
    numbers.
    """
    rule = dataset.select(args, "k", "restarts", "seed", "normalise", "balanced")
    rule["least"] = args.k if args.least is None else args.least
    for key, lowest in (("k", 2), ("restarts", 1), ("seed", 0), ("least", 1)):
        if rule[key] < lowest:
            must = f"{_WHERE}: --{key} must be {lowest} or more"
            raise ValueError(f"{must}, got {rule[key]}")
    return rule


def _network(args: argparse.Namespace) -> networks.FlaxNetwork:
    """Return the network --network, by default the first, of the file or workdir --checkpoint.

    ValueError without --checkpoint, or if no network has that name.
    """
    if not args.checkpoint:
        raise ValueError(f"{_WHERE}: --checkpoint must name a network, got none")
    paths, names = networks.check_arguments(args, ".", {}), []
    for network in command.Command("clustered", strict=_WHERE).load(paths, args):
        if args.network in ("", network.name):
            return network
        names.append(network.name)
    must, hint = "be one of those in --checkpoint", errors.suggest(args.network, names)
    errors.refuse(_WHERE, must, args.network, hint, name="--network")


def _source(
    name: str, split: str, options: Mapping[str, Any]
) -> tuple[base.Source, base.Source, Int[np.ndarray, "n"]]:
    """Return the source of `split`, the source of the whole split, and positions.

    positions: index in the whole split of each image of the first source; the option `columns`
    needs indices in the whole split. name: name of the data set. options: of the data set; the
    whole split is opened without the options that select images.
    """
    source = data.load(name, split, **options)
    narrows, split_name = data.find(name).narrows, split.partition("[")[0]
    wide_options = {key: value for key, value in options.items() if key not in narrows}
    if split_name == split and wide_options == options:
        return source, source, np.arange(len(source))
    whole = data.load(name, split_name, **wide_options)
    positions = set_options.positions_in(source, split, whole, option="clusters")
    return source, whole, positions


def _members(source: base.Source, k: int) -> list[Int[np.ndarray, "m"]]:
    """Return the ascending indices of each class's images; ValueError for fewer than k images."""
    labels = source.columns["label"]
    members = [np.flatnonzero(labels == i) for i in range(len(source.classes))]
    smallest = min(range(len(members)), key=lambda i: len(members[i]))
    if len(members[smallest]) < k:
        must = f"{_WHERE}: every class must have --k={k} images or more"
        got = f"got {len(members[smallest])} of class {source.classes[smallest]!r}"
        raise ValueError(f"{must}, {got}; take a smaller --k")
    return members


def _cluster_classes(
    classes: Sequence[str],
    members: Sequence[Int[np.ndarray, "m"]],
    *,
    blocks: Blocks,
    rule: Mapping[str, Any],
) -> list[Clusters]:
    """Return the clusters of each class's images, the largest cluster of a class first.

    classes: names. members: ascending indices of each class's images; the rows of a class's
    Clusters are in this order. blocks: the result of `read_features`. rule: the result of
    `_rule`. ValueError if a cluster has fewer than rule["least"] images.
    """
    all_clusters, items = [], [*enumerate(zip(classes, members, strict=True))]
    # One thread: the matrices are thin, so that threads would wait for each other, and the
    # order of sums would depend on their number.
    with threadpoolctl.threadpool_limits(1):
        for label, (name, index) in dataset.track("clustering", items):
            rows = _class_features(blocks, index, rule)
            seed = (rule["seed"], label)
            clusters = kmeans(rows, rule["k"], restarts=rule["restarts"], seed=seed)
            if rule["balanced"]:
                clusters = balance(rows, clusters)
            smallest = clusters.sizes.min()
            if smallest < rule["least"]:
                must = f"{_WHERE}: every cluster must have {rule['least']} images"
                got = f"class {name!r} has one of {smallest} in {len(index)}"
                remedy = "take --balanced, a smaller --k, or another --least"
                raise ValueError(f"{must}, {got}; {remedy}")
            all_clusters.append(clusters)
    return all_clusters


def _class_features(
    blocks: Blocks, index: Int[np.ndarray, "m"], rule: Mapping[str, Any]
) -> Float[np.ndarray, "m d"]:
    """Return the features of the images at `index`, scaled to length 1 if rule["normalise"].

    index: ascending. blocks: the result of `read_features`.
    """
    block, row = np.divmod(index, _BLOCK)
    chunks = [blocks[b][row[block == b]] for b in np.unique(block)]
    rows = np.concatenate(chunks).astype(np.float64)
    if rule["normalise"]:
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return rows


def _draw_classes(
    stem: pathlib.Path,
    source: base.Source,
    *,
    members: Sequence[Int[np.ndarray, "m"]],
    blocks: Blocks,
    clusters: Sequence[Clusters],
    rule: Mapping[str, Any],
    num_shown: int,
) -> None:
    """Write a picture for each class: a row of images per cluster, nearest to its centre first.

    The paths are "<stem>-<number of the class>-<its name>.png". members, blocks, rule: see
    `_cluster_classes`, which returned `clusters`. num_shown: largest number of images in a row.
    """
    items = [*enumerate(zip(members, clusters, strict=True))]
    for k, (index, class_clusters) in dataset.track("drawing", items):
        rows = _class_features(blocks, index, rule)
        distances = squared_distances(rows, class_clusters.centres)
        pictures = {}
        for number, size in enumerate(class_clusters.sizes):
            in_cluster = np.flatnonzero(class_clusters.number == number)
            order = np.argsort(distances[in_cluster, number], kind="stable")
            nearest = in_cluster[order][:num_shown]
            images = [source[int(index[i])]["image"] for i in nearest]
            pictures[f"{_cluster_name(number, rule['k'])} ({size:,})"] = images
        name = re.sub(r"[^\w.-]+", "_", source.classes[k])
        path = f"{stem}-{k:0{len(str(len(clusters) - 1))}d}-{name}.png"
        foot = f"{source.name}, {source.classes[k]}: nearest to each centre"
        dataset.write_sheet(path, pictures, foot=foot)


def _cluster_name(number: int, k: int) -> str:
    """Return the name of cluster `number`, 0 to k - 1: "D1", "D2", ...; for k >= 10 "D01", ..."""
    return f"D{number + 1:0{len(str(k))}d}"


def _summary(
    path: pathlib.Path,
    name: str,
    *,
    subject: networks.FlaxNetwork,
    site: str,
    clusters: Sequence[Clusters],
) -> str:
    """Return lines of text: the size of each cluster D1, D2, ..., and how to read the file.

    A cluster's line has its number of images in all classes, and the smallest and the largest
    number in a class. path, name: path of the written file and name of its column. clusters:
    the clusters of each class.
    """
    sizes = np.array([class_clusters.sizes for class_clusters in clusters])
    lines = []
    for i, column in enumerate(sizes.T):
        span = f"{column.min():,} to {column.max():,} of a class"
        cluster_name = _cluster_name(i, sizes.shape[1])
        lines.append(f"{cluster_name}: {column.sum():,} images, {span}")
    last = f"{path}: column {name!r} by {subject.name} at {site}"
    return "\n".join([*lines, f"{last}; read it with columns={str(path)!r}"])
