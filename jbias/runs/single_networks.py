"""Folders of models.save_run, which have one network, such as a soup, and no records."""

import pathlib


def is_single_network(path: pathlib.Path) -> bool:
    """Return True if models.save_run wrote the folder, False for the workdir of a training."""
    is_trained = (path / "provenance.json").exists()
    names = ("config.json", "checkpoints")
    return not is_trained and all((path / name).exists() for name in names)
