"""Finds the state dict in a published file: containers, prefixes, normalisers.

`read` opens a file of any known format and returns the state dict in it. `strip_prefixes`
yields the readings of its names without the prefixes that wrappers put before them.

Vision transformers as their authors publish them, .npz files of Flax arrays, become state
dicts with timm's names and layout (`from_augreg`). Source: Steiner et al. 2022,
https://arxiv.org/abs/2106.10270; the names are those of
https://github.com/google-research/vision_transformer.
"""

import os
import pathlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from jbias.models import published, safetensors, torch_files, weight_names

TORCH = (".pth", ".pt", ".tar", ".bin", ".ckpt", ".torch")
SUFFIXES = (*TORCH, ".safetensors", ".npz")

# Under which a file may hold the state dict beside other things.
CONTAINERS = (
    *("state_dict", "model", "model_state", "model_state_dict", "net", "network"),
    *("state_dict_ema", "model_ema", "ema", "teacher", "student", "weights", "params"),
    *("resnet", "backbone", "online_backbone", "module"),
)
# What wrappers put before the names of a network.
PREFIXES = (
    *("module.", "model.", "backbone.", "encoder.", "encoder_q.", "base_encoder."),
    *("net.", "network.", "vit.", "resnet.", "online_backbone.", "student."),
    *(
        "teacher.",
        "momentum_encoder.",
        "_orig_mod.",
        "base_model.",
        "feature_extractor.",
    ),
)
# Entries of wrappers and of training, which no logits depend on: counters, losses and
# metrics of Lightning's modules, the attacker
# of the robustness library, momentum encoders, queues and heads of contrastive training,
# auxiliary batch norms.
_UNUSED = re.compile(
    r"(.*\.)?(num_batches_tracked|attacker\..*|(normali[sz]er?|norm_layer)\..*"
    r"|n_averaged|encoder_k\..*|queue(_ptr)?|projection_head\..*|prototypes.*"
    r"|predictor\..*|projector\..*|aux_bn\d*\..*"
    r"|(criterion|loss|loss_fn|loss_func|(train|val|valid|test)_metrics?)\..*"
    r"|relative_position_index|mask_token)|.*_aux_bn\..*|mean|std"
)
_NORMALISER = re.compile(
    r"(?:.*\.)?(?:normali[sz]er?|norm_layer)\.(?:new_)?(mean|std)|(mean|std)"
)
_HEAD_WORDS = (
    *("fc", "linear", "lin", "head", "heads", "mlp_head", "classifier", "cls"),
    *("classification_head", "last_linear", "fc_out", "output", "out", "logits"),
)
# Last words of a head inside modules of any name.
_INNER_HEADS = ("fc", "linear", "head", "classifier")
_HEAD = re.compile(
    rf"(?:(?:{'|'.join(map(re.escape, PREFIXES))}))*"
    rf"(?:(?:{'|'.join(_HEAD_WORDS)})\.)+(?:\d+\.)?"
)
_DEPTH = 6  # Of prefixes, and of containers in each other.
# Published networks have some hundred arrays and a few chains of prefixes; every network
# of models.MODELS is tried under every chain.
_ARRAYS = 2**13
_LETTERS = 300  # Of a name.
_CHAINS = 32


class State(NamedTuple):
    """A state dict, and what its file says beside it."""

    arrays: dict[str, np.ndarray]
    metadata: dict[str, str]
    constants: dict[str, tuple[float, ...]]  # "mean" and "std" of a first layer.


def read(path: str | os.PathLike, entry: str | None = None) -> State:
    """Reads the state dict in a file: .pth and its like, .safetensors or .npz.

    entry: the container to take where there are several, such as "teacher", or
      "a.b" for b in a.

    ValueError, one line, where the file is damaged, holds none or several.
    """
    suffix = pathlib.Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise ValueError(
            f"{os.fspath(path)}: must be a run's workdir or a file that ends with "
            f"{', '.join(SUFFIXES)}"
        )
    metadata: dict[str, str] = {}
    if suffix == ".safetensors":
        arrays, metadata = safetensors.read(path)
    elif suffix == ".npz":
        arrays = from_augreg(published.read_npz(path))
    else:
        arrays = _torch(path, entry)
    _check(os.fspath(path), arrays)
    kept = {name: x for name, x in arrays.items() if not _UNUSED.fullmatch(name)}
    if not kept:
        raise ValueError(f"{os.fspath(path)}: must hold weights, got none")
    return State(kept, metadata, _normaliser(arrays))


def _check(where: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Refuses names that no network has, and that would take long to look through."""
    longest, chains = max(map(len, arrays), default=0), len(_chains(arrays))
    if len(arrays) > _ARRAYS or longest > _LETTERS or chains > _CHAINS:
        raise ValueError(
            f"{where}: must hold the weights of one network, at most {_ARRAYS:,} arrays "
            f"with names of {_LETTERS} letters that begin in {_CHAINS} ways such as "
            f"module.model., got {len(arrays):,}, {longest:,} and {chains:,}"
        )


def _torch(path: str | os.PathLike, entry: str | None) -> dict[str, np.ndarray]:
    loaded = torch_files.load(path)
    where = os.fspath(path)
    found = loaded.tree
    for key in entry.split(".") if entry else ():
        if not isinstance(found, Mapping) or key not in found:
            raise ValueError(f"{where}: has no entry {entry!r}; {_known(found)}")
        found = found[key]
    held = list(_inside(found, "", 0, set()))
    if len(held) != 1:
        names = ", ".join(repr(name) for name, _ in held[:8])
        problem = f"several state dicts, {names}" if held else "no state dict"
        remedy = "name one by entry=..." if held else _known(found)
        raise ValueError(f"{where}: holds {problem}; {remedy}")
    return loaded.arrays(held[0][1])


def _inside(
    found: Any, path: str, depth: int, seen: set[int]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The state dicts in known containers; without such, what has tensors in it.

    One that lies in several places counts once: else a small file could have millions.
    """
    if not isinstance(found, Mapping) or depth == _DEPTH or id(found) in seen:
        return
    seen.add(id(found))
    inner: list = []
    for key in CONTAINERS:
        if key in found:
            inner += _inside(found[key], f"{path}.{key}".lstrip("."), depth + 1, seen)
    yield from inner
    if not inner and any(isinstance(v, torch_files.Tensor) for v in found.values()):
        yield path, found


def _known(found: Any) -> str:
    if not isinstance(found, Mapping):
        return "it is no dict"
    return "it has " + ", ".join(repr(key)[:40] for key in list(found)[:8])


def _normaliser(arrays: Mapping[str, np.ndarray]) -> dict[str, tuple[float, ...]]:
    """Mean and deviation of a first layer, if the state dict has one."""
    found = {}
    for name, array in arrays.items():
        match = _NORMALISER.fullmatch(name)
        if match and array.size in (1, 3):
            # Seven digits: what was meant before it became float32.
            numbers = [float(f"{x:.7g}") for x in array.ravel().tolist()]
            found.setdefault(match[1] or match[2], tuple(numbers * (3 // len(numbers))))
    return found


def strip_prefixes(arrays: Mapping[str, np.ndarray]) -> Iterator[dict[str, np.ndarray]]:
    """The arrays under names without each chain of prefixes that occurs.

    Names that do not begin with it stay. A chain that makes two names one is left out.
    """
    for chain in _chains(arrays):
        short = {name.removeprefix(chain): array for name, array in arrays.items()}
        if len(short) == len(arrays):
            yield short


def _chains(names: Iterable[str]) -> list[str]:
    """The chains of prefixes that names begin with, short ones first; "" is one."""
    found = {()}
    for name in names:
        chain = ()
        for word in name.split(".", _DEPTH)[:-1]:
            if f"{word}." not in PREFIXES:
                break
            chain += (PREFIXES.index(f"{word}."),)
            found.add(chain)
    ordered = sorted(found, key=lambda chain: (len(chain), chain))
    return ["".join(PREFIXES[place] for place in chain) for chain in ordered]


def is_head(stem: str) -> bool:
    """Return whether a layer has a name of a network's last: "head.", "module.fc.1."."""
    return _HEAD.fullmatch(stem) is not None


def linear_layers(arrays: Mapping[str, np.ndarray]) -> list[str]:
    """Return the stems, such as "fc.1.", of linear layers and convolutions of one pixel."""
    found = []
    for name, array in arrays.items():
        is_linear = array.ndim == 2 or array.ndim == 4 and array.shape[2:] == (1, 1)
        if is_linear and name.endswith("weight"):
            found.append(name.removesuffix("weight"))
    return found


def read_head(path: str | os.PathLike) -> tuple[np.ndarray, np.ndarray]:
    """Return weight (classes, features) and bias of a linear layer in a file of its own.

    ValueError where the file has not just one such layer, or, among several, not just one
    that may be the head (`_may_be_head`).
    """
    arrays = read(path).arrays
    weights = {
        name.removesuffix("weight"): array
        for name, array in arrays.items()
        if array.ndim == 2 and name.endswith("weight")
    }
    weights = {s: array for s, array in weights.items() if f"{s}bias" in arrays}
    heads = [*weights]
    if len(weights) > 1:
        heads = [stem for stem in weights if _may_be_head(stem, weights)]
    if len(heads) != 1:
        layers = ", ".join(stem.rstrip(".") for stem in [*(heads or weights)][:8])
        remedy = "leave the head alone in it, as fc.weight and fc.bias"
        raise ValueError(
            f"{os.fspath(path)}: must hold one linear layer, a weight and its bias, or one "
            f"that is named as a head, got {layers or 'none'}; {remedy}"
        )
    return weights[heads[0]], arrays[f"{heads[0]}bias"]


def _may_be_head(stem: str, weights: Mapping[str, np.ndarray]) -> bool:
    """Return whether a layer is named as a head, by itself or inside another module.

    Inside another, such as "clf.fc.", it may also be a layer within a network: there
    another takes as many numbers as it gives.
    """
    if is_head(stem):
        return True
    if stem.rstrip(".").rpartition(".")[2] not in _INNER_HEADS:
        return False
    inputs = {array.shape[1] for name, array in weights.items() if name != stem}
    return weights[stem].shape[0] not in inputs


_BLOCK = r"Transformer/encoderblock_(\d+)/"
_ATTENTION = _BLOCK + "MultiHeadDotProductAttention_1/"
_NAMES = (
    (r"cls", "cls_token"),
    (r"Transformer/posembed_input/pos_embedding", "pos_embed"),
    (r"embedding", "patch_embed.proj"),
    (_BLOCK + "LayerNorm_0", r"blocks.\1.norm1"),
    (_BLOCK + "LayerNorm_2", r"blocks.\1.norm2"),
    (_BLOCK + "MlpBlock_3/Dense_0", r"blocks.\1.mlp.fc1"),
    (_BLOCK + "MlpBlock_3/Dense_1", r"blocks.\1.mlp.fc2"),
    (_ATTENTION + "out", r"blocks.\1.attn.proj"),
    (_ATTENTION + "(query|key|value)", r"blocks.\1.attn.\2"),
    (r"Transformer/encoder_norm", "norm"),
    (r"head", "head"),
)


def from_augreg(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Flax arrays as a state dict of timm; names of no known form stay as they are."""
    found = {}
    for name, array in arrays.items():
        (new,) = weight_names.published_names(name.split("/"), _NAMES) or (name,)
        if new != name and name.endswith("/kernel"):
            array = _turned(new, array)
        elif re.search(r"attn\.(query|key|value)\.bias", new):
            array = array.reshape(-1)
        found[new] = array
    for key in [key for key in found if key.endswith(".attn.query.weight")]:
        stem = key.removesuffix("query.weight")
        for kind in ("weight", "bias"):
            parts = [f"{stem}{part}.{kind}" for part in ("query", "key", "value")]
            if all(part in found for part in parts):
                rows = [found.pop(part) for part in parts]
                found[f"{stem}qkv.{kind}"] = np.concatenate(rows)
    return found


def _turned(name: str, kernel: np.ndarray) -> np.ndarray:
    if kernel.ndim == 4:
        return kernel.transpose(3, 2, 0, 1)
    if kernel.ndim == 3:  # Features and heads: (width, heads, each), or the inverse.
        inverse = name.endswith("attn.proj.weight")
        shape = (-1, kernel.shape[2]) if inverse else (len(kernel), -1)
        kernel = kernel.reshape(shape)
    return kernel.T
