"""Option `skip`: leaves out the images that a list of damaged images names, and no others."""

import io
import json

import numpy as np
import pytest
from PIL import Image

from jbias import data, prepare
from jbias.data import config_sets, loader, set_options
from tests import cases, forms

COUNTS = {"photo/cat": 6, "photo/dog": 8}


@pytest.fixture
def root(tree):
    return tree(COUNTS)


@pytest.fixture
def listed(root, truncate):
    """Path of a list that names two damaged images."""
    truncate(root / "photo/cat/002.png")
    truncate(root / "photo/dog/005.png")
    source = data.load("folder", "photo", root=str(root), size=8)
    path = root / "damaged.json"
    entry = set_options.damaged_entry(source, {2: "cut", 11: "cut"})
    set_options.write_damaged(str(path), {"photo": entry})
    return str(path)


def load(root, split="photo", **options):
    return data.load("folder", split, root=str(root), size=8, **options)


def test_damaged_images_are_refused_unless_skipped(root, listed):
    with pytest.raises(ValueError, match="cat/002.png"):
        loader.decode_all(load(root), workers=1)
    source = load(root, skip=listed)
    assert len(loader.decode_all(source, workers=1)) == len(source) == 12
    assert {*load(root).files} - {*source.files} == {"cat/002.png", "dog/005.png"}
    np.testing.assert_array_equal(source.columns["label"], [0] * 5 + [1] * 7)
    assert source[11]["label"] == 1


def test_the_note_has_the_count_and_the_list(root, listed):
    undamaged, source = load(root), load(root, skip=listed)
    assert source.note.startswith(
        "2 damaged images of 14 left out, by the list damaged.json ("
    )
    assert source.fingerprint != undamaged.fingerprint
    assert config_sets.describe(source)["note"] == source.note
    assert load(root, skip=listed).fingerprint == source.fingerprint


def test_parts_of_a_split_do_not_change_with_skip(root, listed):
    for split in ("photo[:50%]", "photo[50%:]"):
        files = {*load(root, split).files} - {"cat/002.png", "dog/005.png"}
        assert {*load(root, split, skip=listed).files} == files


def test_a_config_s_entry_may_skip(root, listed):
    entry = dict(data="folder", split="photo", root=str(root), skip=listed, batch=4)
    (source,) = config_sets.train_set("config.train", entry, 8).sources
    assert len(source) == 12


def test_a_list_without_damaged_images_changes_nothing(root):
    path = root / "none.json"
    set_options.write_damaged(
        str(path), {"photo": set_options.damaged_entry(load(root), {})}
    )
    source = load(root, skip=str(path))
    assert (source.note, source.fingerprint) == ("", load(root).fingerprint)


def test_images_in_memory_are_never_damaged(root, listed, tmp_path):
    pixels = np.zeros((4, 8, 8, 3), np.uint8)
    np.savez(tmp_path / "photo.npz", images=pixels, labels=np.arange(4))
    with pytest.raises(ValueError, match="2 of 2 .*damaged.json' do not exist"):
        data.load("npz", "photo", root=str(tmp_path), size=8, skip=listed)


def change(damage_list, **entries):
    damage_list["splits"]["photo"].update(entries)
    return damage_list


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            lambda x: change(x, damaged={"eel/1.png": "cut"}),
            "1 of 1 in .*damaged.json' do not exist, first 'eel/1.png'",
        ),
        (
            lambda x: change(x, fingerprint="0" * 64),
            "0{12} for .* check them again",
        ),
        (lambda x: x | {"made_by": "me"}, "wrote, got ValueError: made by 'me'"),
        (lambda x: x | {"splits": {"sketch": x["splits"]["photo"]}}, "'photo'"),
        (lambda x: [x], "wrote, got TypeError"),
        (lambda x: {"a": 1}, "wrote, got KeyError"),
    ],
)
def test_other_lists_are_refused(root, listed, edit, message):
    with open(listed) as file:
        damage_list = edit(json.load(file))
    with open(listed, "w") as file:
        json.dump(damage_list, file)
    with pytest.raises(ValueError, match=message) as refused:
        load(root, skip=listed)
    assert "\n" not in str(refused.value)


def test_a_list_that_is_not_there_is_refused(root):
    with pytest.raises(ValueError, match="none.json: skip must be a list that"):
        load(root, skip="none.json")


def test_skip_combines_with_options_that_select_images(tmp_path, image):
    for i, condition in enumerate(("cr", "bw", "cr", "bw")):
        name = f"000{i}_cl_dnn_{condition}_oven_40_x.png"
        image(tmp_path / f"colour/dnn/session-1/{name}")
    options = dict(root=str(tmp_path), size=8)
    undamaged = data.load("model_vs_human", "colour", **options)
    path = str(tmp_path / "damaged.json")
    set_options.write_damaged(
        path, {"colour": set_options.damaged_entry(undamaged, {0: "cut", 1: "cut"})}
    )
    grey = data.load("model_vs_human", "colour", condition="bw", skip=path, **options)
    assert [name[-10:] for name in grey.files] == ["oven_40_x.png"[-10:]]
    assert "1 damaged images of 2 left out" in grey.note


def test_skipped_images_are_left_out_of_all_columns(tree):
    root = tree({"train/cat/snow": 2, "train/cat/grass": 2, "train/dog/snow": 2})
    options = dict(root=str(root), size=8)
    undamaged = data.load("attributed", "train", **options)
    path = str(root / "damaged.json")
    set_options.write_damaged(
        path, {"train": set_options.damaged_entry(undamaged, {0: "cut"})}
    )
    source = data.load("attributed", "train", skip=path, **options)
    np.testing.assert_array_equal(
        source.columns["attribute"], undamaged.columns["attribute"][1:]
    )
    assert source.values == undamaged.values


def shade(i, keep=None):
    """Return a PNG file of one grey level, or its first `keep` bytes."""
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8), (16 * i,) * 3).save(buffer, "PNG")
    return buffer.getvalue()[:keep]


@cases.each(
    ("form", "names"), [("tar", 9), ("parquet", 3), ("records", 3), ("records", 15)]
)
@cases.each("bad", [(1,), (1, 10)])
def test_damaged_images_are_named_correctly_if_names_repeat(form, names, bad, tmp_path):
    """WebDataset's keys repeat in every shard, and other names may repeat freely."""
    rows = [
        (f"{i % names:05}.png", shade(i, 40 if i in bad else None), i // 5)
        for i in range(15)
    ]
    root = str(forms.written(form, rows, tmp_path))
    path = str(tmp_path / "damaged.json")
    check = ["check", f"--src={root}", "--splits=train", f"--list={path}"]
    assert prepare.main(check) == 1
    options = dict(root=root, size=8, skip=path)
    source = data.load("folder", "train", **options)
    assert f"{len(bad)} damaged images of 15 left out" in source.note
    good = sorted({*range(15)} - {*bad})
    image_numbers = loader.decode_all(source, workers=2)[:, 0, 0, 0] // 16
    assert sorted(image_numbers) == good
    np.testing.assert_array_equal(source.columns["label"], image_numbers // 5)
    halves = [
        loader.decode_all(data.load("folder", split, **options), workers=1)
        for split in ("train[:50%]", "train[50%:]")
    ]
    assert sorted(np.concatenate(halves)[:, 0, 0, 0] // 16) == good


@cases.each("form", ["tar", "parquet", "records"])
def test_a_list_applies_to_a_copy_of_the_set(form, tmp_path):
    rows = [(f"{i}.png", shade(i, None if i else 40), i // 5) for i in range(15)]
    root = forms.written(form, rows, tmp_path)
    path = str(tmp_path / "damaged.json")
    prepare.main(["check", f"--src={root}", "--splits=train", f"--list={path}"])
    moved = root.rename(tmp_path / "elsewhere")
    source = data.load("folder", "train", root=str(moved), size=8, skip=path)
    assert "0.png" not in source.files and len(source) == 14
