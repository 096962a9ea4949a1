"""Networks: a plain backbone each, with named taps. MODELS is the table of contents."""

import os
from collections.abc import Mapping
from typing import Any

from flax import linen as nn

from jbias.models import class_names, registry

MODELS = registry.MODELS
TRANSFERS = registry.TRANSFERS


def load(
    path: str | os.PathLike, model: str | None = None, **options: Any
) -> tuple[nn.Module, dict[str, Any]]:
    """Reads a checkpoint as (module, variables): module.apply(variables, image) -> logits.

    path: .pth, .pt, .tar, .bin, .ckpt, .safetensors, or .npz of vision transformers, read
      without PyTorch and without running anything that they say; or the workdir of a run.
    model: a key of MODELS; None finds the one that fits.
    options: `entry` names the state dict where a file has several; `head` is a second
      file, with the linear layer; `seed` and `step` ("best", by validation, "latest" or a
      number) choose in a workdir. All others are the network's own, such as mean, std,
      dtype; they come before what the file says.

    Raises ValueError for a file that is damaged, holds anything but weights, or does not
    fit, with what is missing, spare and of another shape; FileNotFoundError.
    """
    from jbias.models import importing, trained

    if os.path.isdir(path):
        return trained.load(path, model, **options)
    return importing.read(path, model, **options)[:2]


def save_safetensors(
    path: str | os.PathLike,
    module: nn.Module,
    variables: Mapping[str, Any],
    names: str = "published",
    classes: class_names.Classes | None = None,
) -> None:
    """Writes a network as float32, with model, options, mean and std in its metadata.

    names: "published" (as torchvision or timm have it, in PyTorch's layout) or "own".
    classes: what class_names.read gives back of the file.
    ValueError where the module is none of MODELS, or has no published names.
    """
    from jbias.models import trained

    trained.save_safetensors(path, module, variables, names, classes)


def save_run(
    workdir: str | os.PathLike,
    module: nn.Module,
    variables: Mapping[str, Any],
    classes: class_names.Classes | None = None,
) -> None:
    """Writes a network as a run of one seed, for `config.init` and `load`.

    ValueError where the folder is not empty or the module is none of MODELS.
    """
    from jbias.models import trained

    trained.save_run(workdir, module, variables, classes)
