"""What a run opens, before it trains or says that it is done."""

import shutil

import pytest

from jbias import train
from tests.training import test_supply


def test_done_is_said_of_the_same_images_alone_wherever_they_lie(tmp_path, capsys):
    first = tmp_path / "photos"
    config = test_supply.config(test_supply.draw(first))
    config.epochs = 1.0

    def asked(root):
        config.train.root = config.valid.root = str(root)
        return train.run(config, tmp_path / "run")

    assert asked(first)
    moved, other = tmp_path / "moved", tmp_path / "other"
    for root in (moved, other):
        shutil.copytree(first, root)
    assert asked(moved)
    assert "is done: nothing to do" in capsys.readouterr().err
    image = other / "valid" / "star" / "00.png"
    shutil.copy(other / "valid" / "heart" / "00.png", image)
    with pytest.raises(ValueError, match="is done, with other data.*valid"):
        asked(other)
    with pytest.raises((ValueError, OSError), match="gone"):
        asked(tmp_path / "gone")
    assert asked(first)
