"""ImageNet's images of Geirhos' 16 classes."""

import numpy as np
import pytest

from jbias import data
from jbias.data import class_maps, tables

DOGS = class_maps.geirhos16()["dog"]
COUNTS = {"n02690373": 3, "n01530575": 2, DOGS[0]: 5, DOGS[-1]: 4}


@pytest.fixture
def root(tmp_path, image):
    for wnid in tables.wnids():
        for i in range(COUNTS.get(wnid, wnid in ("n01440764", "n02123045"))):
            image(tmp_path / f"val/{wnid}/ILSVRC2012_val_{i:08}.JPEG")
    return str(tmp_path)


def load(root, **options):
    return data.load("imagenet16", "val", root=root, size=32, subset=True, **options)


def test_members_have_the_label_of_their_class_and_others_are_left_out(root):
    source = load(root)
    assert source.classes == tuple(class_maps.geirhos16()) and source.space == "entry16"
    class_names = [source.classes[i] for i in source.columns["label"]]
    files = [name.split("/")[-2] for name in source.files]
    members = class_maps.geirhos16()
    assert all(
        wnid in members[name] for wnid, name in zip(files, class_names, strict=True)
    )
    class_counts = {name: class_names.count(name) for name in set(class_names)}
    assert class_counts == {
        "airplane": 3,
        "bird": 2,
        "dog": 9,
        "cat": 1,
    }  # And no fish.
    assert source.note == "the members' 15 of 16 images"


def test_images_per_class_are_limited_over_all_members_of_the_class(root):
    source = load(root, each=3)
    counts = np.bincount(source.columns["label"], minlength=16)
    assert sorted(counts[counts > 0]) == [1, 2, 3, 3]
    dogs = {name.split("/")[-2] for name in source.files} & {*DOGS}
    assert len(dogs) == 2
    assert source.fingerprint != load(root).fingerprint
    assert source[0]["image"].shape == (32, 32, 3)
    with pytest.raises(ValueError, match="each must be a whole number >= 0"):
        load(root, each=-1)


def test_a_network_of_1000_classes_is_mapped_to_the_16(root):
    source = load(root)
    class_map = class_maps.match(tables.wnids(), "wnid", source.classes, source.space)
    assert class_map.matrix.shape == (1000, 16)


def test_a_set_without_any_member_is_refused(tmp_path, image):
    image(tmp_path / "val/n01440764/ILSVRC2012_val_00000001.JPEG")
    with pytest.raises(ValueError, match="some images must be of Geirhos' 16"):
        load(str(tmp_path))
