"""The two kinds of data sets: FileSet, read from files, and DrawnSet, made by code."""

import dataclasses
import functools
import os
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from jbias import errors
from jbias.data import base, decoding
from jbias.data.base import Names
from jbias.data.forms import listing
from jbias.data.sets import split_files

# Options of data sets whose images are cropped.
_CROPPING = ("crop", "fit", "fill")


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class FileSet(base.DataSet):
    """A data set in files below a folder."""

    # "module:function" of the reader: read(files, *, option=...) -> source, where `files` is
    # a SplitFiles. The reader's keywords are options of the data set.
    read: str
    pixels: int = 224  # Default side of the images in pixels.
    has_crops: bool = True  # False: no options crop, fit and fill.
    fit: str = "crop"  # Default of the option fit.
    # True: also images of the exact size are enlarged and cropped, as by the authors: the
    # default of the option resize is 256 for 224 pixels, and in this ratio for other sizes.
    is_enlarged: bool = False
    trim: int = 0  # Pixels to cut off at each side of an image, such as a border.
    is_own: bool = (
        False  # True for a user's own images, which are named by their folder.
    )
    # {split: further names of its folder}.
    folders: Mapping[str, Names] = dataclasses.field(default_factory=dict)

    @property
    def reader(self) -> Callable[..., base.Source]:
        """The function that `read` names; its module is imported."""
        return pkgutil.resolve_name(self.read)

    @functools.cached_property
    def options(self) -> base.Options:
        """The keyword options of `files`, then those of the reader."""
        options = dict(base.keyword_options(self.files))
        options["size"] = options["size"].replace(default=self.pixels, annotation=int)
        options["fit"] = options["fit"].replace(default=self.fit, annotation=str)
        if not self.has_crops:
            options = {k: v for k, v in options.items() if k not in _CROPPING}
        return MappingProxyType({**options, **base.keyword_options(self.reader)})

    def open(self, split: str, **options: Any) -> base.Source:
        """Return the source of a split or of a part of it; options: of `files` and the reader.

        ValueError for an option that the set lacks.
        """
        for option in options:
            errors.check_known(
                f"data.{self.name}",
                option,
                self.options,
                "options",
                must="be known ones",
            )
        options_of_files = {
            name: options.pop(name)
            for name in base.keyword_options(self.files)
            if name in options
        }
        return self.reader(self.files(split, **options_of_files), **options)

    def files(
        self,
        split: str,
        *,
        root: str,
        size: int | None = None,
        resize: int | None = None,
        crop: bool = True,
        fit: str | None = None,
        interpolation: str = "bilinear",
        fill: Sequence[int] = (0, 0, 0),
    ) -> split_files.SplitFiles:
        """Return the files of a split below the folder `root`, and their preprocessing.

        split: "train" or "train[:90%]". size, resize, crop, fit, interpolation, fill: see
        decoding.preprocess; default size: `pixels`, default fit: the set's, if `crop` is True. For
        example, resize=256 with size=224 cuts off the outer 12.5 %, as BiasBed did.
        ValueError for wrong options, base.Missing if `root` does not exist.
        """
        name, where = self.name, f"data.{self.name} {split}"
        if self.is_own:
            name = os.path.basename(os.path.abspath(root))
            where = f"data.{self.name} {name}/{split}"
        parsed_split = listing.parse_split(where, split)
        root = listing.require_folder(where, os.path.expanduser(root), "root")
        size = self.pixels if size is None else size
        has_own_fit = crop and fit is None
        if self.is_enlarged and has_own_fit and resize is None:
            errors.check_whole(where, size, low=1, name="size")
            resize = round(size * 256 / 224)
        transform = decoding.preprocess(
            size,
            resize,
            crop,
            native=self.is_native,
            fit=self.fit if has_own_fit else fit or "crop",
            interpolation=interpolation,
            fill=fill,
            trim=self.trim,
        )
        published = self.images
        if isinstance(published, Mapping):
            published = published.get(parsed_split.base)
        return split_files.SplitFiles(
            name=name,
            split=split,
            where=where,
            root=root,
            part=parsed_split,
            transform=transform,
            spellings=self.folders.get(parsed_split.base, ()),
            cite=self.cite,
            published=published or None,
        )


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class DrawnSet(base.DataSet):
    """A data set that code draws, or that it makes of other data sets."""

    # "module:function": make(split, *, size, option=...) -> source.
    make: str

    @property
    def maker(self) -> Callable[..., base.Source]:
        """The function that `make` names; its module is imported."""
        return pkgutil.resolve_name(self.make)

    @functools.cached_property
    def options(self) -> base.Options:
        """The keyword options of the maker."""
        return base.keyword_options(self.maker)

    def open(self, split: str, **options: Any) -> base.Source:
        """Return the source of a split or of a part of it; options: of the maker."""
        return self.maker(split, **options)
