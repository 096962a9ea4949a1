"""PACS, Geirhos' stimuli and Tiny ImageNet: small copies of the layouts, real sets."""

import numpy as np
import pytest
from PIL import Image

from jbias import data
from jbias.data import class_maps, loader, tables
from jbias.data.sets import geirhos
from tests import cases


@pytest.mark.slow
@cases.each(("style", "count"), data.DATASETS["pacs"].images.items())
def test_pacs_counts(unpacked, style, count):
    root = str(unpacked("pacs64") / "pacs64")
    source = data.load("pacs", style, root=root, size=64)
    assert (len(source), source.note) == (count, "")
    assert sum(data.DATASETS["pacs"].images.values()) == 9991
    assert set(source.columns["label"]) == set(range(7))
    train, valid = (
        data.load("pacs", f"{style}{part}", root=root, size=64)
        for part in ("[:90%]", "[90%:]")
    )
    assert not set(train.files) & set(valid.files)
    assert len(train) + len(valid) == count
    assert abs(len(valid) - count / 10) <= 3.5  # Half an image a class.
    assert train.fingerprint != valid.fingerprint


def test_pacs_pixels_equal_pillows(unpacked):
    root = unpacked("pacs64") / "pacs64"
    source = data.load("pacs", "photo", root=str(root), size=64)
    assert source.preprocessing.endswith("short side 64, centre crop 64")
    images = loader.decode_all(source, workers=2)
    for i in range(0, len(source), 157):
        with Image.open(root / "photo" / source.files[i]) as image_file:
            np.testing.assert_array_equal(
                images[i], np.asarray(image_file.convert("RGB"))
            )


def test_incomplete_pacs_is_used_with_a_note(tree):
    root = tree({f"photo/{name}": 2 for name in tables.class_names("pacs")})
    source = data.load("pacs", "photo[:50%]", root=str(root), size=8)
    assert source.note == "14 images on disk, the published set has 1,670"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("giraffe", None), "1 are missing, first 'giraffe'"),
        (("giraffe", "girafe"), "got 'girafe'; did you mean 'giraffe'?"),
    ],
)
def test_pacs_with_other_classes_is_refused(tree, change, message):
    old, new = change
    names = [new if name == old else name for name in tables.class_names("pacs")]
    root = tree({f"photo/{name}": 1 for name in names if name})
    with pytest.raises(ValueError) as error:
        data.load("pacs", "photo", root=str(root))
    assert message in str(error.value)


@cases.each(("split", "count"), data.DATASETS["geirhos"].images.items())
def test_geirhos_counts(unpacked, split, count):
    root = str(unpacked("geirhos64") / "geirhos64")
    source = data.load("geirhos", split, root=root, size=64)
    assert (len(source), source.note) == (count, "")
    assert source.classes == tuple(class_maps.geirhos16())
    assert source.space == "entry16"
    assert set(np.bincount(source.columns["label"])) == {count // 16}
    assert ("texture" in source.columns) == (split == "cue-conflict")
    assert ("shape_bias" in source.measures) == (split == "cue-conflict")


def test_cue_conflict_textures(unpacked):
    root = str(unpacked("geirhos64") / "geirhos64")
    source = data.load("geirhos", "cue-conflict", root=root, size=64)
    shape, texture = source.columns["label"], source.columns["texture"]
    assert (shape == texture).sum() == 80
    # Each shape class has 75 conflict images.
    assert set(np.bincount(shape[shape != texture])) == {75}
    # Ten pictures of each shape, three of each texture.
    for exemplar, cue, count in (
        (source.columns["shape_exemplar"], shape, 160),
        (source.columns["texture_exemplar"], texture, 48),
    ):
        assert len(set(exemplar)) == count
        assert len(set(zip(exemplar, cue))) == count
    for i in range(0, 1280, 37):
        stem = source.files[i].split("/")[1].removesuffix(".png")
        assert stem.split("-")[-1].rstrip("0123456789") == source.classes[texture[i]]
        element = source[i]
        assert element["texture"] == texture[i]
        assert element["label"] == shape[i]
        assert element["image"].shape == (64, 64, 3)


def test_stimuli_at_224_are_used_unchanged(unpacked):
    root = unpacked("geirhos-stimuli", "geirhos/cue-conflict/cat/") / "geirhos"
    for name in class_maps.geirhos16():  # The other classes are not needed here.
        if name != "cat":
            (root / "cue-conflict" / name).mkdir(exist_ok=True)
            link = root / "cue-conflict" / name / f"{name}1-cat2.png"
            if not link.exists():
                link.symlink_to(next((root / "cue-conflict/cat").iterdir()))
    native = data.load("geirhos", "cue-conflict", root=str(root))
    biasbed = data.load("geirhos", "cue-conflict", root=str(root), resize=256)
    cat = native.files.index(next(f for f in native.files if f.startswith("cat/")))
    with Image.open(root / "cue-conflict" / native.files[cat]) as image_file:
        original = image_file.convert("RGB")
    np.testing.assert_array_equal(native[cat]["image"], np.asarray(original))
    enlarged = np.asarray(original.resize((256, 256), Image.BILINEAR))
    np.testing.assert_array_equal(biasbed[cat]["image"], enlarged[16:240, 16:240])
    assert native.note == f"{len(native)} images on disk, the published set has 1,280"


def test_authors_folder_names_are_known(tree):
    root = tree({f"filled-silhouettes/{name}": 1 for name in class_maps.geirhos16()})
    assert len(data.load("geirhos", "silhouette", root=str(root))) == 16


def test_texture_names():
    classes = tuple(class_maps.geirhos16())
    names = ["cat/cat1-dog12.png", "cat/0003_cc_dnn_0_cat_00_cat7-bear1.png"]
    ids = geirhos.texture_labels("x", names, classes)
    assert [classes[i] for i in ids] == ["dog", "bear"]
    for bad, hint in (("cat/cat1-dgo2.png", "'dog'"), ("cat/cat3.png", "'cat'")):
        with pytest.raises(ValueError) as error:
            geirhos.texture_labels("x", [*names, bad], classes)
        assert f"1 are without a known texture, first {bad!r}" in str(error.value)
        assert hint in str(error.value)


WNIDS = ("n02123045", "n01443537", "n02690373")


@pytest.fixture
def tiny(tree):
    root = tree({f"train/{wnid}/images": 4 for wnid in WNIDS} | {"val/images": 6})
    (root / "wnids.txt").write_text("\n".join(WNIDS) + "\n")
    for wnid in WNIDS:
        (root / "train" / wnid / f"{wnid}_boxes.txt").touch()
    rows = [f"{i:03}.png\t{WNIDS[i % 3]}\t0\t0\t9\t9\n" for i in range(6)]
    (root / "val/val_annotations.txt").write_text("".join(rows))
    return root


def test_tiny_imagenets_layout_is_read(tiny):
    train = data.load("tiny_imagenet", "train[:75%]", root=str(tiny), size=8)
    assert train.classes == tuple(sorted(WNIDS))
    assert np.bincount(train.columns["label"]).tolist() == [3, 3, 3]
    valid = data.load("tiny_imagenet", "val", root=str(tiny), size=8)
    for name, label in zip(valid.files, valid.columns["label"], strict=True):
        number = int(name.removeprefix("images/").removesuffix(".png"))
        assert valid.classes[label] == WNIDS[number % 3]
    assert valid.note == "6 images on disk, the published set has 10,000"
    assert valid[0]["image"].shape == (8, 8, 3)


def test_bad_tiny_imagenet_folders_are_refused(tiny):
    def message(split):
        with pytest.raises(ValueError) as error:
            data.load("tiny_imagenet", split, root=str(tiny))
        return str(error.value)

    table = tiny / "val/val_annotations.txt"
    rows = table.read_text().splitlines(keepends=True)
    table.write_text("".join(rows[1:]))
    assert "have a line in val_annotations.txt, 1 do not" in message("val")
    table.write_text("".join([*rows, f"006.png\t{WNIDS[0]}\n"]))
    assert "exist in val/images, 1 do not, first 'images/006.png'" in message("val")
    table.write_text("".join([*rows[:2], "002.png n02123045\n", *rows[3:]]))
    assert "val_annotations.txt:3: a line must read" in message("val")
    table.unlink()
    assert "val_annotations.txt' is missing" in message("val")
    (tiny / "train" / WNIDS[0]).rename(tiny / "train/n02123046")
    assert "got 'n02123046'; did you mean 'n02123045'?" in message("train")


@pytest.mark.slow
def test_tiny_subset(unpacked):
    # Of 200 classes 26 are whole (500 and 50 images), 174 have 80 and 25.
    root = str(unpacked("tiny-imagenet-subset") / "tiny-imagenet-200")
    train = data.load("tiny_imagenet", "train", root=root)
    valid = data.load("tiny_imagenet", "val", root=root)
    for source, per_full_class, per_partial_class in (
        (train, 500, 80),
        (valid, 50, 25),
    ):
        per_class, num_classes = np.unique(
            np.bincount(source.columns["label"]), return_counts=True
        )
        assert dict(zip(per_class, num_classes, strict=True)) == {
            per_partial_class: 174,
            per_full_class: 26,
        }
        assert "the published set has" in source.note
    assert train.classes == valid.classes
    mapped = class_maps.match(
        train.classes, "wnid", tuple(class_maps.geirhos16()), "entry16"
    )
    is_full = np.bincount(train.columns["label"]) == 500
    np.testing.assert_array_equal(is_full, mapped.matrix.any(1))
    unanswered = [
        n for n, i in zip(mapped.classes, mapped.relabel, strict=True) if i < 0
    ]
    assert unanswered == ["airplane", "bicycle", "clock", "knife", "oven"]
    assert valid[0]["image"].shape == (64, 64, 3)
