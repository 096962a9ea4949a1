"""The ImageNet models of the bias study, as the files that their authors publish.

Source: Gavrikov and Keuper, CVPR 2024, https://arxiv.org/abs/2404.01509: 48 ResNet-50s,
and the vision transformers of its appendix. Identifiers, mean and std are those of
https://github.com/paulgavrikov/biases_vs_generalization at 9168ac8, code/model_zoo.py.
Its MAE is run with timm's default mean and std of 0.5, though it was trained with
ImageNet's, and so is it here, for the study's numbers.

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
# Not a path's suffix: identifiers have dots.
_ENDS = (".pth.tar", *state_dicts.SUFFIXES)
# What files are called in folders of their own.
_PLAIN = frozenset(("model.safetensors", "pytorch_model.bin"))


class Entry(NamedTuple):
    """A published model."""

    id: str
    name: str  # As the paper's figures have it.
    category: str
    files: tuple[str, ...]  # Names under which its authors publish it.
    model: str = "resnet50"  # A key of jbias.models.MODELS.
    constants: tuple[tuple[float, ...], tuple[float, ...]] = IMAGENET  # Mean and std.
    heads: tuple[str, ...] = ()  # Of the linear layer, where that is a file of its own.
    norm: str = ""  # Of adversarial training: "l2" or "linf",
    eps: float | None = None  # and its budget; in 1/255 for "linf".
    where: str = ""  # Where it is published.
    # Of the network in such a file, where other files have the same name.
    needs: Mapping[str, Any] = types.MappingProxyType({})

    def options(self, folder: str | os.PathLike) -> dict[str, Any]:
        """What `jbias.models.load` takes beside path and model; the head from a folder.

        ValueError where the head is not there.
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


def _entry(told: Mapping[str, Any]) -> Entry:
    known = dict(told, files=tuple(told["files"]), heads=tuple(told.get("heads", ())))
    known["constants"] = _CONSTANTS[told.get("constants", "imagenet")]
    return Entry(**known)


# The 48 of the paper's figures, then the transformers of its appendix.
ZOO: Mapping[str, Entry] = types.MappingProxyType(
    {told["id"]: _entry(told) for told in tables.read("published_models")}
)


def find(path: str | os.PathLike) -> Entry | None:
    """The entry of a file: by a published name, by its identifier, or by its folder's.

    None where it is none of these, or the linear layer of one.
    """
    path = pathlib.Path(path)
    for entry in ZOO.values():
        named = path.name in entry.files
        own = path.name in (f"{entry.id}{suffix}" for suffix in _ENDS)
        folder = path.name in _PLAIN and path.absolute().parent.name == entry.id
        if named or own or folder:
            return entry
    return None


def is_head(path: str | os.PathLike) -> bool:
    """Whether a file has the name of the linear layer of some entry."""
    name = pathlib.Path(path).name
    return any(name in entry.heads for entry in ZOO.values())
