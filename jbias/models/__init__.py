"""Networks by name (MODELS), and functions that load and save their weights.

Networks have named sites where features can be read or changed (taps.py).
"""

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
    """Return a network from a file or run as (module, variables).

    module.apply(variables, image) returns logits for images in [0, 1], NHWC.

    path: a .pth, .pt, .tar, .bin, .ckpt or .safetensors file, or an .npz file of vision
      transformers, read without PyTorch and without running code of the file; or the
      workdir of a run.
    model: a key of MODELS; None: find the model that fits.
    options: `entry` names the state dict if a file has several; `head` is a second file
      with the linear layer; `seed` (needed if the run has several) and `step` ("best", by
      validation accuracy, "latest" or a number) select a network of a workdir. All other
      keyword arguments are options of the network, such as mean, std and dtype; they override
      the options in the file.

    ValueError for a file that is damaged, contains anything but weights, or fits no network
    or several; the message lists entries that are missing, unexpected or of another shape.
    ValueError also for an unknown model or option. FileNotFoundError if there is no such
    file.
    """
    from jbias.models import importing, trained

    if os.path.isdir(path):
        return trained.load(path, model, **options)
    imported = importing.read(path, model, **options)
    return imported.net, imported.variables


def save_safetensors(
    path: str | os.PathLike,
    module: nn.Module,
    variables: Mapping[str, Any],
    names: str = "published",
    classes: class_names.Classes | None = None,
) -> None:
    """Write a network in float32, with model, options, mean and std in the metadata.

    path: path of the .safetensors file; an existing file is replaced.
    names: "published" (the names of torchvision or timm, in PyTorch's layout) or "own" (the
      names of this package).
    classes: names of the classes to store; class_names.read reads them. None: none.

    A missing folder is created. ValueError if the module is not a network of MODELS, has no
    published names, or has another number of classes than `classes`; and for other values of
    `names`.
    """
    from jbias.models import trained

    trained.save_safetensors(path, module, variables, names=names, classes=classes)


def save_run(
    workdir: str | os.PathLike,
    module: nn.Module,
    variables: Mapping[str, Any],
    classes: class_names.Classes | None = None,
    *,
    size: int = 224,
    entries: Mapping[str, Any] | None = None,
) -> None:
    """Write a network as the workdir of a run of one seed, for `config.init` and `load`.

    classes: names of the classes to store; None: none. size: side of the images that the network
    was trained on, in pixels. entries: further entries of config.json; {"train": {"data": NAME}}
    names the training set, so that `jbias measure` knows the data set and the size of images.

    ValueError if the folder is not empty, or the module is not a network of MODELS or has
    another number of classes than `classes`.
    """
    from jbias.models import trained

    trained.save_run(
        workdir, module, variables, classes=classes, size=size, entries=entries
    )
