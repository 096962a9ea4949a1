"""ImageNet-A and ImageNet-R as folders of 200 classes."""

import pytest

from jbias import data
from jbias.data import tables


@pytest.mark.parametrize(("which", "published"), [("a", "7,500"), ("r", "30,000")])
def test_choices_are_among_the_200_classes(tree, which, published):
    classes = tables.subset(f"imagenet_{which}")
    root = tree({f"imagenet-{which}/{wnid}": 1 for wnid in classes})
    name = f"imagenet_{which}"
    source = data.load(name, f"imagenet-{which}", root=str(root), size=8)
    assert source.classes == classes
    assert source.restrict
    assert source.space == "wnid"
    assert source.name == f"imagenet_{which}/imagenet-{which}"
    assert source.note == f"200 images on disk, the published set has {published}"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda ids: ids[1:], "all 200 class folders must exist, 1 are missing"),
        (lambda ids: (*ids, "n99999999"), "must be the 200 published, got 'n99999999'"),
    ],
)
def test_other_folders_are_refused(tree, change, message):
    ids = change(tables.subset("imagenet_a"))
    root = tree({f"imagenet-a/{wnid}": 1 for wnid in ids})
    with pytest.raises(ValueError, match=message):
        data.load("imagenet_a", "imagenet-a", root=str(root), size=8)
