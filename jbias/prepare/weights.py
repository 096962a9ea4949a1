"""Converts published weights, after checking that they are these.

python -m jbias.prepare weights --net=vgg_adain --src=DIR --out=vgg_adain.npz
"""

from jbias.models import published, registry


def add(parser) -> None:
    """Adds the arguments of the subcommand."""
    parser.set_defaults(command=weights)
    parser.add_argument(
        "--net", required=True, help=f"one of {', '.join(registry.CONVERTERS)}"
    )
    parser.add_argument(
        "--src", required=True, help="the folder of the published files"
    )
    parser.add_argument("--out", required=True, help="the file to write, .npz")


def weights(net: str, src: str, out: str) -> str:
    """Converts the weights of one network; returns what it did.

    Raises ValueError, with where they are published, if a file is missing or another.
    """
    if net not in registry.CONVERTERS:
        raise ValueError(
            f"prepare weights: --net must be one of {', '.join(registry.CONVERTERS)}, got"
            f" {net!r}"
        )
    arrays = published.read_folder(registry.CONVERTERS[net], src)
    published.write_npz(out, arrays)
    count = sum(array.size for array in arrays.values())
    return f"{out}: {count} numbers of {', '.join(registry.CONVERTERS[net].files)}"
