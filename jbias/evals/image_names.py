"""Look-up of images of a set by their names in a table of decisions.

The exact path is tried first, then other spellings of the path: with "\\" between folders,
with "./" or the set's own folder before it, URL-encoded, in another Unicode form, with another
file ending. A name without a folder matches if only one image has that name. Names that their
publishers shortened are accepted for Geirhos' stimuli only, and all information in such a name
must match: the class, and for model-vs-human also the experiment and the condition.

No other part of a name is enough for a match, because images of different sets may have the same
ending.
"""

import collections
import functools
import os
import unicodedata
import urllib.parse
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from jbias.answers import stimulus_names
from jbias.data import base
from jbias.data.sets import geirhos

Places = dict[Any, list[int]]  # Numbers of images in the set, by a form of their name.


class ImageNames:
    """An index of the images of a set by all accepted spellings of their names.

    names: paths relative to the set's folder, with slashes. folders: names of that folder, for
    paths that begin above it. without_folder: whether the last part of a name is enough if
    only one image has it.
    """

    def __init__(
        self,
        names: Sequence[str],
        folders: Collection[str] = (),
        *,
        without_folder: bool = True,
    ):
        # A folder inside the set is no name of the set: "cat/1.jpg" is not "1.jpg".
        self._inner_folders = {
            folder for name in names for folder in name.split("/")[:-1]
        }
        self._folders = {folder for folder in folders if folder} - self._inner_folders
        last_parts = []
        if without_folder:
            last_parts = [name.rpartition("/")[2] for name in names]
        # Indices by form are made on first use: most names are exact.
        self._paths = functools.cache(lambda form: _index(names, form))
        self._last_parts = functools.cache(lambda form: _index(last_parts, form))

    def has_path(self, path: str) -> bool:
        """Return True if a path is exactly the path of an image."""
        return path in self._paths(_exact)

    def find(self, name: str) -> list[int]:
        """Return the indices of the images that match a name, ascending; [] for an unknown name.

        The list has several indices if the match is not unique. Exact matches take precedence;
        see the module.
        """
        for form in _FORMS:
            for path in _spellings(name):
                for relative in self._relative(path):
                    images = self._paths(form).get(form(relative))
                    if images:
                        return images
        for form in _FORMS:
            for path in _spellings(name):
                last = self._without_folder(path)
                images = self._last_parts(form).get(form(last)) if last else None
                if images:
                    return images
        return []

    def _without_folder(self, path: str) -> str:
        """Return a path's last part if the path has no folder, or if its last folder is the set's.

        Return "" otherwise, and if a folder of the path is also a folder inside the set.
        """
        *folders, last = path.split("/")
        is_in_set = not folders or folders[-1] in self._folders
        return last if is_in_set and not self._inner_folders & {*folders} else ""

    def _relative(self, path: str) -> Iterator[str]:
        """Yield the path, and its part after each folder that is named like the set's folder."""
        yield path
        names = path.split("/")
        for place, name in enumerate(names[:-1]):
            if name in self._folders:
                yield "/".join(names[place + 1 :])


class PublishedNames:
    """An index of Geirhos' stimuli by their names in model-vs-human's tables of answers.

    names: the set's files. conditions: the conditions of a "model_vs_human" set, whose files
    have such names; () for a "geirhos" set, whose files are <class>/<stimulus>.png.
    """

    def __init__(self, names: Sequence[str], conditions: base.Names = ()):
        self._names, self._conditions = names, conditions

    @functools.cached_property
    def _images(self) -> Places:
        """Return the indices of the set's images by `_key`; names without a key are left out."""
        images: Places = collections.defaultdict(list)
        for i, name in enumerate(self._names):
            key = self._key(name, with_folder=True)
            if key is not None:
                images[key].append(i)
        return images

    def find(self, name: str) -> list[int]:
        """Return the indices of the images with a published name; [] for an unknown name."""
        return self._images.get(self._key(name, with_folder=False), [])

    def _key(self, name: str, *, with_folder: bool) -> tuple[str | int, ...] | None:
        """Return the information in a name as a tuple, to compare names; None for another form.

        The tuple is (experiment, condition, class, stimulus), or (class, stimulus) for "geirhos".
        with_folder: whether <class>/<stimulus>.png is accepted.
        """
        trial = stimulus_names.parse_trial(name)
        if self._conditions:
            if trial is None:
                return None
            number = geirhos.condition_index(trial.condition, self._conditions)
            condition = trial.condition if number is None else number
            return trial.experiment, condition, trial.category, trial.stimulus
        if trial is not None:
            return trial.category, trial.stimulus
        folder, _, last = stimulus_names.plain_path(name).rpartition("/")
        return (folder, stimulus_names.without_ending(last)) if with_folder else None


def _index(names: Sequence[str], form: Callable[[str], str]) -> Places:
    """Return a dict from form(name) to the positions of names of this form, ascending."""
    index: Places = collections.defaultdict(list)
    for i, name in enumerate(names):
        index[form(name)].append(i)
    return dict(index)


def _spellings(name: str) -> list[str]:
    """Return the name unchanged, as a plain path, and URL-decoded, without repetitions."""
    spellings = (
        name,
        stimulus_names.plain_path(name),
        stimulus_names.plain_path(urllib.parse.unquote(name)),
    )
    return [*dict.fromkeys(spellings)]


def _exact(name: str) -> str:
    """Return the name unchanged."""
    return name


def _composed(name: str) -> str:
    """Return a name in the Unicode form NFC, because file systems use different forms."""
    return unicodedata.normalize("NFC", name)


def _small_ending(name: str) -> str:
    """Return a name in the form NFC with its file ending in lower case."""
    stem, ending = os.path.splitext(_composed(name))
    return stem + ending.lower()


_FORMS = (_exact, _composed, _small_ending, stimulus_names.without_ending)
