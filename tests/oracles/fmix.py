"""Write fmix.npz: outputs of the released FMix code for stored random draws.

    git clone https://github.com/ecs-vlc/FMix && git -C FMix checkout e5991dc
    python tests/oracles/fmix.py FMix

Needs numpy and scipy. The random generators that the code calls are replaced by
draws that are stored together with the outputs. No part of the code is stored.
"""

import importlib.util
import pathlib
import sys

import numpy as np

# Height, width, decay, lam, whether the count is rounded up, max_soft.
CASES = (
    (32, 32, 3.0, 0.25, False, 0.0),
    (32, 32, 3.0, 0.61, True, 0.0),
    (24, 40, 3.0, 0.503, True, 0.0),
    (40, 24, 3.0, 0.503, False, 0.0),
    (16, 64, 3.0, 0.8, True, 0.0),
    (33, 33, 3.0, 0.37, False, 0.0),
    (28, 31, 2.0, 0.9, True, 0.0),
    (64, 64, 3.0, 0.12, True, 0.0),
    (64, 64, 3.0, 0.5, False, 0.1),
    (32, 32, 3.0, 0.07, True, 0.3),
    (32, 48, 3.0, 0.93, False, 0.3),
)


def main(checkout: str) -> None:
    spec = importlib.util.spec_from_file_location(
        "fmix", pathlib.Path(checkout) / "fmix.py"
    )
    fmix = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fmix)
    rng, stored = np.random.default_rng(0), {"cases": np.array(CASES)}
    for i, (height, width, decay, lam, up, max_soft) in enumerate(CASES):
        drawn = []

        def randn(*shape, drawn=drawn):
            drawn.append(rng.standard_normal(shape).astype(np.float32))
            return drawn[-1].astype(np.float64)

        fmix.np.random.randn = randn
        fmix.random.random = lambda up=up: 1.0 if up else 0.0
        grey = fmix.make_low_freq_image(decay, (height, width))
        stored[f"{i}/grey"] = grey[0].astype(np.float32)
        lam = float(np.float32(lam))
        mask = fmix.binarise_mask(grey, lam, (height, width), max_soft)
        stored[f"{i}/mask"] = mask[0].astype(np.float32)
        # Of all the rows drawn, the code uses two.
        stored[f"{i}/normal"] = drawn[0][0, :2]
    path = pathlib.Path(__file__).with_suffix(".npz")
    np.savez_compressed(path, **stored)


if __name__ == "__main__":
    main(*sys.argv[1:])
