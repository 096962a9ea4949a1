"""Observers whose files name the same images in other ways, or have a part of the images each."""

import dataclasses
import functools
import hashlib
import itertools
import os
import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from jbias.answers import observers

SESSION = re.compile(r"_session[_-]\d+$")


def join_sessions(
    read_observers: Sequence[observers.Observer],
) -> list[observers.Observer]:
    """Return observers with one entry for all sessions of an observer on a set.

    Sessions are files of one folder with the same observer whose names end in "_session_1" and
    the like, and which share no image. `path` of the joined observer is that of the first file,
    `sha256` that of the files' SHA-256 values, joined in the order of the paths.
    """
    by_key: dict[tuple[str, ...], list[observers.Observer]] = {}
    for observer in read_observers:
        folder, file = os.path.split(os.path.abspath(observer.path))
        is_session = SESSION.search(os.path.splitext(file)[0])
        file_key = "" if is_session else file
        key = observer.name, observer.dataset, folder, file_key
        by_key.setdefault(key, []).append(observer)
    joined = []
    for sessions in by_key.values():
        images = [image for session in sessions for image in session.images]
        is_disjoint = len({*images}) == len(images)
        joined += [_join(sessions)] if is_disjoint and len(sessions) > 1 else sessions
    return joined


def _join(sessions: Sequence[observers.Observer]) -> observers.Observer:
    """Return one observer with the decisions of all sessions; sessions: share no image."""
    sessions = sorted(sessions, key=lambda session: session.path)
    first = sessions[0]
    observers.panels(sessions)  # An error if classes differ.
    has_words = all(session.responses is not None for session in sessions)
    parsers = [session.parser for session in sessions if session.parser]
    words = [text for session in sessions for text in session.responses or ()]
    drawn = [x for session in sessions for x in session.drawn_options or ()]
    images = tuple(image for session in sessions for image in session.images)
    joined = dataclasses.replace(
        first,
        images=images,
        label=np.concatenate([session.label for session in sessions]),
        texture=(
            None
            if first.texture is None
            else np.concatenate([session.texture for session in sessions])
        ),
        decision=np.concatenate([session.decision for session in sessions]),
        responses=tuple(words) if has_words else None,
        drawn_options=tuple(drawn) if len(drawn) == len(images) else None,
        parser=parsers[0] if parsers else "",
        sha256=hashlib.sha256(
            "".join(session.sha256 for session in sessions).encode()
        ).hexdigest(),
    )
    return _renamed(joined, joined.images)


def _renamed(observer: observers.Observer, images: Sequence[str]) -> observers.Observer:
    """Return an observer with other ids of its images, in ascending order."""
    order = sorted(range(len(images)), key=images.__getitem__)
    words, texture = observer.responses, observer.texture
    drawn = observer.drawn_options
    return dataclasses.replace(
        observer,
        images=tuple(images[i] for i in order),
        label=observer.label[order],
        texture=None if texture is None else texture[order],
        decision=observer.decision[order],
        responses=None if words is None else tuple(words[i] for i in order),
        drawn_options=None if drawn is None else tuple(drawn[i] for i in order),
    )


def shorten_ids(
    read_observers: Sequence[observers.Observer],
) -> list[observers.Observer]:
    """Return observers whose images have the same ids where files name them by other folders.

    "/home/ann/img/cat/1.png" and "img/cat/1.png" are one image if some observers of a set share no
    image, and if shorter paths are unique in each file and agree: of two paths with the same
    end, the shorter must be the end of the longer. All other ids stay as they are.
    """
    by_set: dict[str, list[observers.Observer]] = {}
    for observer in read_observers:
        by_set.setdefault(observer.dataset, []).append(observer)
    short: dict[str, Callable[[str], str]] = {}
    for dataset, members in by_set.items():
        image_lists = [*dict.fromkeys(observer.images for observer in members)]
        count = _num_parts(image_lists) if _unshared(image_lists) else 0
        if count:
            short[dataset] = functools.partial(_end, count=count)
    return [
        _renamed(observer, [short[observer.dataset](x) for x in observer.images])
        if observer.dataset in short
        else observer
        for observer in read_observers
    ]


def _unshared(image_lists: Sequence[tuple[str, ...]]) -> list[tuple[int, int]]:
    """Return the pairs of lists that share no image, by their places."""
    sets = [frozenset(images) for images in image_lists]
    pairs = itertools.combinations(range(len(sets)), 2)
    return [(i, j) for i, j in pairs if sets[i].isdisjoint(sets[j])]


def _num_parts(image_lists: Sequence[tuple[str, ...]]) -> int:
    """Return the fewest last parts of paths that name the images alike; 0 if there are none."""
    paths = {image for images in image_lists for image in images}
    longest = max(path.count("/") for path in paths) + 1
    for count in range(1, longest):
        is_unique = all(
            len({_end(image, count) for image in images}) == len(images)
            for images in image_lists
        )
        if is_unique and _agree(paths, count):
            return count
    return 0


def _agree(paths: set[str], count: int) -> bool:
    """Return True if paths with the same last parts differ by folders before these only."""
    longest: dict[str, str] = {}
    for path in sorted(paths, key=len, reverse=True):
        full = longest.setdefault(_end(path, count), path)
        if path != full and not full.endswith(f"/{path.lstrip('/')}"):
            return False
    return True


def _end(path: str, count: int) -> str:
    """Return the last parts of a path, or all of a path that has no more."""
    return "/".join(path.strip("/").split("/")[-count:])


def describe_unshared(read_observers: Sequence[observers.Observer]) -> Iterator[str]:
    """Yield a line for each set with observers that share no image."""
    by_set: dict[str, list[observers.Observer]] = {}
    for observer in read_observers:
        by_set.setdefault(observer.dataset, []).append(observer)
    for dataset, members in by_set.items():
        by_images: dict[tuple[str, ...], observers.Observer] = {}
        for observer in members:
            by_images.setdefault(observer.images, observer)
        unlike = [*by_images.values()]
        pairs = _unshared([*by_images])
        if pairs:
            first, second = (unlike[i] for i in pairs[0])
            yield (
                f"{dataset}: {first.name} and {second.name} share no image, such as "
                f"{first.images[0]!r} and {second.images[0]!r}, so they cannot be compared; if "
                "these are the same images, name them alike in all files"
            )
