"""Networks of timm, opened by name: timm:NAME, timm:NAME@FILE, timm:NAME?pretrained=false.

No weights are downloaded: they are in a file or in the Hugging Face cache. A file is read by
jbias.models.state_dicts, which runs no code.
"""

import argparse
import contextlib
import dataclasses
import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jbias.runtime import console, messages, timm_names

if TYPE_CHECKING:
    from jbias.evals import networks, suites

_INSTALL = "pip install torch torchvision timm"
_MAX_LETTERS = 500  # Of timm's own message.
# PyTorch's words on an array of another shape.
_MISMATCH = (
    r"size mismatch for (\S+): .*?torch\.Size\((\[.*?\])\).*?torch\.Size\((\[.*?\])\)"
)
_MAX_NAMES = 3  # Networks or arrays that a message names.


def check(names: Sequence[str], where: str, *, is_random: bool = False) -> None:
    """Raise ValueError unless timm has each network, and its weights can be found.

    names, is_random: see timm_names.parse. where: start of error messages, such as
    "--checkpoint".
    """
    for text in names:
        parsed = timm_names.parse(text, where, is_random=is_random)
        _import_timm(parsed, text, where)
        if not (parsed.is_random or parsed.file):
            _cached_weights(parsed.name, where)


def make(text: str, where: str, *, is_random: bool = False) -> tuple[Any, str]:
    """Return (module of timm, name of the network, see TimmName.network_name).

    text, where, is_random: see timm_names.parse. Random weights are from seed 0. ValueError, one
    line, if timm is not installed or lacks the network, if the weights are not in the cache, and
    if a file is damaged or does not have exactly the arrays of the network.
    """
    parsed = timm_names.parse(text, where, is_random=is_random)
    timm = _import_timm(parsed, text, where)
    name = parsed.name
    with _explain_errors(text, where):
        if parsed.is_random:
            import torch

            torch.manual_seed(0)  # The same weights each time, so that a call resumes.
            module = timm.create_model(name, pretrained=False)
        elif parsed.file:
            module = _from_file(timm, name, parsed.file)
        else:
            overlay = {"file": _cached_weights(name, where)}
            module = timm.create_model(
                name, pretrained=True, pretrained_cfg_overlay=overlay
            )
    return module, parsed.network_name


def opener(
    args: argparse.Namespace, suite: "suites.Suite", say: console.Say
) -> Callable[[str, str], "networks.Network"]:
    """Return a function (text, name) -> network of timm, for networks.open_networks.

    args: flags of the command, of which classes, mean, std, trained and method are used.
    suite: its sets and its size of images. say: called with lines for the user.
    """

    from jbias.evals import predictors

    def open_network(text: str, name: str) -> "networks.Network":
        """Return the network that `text` names; name: of its folder of results."""
        module, _ = make(text, "--checkpoint")
        from jbias import torch  # After make, which says how PyTorch is installed.

        flags = {key: getattr(args, key) for key in ("classes", "mean", "std")}
        options = {key: value for key, value in flags.items() if value is not None}
        network = predictors.open_predictor(
            torch.wrap(module, name=name, **options),
            suite.size,
            say,
            trained=args.trained or "",
            method=args.method or "",
            sets=predictors.describe_sets(suite),
        )
        details = {**network.about, "path": text}
        return dataclasses.replace(network, about=details)

    return open_network


def _import_timm(parsed: timm_names.TimmName, text: str, where: str) -> Any:
    """Return the package timm; ValueError if it cannot be imported or lacks the network."""
    try:
        import timm
        import torch  # noqa: F401
    except ModuleNotFoundError as error:
        raise ValueError(
            f"{where}: {text} needs the package timm, and {error.name} is not installed; "
            f"{_INSTALL}"
        ) from None
    except Exception as error:  # Builds that do not fit raise errors of any type.
        raise ValueError(
            f"{where}: {text} needs the package timm, which cannot be imported "
            f"({messages.describe_error(error)}); install builds of torch and torchvision "
            f"that belong together: {_INSTALL}"
        ) from error
    name = parsed.name
    if not name or not timm.is_model(name):
        close = difflib.get_close_matches(name, timm.list_models(), n=_MAX_NAMES)
        hint = "timm.list_models() has all"
        if close:
            hint = f"did you mean {' or '.join(f'timm:{x}' for x in close)}?"
        raise ValueError(f"{where}: timm has no network {name!r}; {hint}")
    return timm


@contextlib.contextmanager
def _explain_errors(text: str, where: str) -> Iterator[None]:
    """Return a context in which timm's errors become a ValueError of one line.

    ValueErrors, which are this package's own, are unchanged. text, where: see `make`.
    """
    try:
        yield
    except ValueError:
        raise
    except Exception as error:  # timm's conversions of files raise errors of any type.
        reason = _difference(str(error)) or messages.describe_error(error)
        raise ValueError(
            f"{where}: {text}: {messages.one_line(reason)[:_MAX_LETTERS]}; give the weights of "
            "this network, with the names of timm"
        ) from error


def _difference(message: str) -> str:
    """Return the arrays that differ, from the message of load_state_dict; "" for another message.

    The result has the number of arrays that are missing, unknown or of other shapes, and the first
    three names of each.
    """
    keys = r"key\(s\) in state_dict: (.*)"
    names = {
        "missing": re.findall(
            r'"([^"]+)"', "".join(re.findall(f"Missing {keys}", message))
        ),
        "unknown": re.findall(
            r'"([^"]+)"', "".join(re.findall(f"Unexpected {keys}", message))
        ),
        "of another shape": [
            f"{name}: {file_shape} in the file, {shape} in the network"
            for name, file_shape, shape in re.findall(_MISMATCH, message)
        ],
    }
    counts = [
        f"{len(group):,} {kind} ({', '.join(group[:_MAX_NAMES])}"
        f"{' ...' if len(group) > _MAX_NAMES else ''})"
        for kind, group in names.items()
        if group
    ]
    return f"arrays of the file: {', '.join(counts)}" if counts else ""


def _from_file(timm: Any, name: str, path: str) -> Any:
    """Return timm's module with the weights of a file, and as many classes as its last layer.

    timm: the package. name: of the network in timm. Prefixes of names such as "module." are
    removed, and timm converts names and shapes as for its own downloads. ValueError for a damaged
    file.
    """
    import torch

    from jbias.models import state_dicts

    arrays, _ = state_dicts.read_arrays(path)
    expected = timm.create_model(name, pretrained=False).state_dict().keys()
    arrays = max(
        state_dicts.strip_prefixes(arrays), key=lambda x: len(expected & x.keys())
    )
    tensors = {
        key: torch.tensor(array)
        for key, array in arrays.items()
        if key in expected or not state_dicts.is_unused(key)
    }
    config = timm.models.get_pretrained_cfg(name)
    overlay = {"state_dict": tensors}
    options = {}
    num_classes = _count_classes(config, arrays)
    if num_classes:
        options["num_classes"] = overlay["num_classes"] = num_classes
    module = timm.create_model(
        name, pretrained=True, pretrained_cfg_overlay=overlay, **options
    )
    module.pretrained_cfg.pop(
        "state_dict", None
    )  # Else the weights stay in memory twice.
    return module


def _count_classes(config: Any, arrays: Mapping[str, np.ndarray]) -> int:
    """Return the number of outputs of the last layer in a file; 0 if it has none by timm's name.

    config: timm's pretrained_cfg of the network. arrays: of the file, by name.
    """
    heads = config.classifier or ()
    head = heads if isinstance(heads, str) else next(iter(heads), "")
    weight = arrays.get(f"{head}.weight")
    return 0 if weight is None or not weight.ndim else len(weight)


def _cached_weights(name: str, where: str) -> str:
    """Return the path of a timm network's weights in the Hugging Face cache.

    ValueError if timm has no weights of that name on the hub, and if they are not in the cache;
    the message then names the file, its address and the command that fetches it.
    """
    import huggingface_hub
    import timm

    config = timm.models.get_pretrained_cfg(name)
    repository = getattr(config, "hf_hub_id", None) or ""
    if repository.endswith("/"):
        architecture = config.architecture or name.partition(".")[0]
        repository += f"{architecture}.{config.tag}" if config.tag else architecture
    by_hand = f"use timm:{name}?pretrained=false for random weights"
    if not repository:
        raise ValueError(
            f"{where}: timm has no weights of {name} on the hub; give a file as "
            f"timm:{name}@FILE, or {by_hand}"
        )
    file = getattr(config, "hf_hub_filename", None) or "model.safetensors"
    path = huggingface_hub.try_to_load_from_cache(repository, file)
    is_cached = isinstance(path, str)  # Else None, or an object for a known absence.
    if not is_cached:
        url = f"https://huggingface.co/{repository}/resolve/main/{file}"
        raise ValueError(
            f"{where}: the weights of timm:{name} are not in the Hugging Face cache; fetch "
            f"them by `hf download {repository} {file}`, or put {url} into any folder and give "
            f"timm:{name}@FOLDER/{file}, or {by_hand}"
        )
    return path
