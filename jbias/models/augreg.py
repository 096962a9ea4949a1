"""Vision transformers as their authors publish them, .npz files of flax arrays.

Source: Steiner et al. 2022, https://arxiv.org/abs/2106.10270; the names are those of
https://github.com/google-research/vision_transformer. Here they become a state dict with
the names and layout of timm's.
"""

import os
import re
from collections.abc import Mapping

import numpy as np

from jbias.models import published

_BLOCK = r"Transformer/encoderblock_(\d+)/"
_ATTENTION = _BLOCK + "MultiHeadDotProductAttention_1/"
_NAMES = (
    (r"cls", "cls_token"),
    (r"Transformer/posembed_input/pos_embedding", "pos_embed"),
    (r"embedding/(kernel|bias)", r"patch_embed.proj.\1"),
    (_BLOCK + r"LayerNorm_0/(scale|bias)", r"blocks.\1.norm1.\2"),
    (_BLOCK + r"LayerNorm_2/(scale|bias)", r"blocks.\1.norm2.\2"),
    (_BLOCK + r"MlpBlock_3/Dense_0/(kernel|bias)", r"blocks.\1.mlp.fc1.\2"),
    (_BLOCK + r"MlpBlock_3/Dense_1/(kernel|bias)", r"blocks.\1.mlp.fc2.\2"),
    (_ATTENTION + r"out/(kernel|bias)", r"blocks.\1.attn.proj.\2"),
    (_ATTENTION + r"(query|key|value)/(kernel|bias)", r"blocks.\1.attn.\2.\3"),
    (r"Transformer/encoder_norm/(scale|bias)", r"norm.\1"),
    (r"head/(kernel|bias)", r"head.\1"),
)


def read(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """Reads such a file; names of no known form stay as they are.

    ValueError, one line, where it is damaged or says more than it can hold.
    """
    return state(published.stored(path))


def state(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Flax arrays as a state dict of timm."""
    found = {}
    for name, array in arrays.items():
        new = _renamed(name)
        if new.endswith(".kernel"):
            array = _turned(new, array)
        elif re.search(r"attn\.(query|key|value)\.bias", new):
            array = array.reshape(-1)
        found[re.sub(r"\.(kernel|scale)$", ".weight", new)] = array
    for key in [key for key in found if key.endswith(".attn.query.weight")]:
        stem = key.removesuffix("query.weight")
        for kind in ("weight", "bias"):
            parts = [f"{stem}{part}.{kind}" for part in ("query", "key", "value")]
            if all(part in found for part in parts):
                found[f"{stem}qkv.{kind}"] = np.concatenate(
                    [found.pop(part) for part in parts]
                )
    return found


def _renamed(name: str) -> str:
    for pattern, template in _NAMES:
        if match := re.fullmatch(pattern, name):
            return match.expand(template)
    return name


def _turned(name: str, kernel: np.ndarray) -> np.ndarray:
    if kernel.ndim == 4:
        return kernel.transpose(3, 2, 0, 1)
    if kernel.ndim == 3:  # Features and heads: (width, heads, each), or the inverse.
        inverse = name.endswith("attn.proj.kernel")
        kernel = kernel.reshape(
            *((-1, kernel.shape[2]) if inverse else (len(kernel), -1))
        )
    return kernel.T
