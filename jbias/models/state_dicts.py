"""Reader of state dicts in published weight files.

`read` opens a file of any known format and returns the state dict in it. `strip_prefixes`
yields the arrays under names without the prefixes of wrapper modules.

Vision transformers that their authors published as .npz files of Flax arrays are converted to
state dicts with timm's names and layout (`from_augreg`). Source: Steiner et al. 2022,
https://arxiv.org/abs/2106.10270; the names in the .npz files are from
https://github.com/google-research/vision_transformer.
"""

import os
import pathlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from jbias.models import safetensors, torch_files, weight_files, weight_names

TORCH = (".pth", ".pt", ".tar", ".bin", ".ckpt", ".torch")
SUFFIXES = (*TORCH, ".safetensors", ".npz")

# Keys under which a file may store the state dict.
CONTAINERS = (
    "state_dict",
    "model",
    "model_state",
    "model_state_dict",
    "net",
    "network",
    "state_dict_ema",
    "model_ema",
    "ema",
    "teacher",
    "student",
    "weights",
    "params",
    "resnet",
    "backbone",
    "online_backbone",
    "module",
)
# Prefixes that wrapper modules add to the names of a network.
PREFIXES = (
    "module.",
    "model.",
    "backbone.",
    "encoder.",
    "encoder_q.",
    "base_encoder.",
    "net.",
    "network.",
    "vit.",
    "resnet.",
    "online_backbone.",
    "student.",
    "teacher.",
    "momentum_encoder.",
    "_orig_mod.",
    "base_model.",
    "feature_extractor.",
)
# Entries of wrappers and of training that do not affect the logits: counters, losses and
# metrics of Lightning's modules, the attacker of the robustness library, momentum encoders,
# queues and heads of contrastive training, auxiliary batch norms.
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
    "fc",
    "linear",
    "lin",
    "head",
    "heads",
    "mlp_head",
    "classifier",
    "cls",
    "classification_head",
    "last_linear",
    "fc_out",
    "output",
    "out",
    "logits",
)
# Last words of the name of a head inside a module of any name.
_INNER_HEADS = ("fc", "linear", "head", "classifier")
_HEAD = re.compile(
    rf"(?:(?:{'|'.join(map(re.escape, PREFIXES))}))*"
    rf"(?:(?:{'|'.join(_HEAD_WORDS)})\.)+(?:\d+\.)?"
)
_MAX_DEPTH = 6  # Largest number of chained prefixes and of nested containers.
# Published networks have some hundred arrays and a few chains of prefixes; every network
# of models.MODELS is tried under every chain.
_MAX_ARRAYS = 2**13
_MAX_LETTERS = 300  # Largest length of a name.
_MAX_CHAINS = 32


class StateDict(NamedTuple):
    """A state dict, with the metadata and normalisation constants in its file.

    constants: "mean" and "std" of a normalisation layer, if the file has one.
    """

    arrays: dict[str, np.ndarray]
    metadata: dict[str, str]
    constants: dict[str, tuple[float, ...]]


def read(path: str | os.PathLike, entry: str | None = None) -> StateDict:
    """Return the state dict in a file of PyTorch, a .safetensors or an .npz file.

    Entries that do not affect the logits (`is_unused`) are left out. Other arguments and errors:
    see `read_arrays`.
    """
    arrays, metadata = read_arrays(path, entry)
    used = {name: x for name, x in arrays.items() if not is_unused(name)}
    if not used:
        raise ValueError(f"{os.fspath(path)}: must hold weights, got none")
    return StateDict(used, metadata, _normalisation_constants(arrays))


def is_unused(name: str) -> bool:
    """Return True if an entry does not affect the logits, by its name: counters, losses."""
    return _UNUSED.fullmatch(name) is not None


def read_arrays(
    path: str | os.PathLike, entry: str | None = None
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Return (all arrays by name, metadata) of a file of PyTorch, a .safetensors or an .npz file.

    entry: in a file of PyTorch, the container to read if there are several, such as
      "teacher", or "a.b" for b inside a.

    ValueError, one line, if the file is damaged, ends with none of SUFFIXES, has no state dict
    or several, or has more arrays or longer names than a network.
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
        arrays = from_augreg(weight_files.read_npz(path))
    else:
        arrays = _read_torch(path, entry)
    _check_names(os.fspath(path), arrays)
    return arrays, metadata


def _check_names(where: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Raise ValueError for more names, longer names or more prefixes than a network has.

    Matching such names would take too long. where: path of the file, for messages.
    """
    longest, num_chains = max(map(len, arrays), default=0), len(_prefix_chains(arrays))
    too_many = len(arrays) > _MAX_ARRAYS or num_chains > _MAX_CHAINS
    if too_many or longest > _MAX_LETTERS:
        raise ValueError(
            f"{where}: must hold the weights of one network, at most {_MAX_ARRAYS:,} "
            f"arrays with names of {_MAX_LETTERS} letters that begin in {_MAX_CHAINS} "
            f"ways such as module.model., got {len(arrays):,}, {longest:,} and "
            f"{num_chains:,}"
        )


def _read_torch(path: str | os.PathLike, entry: str | None) -> dict[str, np.ndarray]:
    """Return the arrays, by name, of the only state dict in a file of PyTorch.

    entry: container to read, see `read`; None: the whole file. ValueError if there is no state
    dict, if there are several, or if there is no such container.
    """
    file = torch_files.load(path)
    where = os.fspath(path)
    tree = file.tree
    for key in entry.split(".") if entry else ():
        if not isinstance(tree, Mapping) or key not in tree:
            raise ValueError(f"{where}: has no entry {entry!r}; {_list_keys(tree)}")
        tree = tree[key]
    states = list(_find_state_dicts(tree, path="", depth=0, visited=set()))
    if len(states) != 1:
        names = ", ".join(repr(name) for name, _ in states[:8])
        problem = f"several state dicts, {names}" if states else "no state dict"
        remedy = "name one by entry=..." if states else _list_keys(tree)
        raise ValueError(f"{where}: holds {problem}; {remedy}")
    return file.arrays(states[0][1])


def _find_state_dicts(
    tree: Any, *, path: str, depth: int, visited: set[int]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (path, state dict) for each state dict in known containers of a tree.

    A dict without known containers is a state dict if it has a tensor. A dict that occurs
    several times is visited once: otherwise a small file could give millions of state dicts.

    path, depth: position of `tree` in the file. visited: ids of the dicts visited so far.
    """
    if not isinstance(tree, Mapping) or depth == _MAX_DEPTH or id(tree) in visited:
        return
    visited.add(id(tree))
    inner: list = []
    for key in CONTAINERS:
        if key in tree:
            inner += _find_state_dicts(
                tree[key],
                path=f"{path}.{key}".lstrip("."),
                depth=depth + 1,
                visited=visited,
            )
    yield from inner
    if not inner and any(isinstance(v, torch_files.Tensor) for v in tree.values()):
        yield path, tree


def _list_keys(tree: Any) -> str:
    """Return a phrase for messages: the first eight keys of a dict, or "it is no dict"."""
    if not isinstance(tree, Mapping):
        return "it is no dict"
    return "it has " + ", ".join(repr(key)[:40] for key in list(tree)[:8])


def _normalisation_constants(
    arrays: Mapping[str, np.ndarray],
) -> dict[str, tuple[float, ...]]:
    """Return "mean" and "std" of a normalisation layer, three numbers each.

    The result has only the constants that the file has; {} if the file has none. A single number is
    repeated three times.
    """
    constants = {}
    for name, array in arrays.items():
        match = _NORMALISER.fullmatch(name)
        if match and array.size in (1, 3):
            # Seven digits restore the numbers as they were before they became float32.
            numbers = [float(f"{x:.7g}") for x in array.ravel().tolist()]
            key = match[1] or match[2]
            constants.setdefault(key, tuple(numbers * (3 // len(numbers))))
    return constants


def strip_prefixes(arrays: Mapping[str, np.ndarray]) -> Iterator[dict[str, np.ndarray]]:
    """Yield the arrays with a chain of prefixes removed from names, once for each chain.

    Chains: see `_prefix_chains`; the first chain is "", with which no name changes. Names
    without the chain do not change. A chain whose removal would give two arrays the same
    name is skipped.
    """
    for chain in _prefix_chains(arrays):
        stripped = {name.removeprefix(chain): array for name, array in arrays.items()}
        if len(stripped) == len(arrays):
            yield stripped


def _prefix_chains(names: Iterable[str]) -> list[str]:
    """Return all chains of known prefixes at the start of names, such as "module.model.".

    The first chain is ""; longer chains follow shorter chains.
    """
    chains = {()}
    for name in names:
        chain = ()
        for word in name.split(".", _MAX_DEPTH)[:-1]:
            if f"{word}." not in PREFIXES:
                break
            chain += (PREFIXES.index(f"{word}."),)
            chains.add(chain)
    ordered = sorted(chains, key=lambda chain: (len(chain), chain))
    return ["".join(PREFIXES[i] for i in chain) for chain in ordered]


def is_head(stem: str) -> bool:
    """Return True if a layer's name, with its final dot, is a usual name of a last layer."""
    return _HEAD.fullmatch(stem) is not None


def linear_layers(arrays: Mapping[str, np.ndarray]) -> list[str]:
    """Return the names, such as "fc.1.", of linear layers and 1x1 convolutions.

    arrays: a state dict.
    """
    stems = []
    for name, array in arrays.items():
        is_linear = array.ndim == 2 or array.ndim == 4 and array.shape[2:] == (1, 1)
        if is_linear and name.endswith("weight"):
            stems.append(name.removesuffix("weight"))
    return stems


def read_head(path: str | os.PathLike) -> tuple[np.ndarray, np.ndarray]:
    """Return weight (classes, features) and bias of the linear layer in a file.

    ValueError unless the file has exactly one linear layer with a bias, or exactly one such layer
    that may be the head by its name (`_may_be_head`). Other errors: see `read`.
    """
    arrays = read(path).arrays
    weights = {
        name.removesuffix("weight"): array
        for name, array in arrays.items()
        if array.ndim == 2 and name.endswith("weight")
    }
    weights = {
        stem: weight for stem, weight in weights.items() if f"{stem}bias" in arrays
    }
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
    """Return True if a layer may be the head, judged by its name.

    A layer inside another module, such as "clf.fc.", may also be a hidden layer. For such a
    layer, return False if another layer has as many inputs as this layer has outputs. stem:
    name of the layer, with its final dot. weights: weights of all linear layers, by name with
    the final dot.
    """
    if is_head(stem):
        return True
    if stem.rstrip(".").rpartition(".")[2] not in _INNER_HEADS:
        return False
    inputs = {array.shape[1] for name, array in weights.items() if name != stem}
    return weights[stem].shape[0] not in inputs


_BLOCK = r"Transformer/encoderblock_(\d+)/"
_ATTENTION = _BLOCK + "MultiHeadDotProductAttention_1/"
# Rules from the names of the authors' Flax arrays to timm's names; see weight_names.py.
_AUGREG_NAMES = (
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
    """Return the Flax arrays of a vision transformer as a state dict with timm's names.

    Arrays of unknown names are unchanged.
    """
    state = {}
    for name, array in arrays.items():
        (new_name,) = weight_names.published_names(name.split("/"), _AUGREG_NAMES) or (
            name,
        )
        if new_name != name and name.endswith("/kernel"):
            array = _to_torch_kernel(new_name, array)
        elif re.search(r"attn\.(query|key|value)\.bias", new_name):
            array = array.reshape(-1)
        state[new_name] = array
    for name in [name for name in state if name.endswith(".attn.query.weight")]:
        stem = name.removesuffix("query.weight")
        for kind in ("weight", "bias"):
            layers = [f"{stem}{layer}.{kind}" for layer in ("query", "key", "value")]
            if all(layer in state for layer in layers):
                rows = [state.pop(layer) for layer in layers]
                state[f"{stem}qkv.{kind}"] = np.concatenate(rows)
    return state


def _to_torch_kernel(name: str, kernel: np.ndarray) -> np.ndarray:
    """Return the kernel of a Flax convolution, attention or dense layer in PyTorch's layout.

    name: timm's name of the kernel.
    """
    if kernel.ndim == 4:
        return kernel.transpose(3, 2, 0, 1)
    if kernel.ndim == 3:
        # (width, heads, features a head); the projection has (heads, features, width).
        is_projection = name.endswith("attn.proj.weight")
        shape = (-1, kernel.shape[2]) if is_projection else (len(kernel), -1)
        kernel = kernel.reshape(shape)
    return kernel.T
