"""Write weight files in the two formats of PyTorch 2.13.0, and their arrays.

    python tests/oracles/torch_files.py

torch_zip.pth and torch_stream.pth hold the arrays of torch_files.npz. adain_vgg.pth (a
stream, as published) and adain_decoder.pth (a zip) have the names and shapes of AdaIN's
published files; their tensors overlap in one small storage, see torch_made.py.
"""

import collections
import pathlib

import numpy as np
import torch
import torch_made as made

FOLDER = pathlib.Path(__file__).parent


def mixed() -> collections.OrderedDict:
    """Everything that a state dict may hold, and views of one storage."""
    rng = np.random.default_rng(0)
    base = torch.from_numpy(rng.standard_normal((4, 6)).astype(np.float32))
    return collections.OrderedDict(
        float=base,
        turned=base.T,
        part=base[1:, 2::2],
        scalar=torch.tensor(3.5),
        empty=torch.zeros(0, 3),
        double=torch.from_numpy(rng.standard_normal(3)),
        half=torch.from_numpy(rng.standard_normal(5).astype(np.float16)),
        long=torch.arange(-2, 3),
        byte=torch.arange(4, dtype=torch.uint8),
        bool=torch.tensor([True, False]),
        parameter=torch.nn.Parameter(base[0].clone()),
        steps=17,
    )


def overlapping(net: str) -> dict[str, torch.Tensor]:
    storage = torch.from_numpy(made.storage())
    return {
        name: torch.as_strided(storage, shape, made.strides(shape), made.offset(name))
        for name, shape in made.shapes(net).items()
    }


def main():
    state = mixed()
    torch.save(state, FOLDER / "torch_zip.pth")
    old = {"_use_new_zipfile_serialization": False}
    torch.save(state, FOLDER / "torch_stream.pth", **old)
    arrays = {k: v.detach().numpy() for k, v in state.items() if k != "steps"}
    np.savez_compressed(FOLDER / "torch_files.npz", **arrays)
    torch.save(overlapping("vgg"), FOLDER / "adain_vgg.pth", **old)
    torch.save(overlapping("decoder"), FOLDER / "adain_decoder.pth")


if __name__ == "__main__":
    main()
