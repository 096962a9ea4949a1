"""The ImageNet models of the bias study: published files and how to read them.

Source: Gavrikov and Keuper, CVPR 2024, https://arxiv.org/abs/2404.01509: 48 ResNet-50s,
and the vision transformers of its appendix. Identifiers, mean and std are those of
https://github.com/paulgavrikov/biases_vs_generalization at 9168ac8, code/model_zoo.py.
The study runs its MAE with timm's default mean and std of 0.5, although it was trained
with ImageNet's; so does this table, to reproduce the study's numbers.

    from jbias.configs import zoo
    entry = zoo.find("models/resnet50_l2_eps3.ckpt")
    options = entry.options("models")
    module, variables = models.load("models/resnet50_l2_eps3.ckpt", entry.model, **options)
"""

import os
import pathlib
import types
from collections.abc import Mapping
from typing import Any, NamedTuple

from jbias.data import tables
from jbias.models import state_dicts

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
HALF = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
NONE = ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
_CONSTANTS = types.MappingProxyType({"imagenet": IMAGENET, "half": HALF, "none": NONE})
# Path.suffix cannot be used: identifiers contain dots.
_SUFFIXES = (".pth.tar", *state_dicts.SUFFIXES)
# Generic file names, where the folder's name identifies the model.
_GENERIC_NAMES = frozenset(("model.safetensors", "pytorch_model.bin"))


class Entry(NamedTuple):
    """A published model."""

    id: str
    name: str  # As in the paper's figures.
    category: str
    files: tuple[str, ...]  # Names under which its authors publish it.
    model: str = "resnet50"  # A key of jbias.models.MODELS.
    constants: tuple[tuple[float, ...], tuple[float, ...]] = IMAGENET  # Mean and std.
    heads: tuple[str, ...] = ()  # Files of the linear layer, if it is published apart.
    norm: str = ""  # Norm of adversarial training: "l2", "linf", or "" for none.
    eps: float | None = None  # Budget of adversarial training; in 1/255 for "linf".
    where: str = ""  # Address of publication.
    # Properties of the network in the file, to tell files of the same name apart.
    needs: Mapping[str, Any] = types.MappingProxyType({})

    def options(self, folder: str | os.PathLike) -> dict[str, Any]:
        """Return the keyword arguments for `jbias.models.load`: mean, std and head.

        folder: contains the file of the linear layer, if the model needs one; ValueError
        if it is missing.
        """
        mean, std = self.constants
        if not self.heads:
            return {"mean": mean, "std": std}
        for name in self.heads:
            path = pathlib.Path(folder) / name
            if path.is_file():
                return {"mean": mean, "std": std, "head": path}
        raise ValueError(
            f"configs.zoo: {self.id} needs its linear layer in {self.heads[0]} in "
            f"{os.fspath(folder)}, got none; take it from {self.where}"
        )


def _entry(row: Mapping[str, Any]) -> Entry:
    """Return the entry of a row of jbias/data/tables/published_models.json."""
    fields = dict(row)
    fields["files"] = tuple(row["files"])
    fields["heads"] = tuple(row.get("heads", ()))
    fields["constants"] = _CONSTANTS[row.get("constants", "imagenet")]
    return Entry(**fields)


# The 48 of the paper's figures, then the transformers of its appendix.
ZOO: Mapping[str, Entry] = types.MappingProxyType(
    {row["id"]: _entry(row) for row in tables.read("published_models")}
)


def find(path: str | os.PathLike) -> Entry | None:
    """Return the entry of a file, or None for an unknown file or a linear layer.

    A file is recognised by its published name, by an entry's identifier as its name, or by
    a generic name in a folder that is called by the identifier.
    """
    path = pathlib.Path(path)
    is_generic = path.name in _GENERIC_NAMES
    for entry in ZOO.values():
        has_published_name = path.name in entry.files
        has_identifier = path.name in (f"{entry.id}{suffix}" for suffix in _SUFFIXES)
        is_in_folder = is_generic and path.absolute().parent.name == entry.id
        if has_published_name or has_identifier or is_in_folder:
            return entry
    return None


def is_head(path: str | os.PathLike) -> bool:
    """Return True if the file's name is that of some entry's linear layer."""
    name = pathlib.Path(path).name
    return any(name in entry.heads for entry in ZOO.values())
