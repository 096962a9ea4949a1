"""Converts published weights, after checking that they are these.

python -m jbias.prepare weights --net=vgg_adain --src=DIR --out=vgg_adain.npz
"""

from jbias.models import published, registry
from jbias.prepare import dataset


def add(parser) -> None:
    """Adds the arguments of the subcommand."""
    parser.set_defaults(command=weights)
    add = parser.add_argument
    add("--net", required=True, help=f"one of {', '.join(registry.CONVERTERS)}")
    add("--src", required=True, help="the folder of the published files")
    add("--out", required=True, help="the file to write, .npz")


def weights(net: str, src: str, out: str) -> str:
    """Converts the weights of one network; returns what it did.

    Raises ValueError, with where they are published, if a file is missing or another.
    """
    dataset.require_one_of("prepare weights", "--net", net, registry.CONVERTERS)
    arrays = published.read_folder(registry.CONVERTERS[net], src)
    published.write_npz(out, arrays)
    count = sum(array.size for array in arrays.values())
    return f"{out}: {count} numbers of {', '.join(registry.CONVERTERS[net].files)}"
