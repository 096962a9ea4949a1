"""The files of the package: in a checkout, configs and launch are outside jbias."""

import pathlib

TOP = pathlib.Path(__file__).parents[1]
BESIDE = ("configs", "launch")
FOLDERS = ("jbias", *BESIDE)
PYTHON = sorted(path for name in FOLDERS for path in (TOP / name).rglob("*.py"))


def inside(path: pathlib.Path) -> pathlib.PurePath:
    """Return the path of a file inside the installed package."""
    path = path.relative_to(TOP)
    return path if path.parts[0] in BESIDE else path.relative_to("jbias")
