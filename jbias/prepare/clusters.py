"""Finds attributes where none are given: clusters of what a network sees in images.

    jbias prepare clusters --checkpoint=resnet50.pth --data=folder --root=photos
    jbias prepare clusters --checkpoint=runs/erm --data=shapes --site=stage2 --balanced

Images go through the network; the features of each class are clustered by k-means (k-means++,
the best of 10 starts), and its clusters sorted by size: D1 is the union of the largest of each
class, D8 of the smallest (Hu, Sang, Wang and Jiang 2021, https://arxiv.org/abs/2111.09190).
Writes OUT/<split>.csv, which the option columns=OUT/<split>.csv of that set reads back as
its column `cluster`; and for each class OUT/<split>-<number>-<class>.png, a row a cluster with
the images nearest to its centre. Features stay in OUT/features: a command that was
stopped, or one with another --k and --out and these --features, begins from them. To train on D1 alone: shift=only-D1.
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
from flax import errors
from jaxtyping import Float, Int
from scipy import optimize
from sklearn import cluster, exceptions

from jbias import config as jc
from jbias import data
from jbias.data import base, set_options
from jbias.evals import command, features, networks
from jbias.models import taps
from jbias.prepare import dataset
from jbias.runtime import cli, console

_WHERE = "prepare clusters"
_STEPS = 300
_EXACT = 2000  # Rows up to which equal clusters are dealt out by the exact method.


Rows = Float[np.ndarray, "n d"]
Centres = Float[np.ndarray, "k d"]


class Clusters(NamedTuple):
    """Which cluster each row is in, and their centres."""

    number: Int[np.ndarray, "n"]
    centres: Centres
    inertia: float  # Sum of squared distances to the centres.

    @property
    def sizes(self) -> Int[np.ndarray, "k"]:
        return np.bincount(self.number, minlength=len(self.centres))


def kmeans(
    rows: Rows, k: int, *, restarts: int = 10, seed: Sequence[int] = (0,)
) -> Clusters:
    """k-means: the clusters of least inertia of so many starts, the largest first.

    Source: Lloyd 1982, started as Arthur and Vassilvitskii, k-means++, SODA 2007: the
    first centre is any row, each further one a row drawn by its squared distance to the
    nearest.
    In float64. Of clusters of one size the one with the first row comes first. A start
    is a function of seed and its number: more of them never make it worse.
    """
    rows = np.asarray(rows, np.float64)
    if not 1 <= k <= len(rows) or restarts < 1:
        must = f"kmeans: k must be from 1 to the {len(rows)} rows, and restarts 1 or"
        raise ValueError(f"{must} more, got {k} and {restarts}")
    rngs = (np.random.default_rng([*seed, start]) for start in range(restarts))
    starts = (lloyd(rows, plus_plus(rows, k, rng)) for rng in rngs)
    best = min(starts, key=lambda found: found.inertia)
    _, first = np.unique(best.number, return_index=True)
    order = np.lexsort((first, -best.sizes))
    number = np.argsort(order)[best.number].astype(np.int32)
    return Clusters(number, best.centres[order], best.inertia)


def plus_plus(rows: Rows, k: int, rng: np.random.Generator) -> Centres:
    """Draws the centres to start from."""
    chosen = [int(rng.integers(len(rows)))]
    nearest = squared_distances(rows, rows[chosen])[:, 0]
    while len(chosen) < k:
        total = nearest.sum()
        even = np.full(len(rows), 1 / len(rows))  # All rows are centres already.
        share = nearest / total if total > 0 else even
        chosen.append(int(rng.choice(len(rows), p=share)))
        nearest = np.minimum(nearest, squared_distances(rows, rows[chosen[-1:]])[:, 0])
    return rows[chosen]


def lloyd(rows: Rows, centres: Centres) -> Clusters:
    """Moves centres until no row changes its cluster, or 300 times, by scikit-learn.

    A cluster that is left without rows, as where many are alike, takes the row that is
    farthest from its centre.
    """
    options = dict(init=centres, n_init=1, max_iter=_STEPS, tol=0)
    with warnings.catch_warnings():  # Of rows that are alike.
        warnings.simplefilter("ignore", exceptions.ConvergenceWarning)
        found = cluster.KMeans(len(centres), **options).fit(rows)
    number, centres = found.labels_, found.cluster_centers_
    least = ((rows - centres[number]) ** 2).sum(1)
    for empty in np.setdiff1d(np.arange(len(centres)), number):
        alone = np.bincount(number, minlength=len(centres))[number] == 1
        farthest = int(np.where(alone, -1, least).argmax())
        number[farthest], centres[empty], least[farthest] = empty, rows[farthest], 0
    return Clusters(number, centres, _inertia(rows, number, centres))


def balance(rows: Rows, found: Clusters) -> Clusters:
    """The same centres with clusters whose sizes differ by one at most.

    Of up to 2,000 rows the assignment with the least sum of squared distances; of more,
    rows take the nearest centre that has room, those first that lose most by their
    second nearest. Larger clusters of before have the place more; order stays.
    """
    rows = np.asarray(rows, np.float64)
    n, k = len(rows), len(found.centres)
    room = np.full(k, n // k) + (np.arange(k) < n % k)
    apart = squared_distances(rows, found.centres)
    if n <= _EXACT:
        place = np.repeat(np.arange(k), room)
        _, column = optimize.linear_sum_assignment(apart[:, place])
        number = place[column]
    else:
        number = np.full(n, -1)
        near = np.sort(apart, 1)[:, :2]
        for row in np.argsort(near[:, 0] - near[:, -1], kind="stable"):
            number[row] = np.where(room > 0, apart[row], np.inf).argmin()
            room[number[row]] -= 1
    return Clusters(number, found.centres, _inertia(rows, number, found.centres))


def squared_distances(rows: Rows, centres: Centres) -> Float[np.ndarray, "n k"]:
    """Squared distances of every row to every centre, |x|^2 - 2 x.c + |c|^2."""
    lengths = np.einsum("nd,nd->n", rows, rows)[:, None] + (centres**2).sum(1)
    return np.maximum(lengths - 2 * rows @ centres.T, 0)


def _inertia(rows, number, centres) -> float:
    return float(((rows - centres[number]) ** 2).sum())


_BLOCK = 512  # Images of a file.
_WIDTH = 8192  # Columns, beyond which features are projected to so many.


def provenance(subject: networks.FlaxNetwork, source: base.Source, site: str) -> dict:
    """What features are made by: network, site and images.

    site: "" is the last one. Raises ValueError for an unknown one.
    """
    known = taps.sites(subject.net, source.size)
    site = site or known[-1]
    if site not in known:
        nearest = jc.suggest(site, known, taps.abbreviate(known))
        raise ValueError(f"{_WHERE}: --site: unknown {site!r}; {nearest}")
    about = {"source": source.name, "images_of": source.fingerprint}
    about["preprocessing"] = source.preprocessing
    return {"site": site, "identity": networks.identity(subject), **about}


def read_features(
    folder: pathlib.Path,
    subject: networks.FlaxNetwork,
    source: base.Source,
    made_by: Mapping[str, Any],
) -> list[Float[np.ndarray, "b d"]]:
    """Features of all images, by blocks on disk; maps and tokens are averaged.

    Each block is a file of `folder`, in a folder of its own for what it is made by; those
    that are there are not made again. Raises ValueError for an image that does not
    decode, a network that takes none of this size, and features that are no numbers.
    """
    words = json.dumps({**made_by, "block": _BLOCK}, sort_keys=True)
    folder = folder / hashlib.sha256(words.encode()).hexdigest()[:16]
    starts = range(0, len(source), _BLOCK)
    paths = [folder / f"{start // _BLOCK:06d}.npy" for start in starts]
    _write_blocks(subject, source, made_by["site"], paths)
    return [np.load(path, mmap_mode="r", allow_pickle=False) for path in paths]


def _write_blocks(subject, source, site, paths) -> None:
    """Makes the blocks that are missing."""
    todo = [block for block, path in enumerate(paths) if not path.exists()]
    net = subject.net.clone(dtype=jnp.float32)

    def rows(block: int) -> range:
        return range(len(source))[block * _BLOCK :][:_BLOCK]

    def read(block: int) -> np.ndarray:
        return np.stack([source[i]["image"] for i in rows(block)])

    title, size = f"{subject.name} on {source.name}", lambda block: len(rows(block))
    bar = dict(size=size, done=len(source) - sum(map(size, todo)))
    with dataset.map_ahead(title, read, todo, len(source), **bar) as blocks:
        for block, images in blocks:
            found = _read_block(net, subject, images, site)
            if not np.isfinite(found).all():
                must = f"{_WHERE}: features must be numbers, {subject.name} at {site}"
                raise ValueError(f"{must} gives others for images of {source.name}")
            np.save(written := io.BytesIO(), found)
            dataset.write_file(paths[block], written.getvalue())


def _read_block(net, subject, images, site: str) -> Float[np.ndarray, "b d"]:
    options = dict(sites=[site], pool=1, columns=_WIDTH)
    try:
        return features.read(net, subject.variables, images, **options)[site]
    except errors.FlaxError as error:
        must = f"{_WHERE}: {subject.name} must take images of {images.shape[2]} pixels"
        got = str(error).partition(". ")[0]
        raise ValueError(f"{must}, got {got}; give another --size") from error


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the subcommand."""
    cli.add_network_flags(parser)
    pixels = "pixels; 0 is what a run was trained with, of others 224 (%(default)s)"
    dataset.add_options(parser, size=0, pixels=pixels)
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


def run(args: argparse.Namespace) -> str:
    """Clusters one split; returns what it did.

    Raises ValueError, one line, for what is unknown, too few images in a class or a
    cluster, and a folder that holds clusters of other settings.
    """
    rule = _rule(args)
    console.silence_warnings()
    subject = _network(args)
    args.size = args.size or subject.about.get("config", {}).get("size", 224)
    options = dataset.options(args) | dataset.parse_options(_WHERE, args.options)
    name, split = args.name, args.split
    source, whole, places = _source(args.data, split, options)
    members = _members(source, rule["k"])
    folder = pathlib.Path(args.out).expanduser()
    path = folder / f"{split.partition('[')[0].replace('/', '-')}.csv"
    made_by = provenance(subject, source, args.site)
    own = {"made_by": "jbias.prepare clusters", **made_by, "column": name, **rule}
    dataset.refuse_others(_WHERE, folder, path.name, own)
    kept = pathlib.Path(args.features or folder / "features").expanduser()
    blocks = read_features(kept, subject, source, made_by)
    found = _cluster_classes(source.classes, members, blocks, rule)
    if args.shown:
        _show(path.with_suffix(""), source, members, blocks, found, rule, args.shown)
    cells = np.full(len(whole), "", object)
    for index, one in zip(members, found, strict=True):
        cells[places[index]] = [_named(number, rule["k"]) for number in one.number]
    about = {"network": subject.name, **own}
    set_options.write_columns(str(path), whole, {name: cells}, **about)
    return _summary(path, name, subject, made_by["site"], found)


def _rule(args: argparse.Namespace) -> dict[str, Any]:
    """How to cluster; ValueError for numbers that mean nothing."""
    rule = dataset.select(args, "k", "restarts", "seed", "normalise", "balanced")
    rule["least"] = args.k if args.least is None else args.least
    for key, least in (("k", 2), ("restarts", 1), ("seed", 0), ("least", 1)):
        if rule[key] < least:
            must = f"{_WHERE}: --{key} must be {least} or more"
            raise ValueError(f"{must}, got {rule[key]}")
    return rule


def _network(args: argparse.Namespace) -> networks.FlaxNetwork:
    """Opens the one that is asked for."""
    if not args.checkpoint:
        raise ValueError(f"{_WHERE}: --checkpoint must name a network, got none")
    paths, names = networks.check_arguments(args, ".", {}), []
    for network in command.Command("clustered", strict=_WHERE).load(paths, args):
        if args.network in ("", network.name):
            return network
        names.append(network.name)
    must = f"{_WHERE}: --network must be one of those in --checkpoint"
    got = f"got {args.network!r}"
    raise ValueError(f"{must}, {got}; {base.did_you_mean(args.network, names)}")


def _source(name, split, options):
    """The images, the whole split that `columns` counts in, and where they are there."""
    source = data.load(name, split, **options)
    narrows = data.find(name).narrows
    wide = {key: value for key, value in options.items() if key not in narrows}
    if (base := split.partition("[")[0]) == split and wide == options:
        return source, source, np.arange(len(source))
    whole = data.load(name, base, **wide)
    return source, whole, set_options.positions_in(source, split, whole, "clusters")


def _members(source: base.Source, k: int) -> list[Int[np.ndarray, "m"]]:
    """Numbers of the images of each class."""
    labels = source.columns["label"]
    members = [np.flatnonzero(labels == i) for i in range(len(source.classes))]
    few = min(range(len(members)), key=lambda i: len(members[i]))
    if len(members[few]) < k:
        must = f"{_WHERE}: every class must have --k={k} images or more"
        got = f"got {len(members[few])} of class {source.classes[few]!r}"
        raise ValueError(f"{must}, {got}; take a smaller --k")
    return members


def _cluster_classes(classes, members, blocks, rule) -> list[Clusters]:
    """Clusters of each class, the largest first."""
    found, each = [], [*enumerate(zip(classes, members, strict=True))]
    # Products are thin: threads would wait for one another, and sum otherwise.
    with threadpoolctl.threadpool_limits(1):
        for k, (name, index) in dataset.track("clustering", each):
            rows = _class_features(blocks, index, rule)
            seed = (rule["seed"], k)
            one = kmeans(rows, rule["k"], restarts=rule["restarts"], seed=seed)
            one = balance(rows, one) if rule["balanced"] else one
            if one.sizes.min() < rule["least"]:
                must = f"{_WHERE}: every cluster must have {rule['least']} images"
                got = f"class {name!r} has one of {one.sizes.min()} in {len(index)}"
                remedy = "take --balanced, a smaller --k, or another --least"
                raise ValueError(f"{must}, {got}; {remedy}")
            found.append(one)
    return found


def _class_features(blocks, index, rule) -> Float[np.ndarray, "m d"]:
    """Features of some images, in the order of their rising numbers, as clustered."""
    number, place = np.divmod(index, _BLOCK)
    parts = [blocks[b][place[number == b]] for b in np.unique(number)]
    rows = np.concatenate(parts).astype(np.float64)
    if rule["normalise"]:
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return rows


def _show(stem: pathlib.Path, source, members, blocks, found, rule, shown: int) -> None:
    """Writes a picture of each class: a row a cluster, nearest to the centre first."""
    each = [*enumerate(zip(members, found, strict=True))]
    for k, (index, one) in dataset.track("drawing", each):
        apart = squared_distances(_class_features(blocks, index, rule), one.centres)
        pictures = {}
        for number, size in enumerate(one.sizes):
            own = np.flatnonzero(one.number == number)
            nearest = own[np.argsort(apart[own, number], kind="stable")][:shown]
            images = [source[int(index[i])]["image"] for i in nearest]
            pictures[f"{_named(number, rule['k'])} ({size:,})"] = images
        name = re.sub(r"[^\w.-]+", "_", source.classes[k])
        path = f"{stem}-{k:0{len(str(len(found) - 1))}d}-{name}.png"
        foot = f"{source.name}, {source.classes[k]}: nearest to each centre"
        dataset.write_sheet(path, pictures, foot=foot)


def _named(number: int, k: int) -> str:
    return f"D{number + 1:0{len(str(k))}d}"


def _summary(path: pathlib.Path, name: str, subject, site: str, found) -> str:
    """How many images each D_i has, and what to do with them."""
    sizes = np.array([one.sizes for one in found])
    lines = []
    for i, column in enumerate(sizes.T):
        each = f"{column.min():,} to {column.max():,} of a class"
        lines += [f"{_named(i, sizes.shape[1])}: {column.sum():,} images, {each}"]
    last = f"{path}: column {name!r} by {subject.name} at {site}"
    return "\n".join([*lines, f"{last}; read it with columns={str(path)!r}"])
