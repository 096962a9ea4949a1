"""Options `keep`, `drop` and `portion`: select images of any set."""

import numpy as np
import pytest

from jbias import data
from jbias.data import config_sets, loader

COUNTS = {"photo/cat": 10, "photo/dog": 10, "photo/eel": 10}


@pytest.fixture
def root(tree):
    return tree(COUNTS)


def load(root, split="photo", **options):
    return data.load("folder", split, root=str(root), size=8, **options)


def write_list(tmp_path, mask_or_numbers, name="kept.npy"):
    path = tmp_path / name
    if name.endswith(".npy"):
        np.save(path, mask_or_numbers)
    else:
        path.write_text("\n".join(map(str, mask_or_numbers)) + "\n")
    return str(path)


MASK = np.random.default_rng(0).random(30) < 0.5


@pytest.mark.parametrize(
    ("mask_or_numbers", "name"),
    [
        (MASK, "mask.npy"),
        (np.flatnonzero(MASK), "numbers.npy"),
        (MASK.tolist(), "mask.txt"),
        (MASK.astype(int).tolist(), "digits.txt"),
        (np.flatnonzero(MASK)[::-1].tolist(), "numbers.txt"),
    ],
)
def test_masks_and_numbers_keep_the_same_images(root, tmp_path, mask_or_numbers, name):
    whole = load(root)
    source = load(root, keep=write_list(tmp_path, mask_or_numbers, name))
    assert source.files == tuple(np.array(whole.files)[MASK])
    np.testing.assert_array_equal(
        loader.decode_all(source, workers=1), loader.decode_all(whole, workers=1)[MASK]
    )
    assert source.classes == whole.classes
    assert source.fingerprint == load(root, keep=write_list(tmp_path, MASK)).fingerprint
    assert source.fingerprint != whole.fingerprint
    assert source.note == f"{MASK.sum()} of 30 images, by {name}"


def test_parts_of_the_kept_images_are_disjoint_and_complete(root, tmp_path):
    """Image numbers are those of the whole split, in every part of the split."""
    path = write_list(tmp_path, MASK)
    first = load(root, "photo[:60%]", keep=path)
    second = load(root, "photo[60%:]", keep=path)
    assert (len(first), len(second)) != (0, 0)
    assert sorted(first.files + second.files) == sorted(load(root, keep=path).files)


def test_arrays_are_selected_by_the_same_numbers(tmp_path):
    rng = np.random.default_rng(1)
    images = rng.integers(0, 256, (30, 8, 8, 3), np.uint8)
    labels = np.arange(30) % 3
    np.savez(tmp_path / "train.npz", images=images, labels=labels)
    options = dict(root=str(tmp_path), size=8, keep=write_list(tmp_path, MASK))
    source = data.load("npz", "train", **options)
    np.testing.assert_array_equal(source.images, images[MASK])
    halves = [data.load("npz", f"train[{p}]", **options) for p in (":50%", "50%:")]
    joined = np.concatenate([half.images for half in halves])
    assert {x.tobytes() for x in joined} == {x.tobytes() for x in images[MASK]}


def test_a_dropped_class_is_removed_and_labels_are_renumbered(root):
    whole, source = load(root), load(root, drop="dog")
    assert source.classes == ("cat", "eel")
    assert source.columns["label"].tolist() == [0] * 10 + [1] * 10
    assert {*whole.files} - {*source.files} == {f for f in whole.files if "dog" in f}
    assert source.note == "without dog" and source.fingerprint != whole.fingerprint
    other = load(root, drop="eel")
    assert other.fingerprint != source.fingerprint
    assert load(root, "photo[:50%]", drop="dog").classes == source.classes


def test_cues_of_a_dropped_class_are_dropped_too():
    whole = data.load("shapes", "cue_conflict", n=240, size=32)
    name = whole.classes[3]
    source = data.load("shapes", "cue_conflict", n=240, size=32, drop=name)
    is_kept = (whole.columns["label"] != 3) & (whole.columns["texture"] != 3)
    assert len(source) == is_kept.sum()
    for column in ("label", "texture"):
        names = np.array(source.classes)[source.columns[column]]
        all_names = np.array(whole.classes)[whole.columns[column]]
        np.testing.assert_array_equal(names, all_names[is_kept])


def test_keep_and_drop_combine(root, tmp_path):
    source = load(root, keep=write_list(tmp_path, np.arange(15)), drop="cat")
    assert source.columns["label"].tolist() == [0] * 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(drop="dgo"), "drop must name classes, got 'dgo'; did you mean 'dog'?"),
        (dict(drop="dog+eel"), "drop must leave two classes or more"),
        (dict(keep=[31]), "a mask of the 30 images or numbers from 0 to 29"),
        (dict(keep=[True] * 29), "a mask of the 30 images"),
        (dict(keep=[1, 1]), "keep must name an image once"),
        (dict(keep=[0.5]), "a mask of the 30 images"),
        (dict(keep=[0] * 30), "keep must leave an image"),
        (dict(keep="none.npy"), "No such file"),
        (dict(keep="words"), "keep must be .npy or text"),
    ],
)
def test_bad_options_are_refused(root, tmp_path, options, message):
    if isinstance(options.get("keep"), list):
        options = dict(keep=write_list(tmp_path, options["keep"]))
    if options.get("keep") == "words":
        options = dict(keep=write_list(tmp_path, ["first", "second"], "words.txt"))
    with pytest.raises(ValueError, match=r"^data\.test_bad.*/photo: ") as error:
        load(root, **options)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_configs_may_have_these_options(root):
    options = dict(data="folder", root=str(root), split="photo", drop="dog", batch=4)
    train_set = config_sets.train_set("config.train", options, 8)
    assert train_set.sources[0].classes == ("cat", "eel")


def test_portions_are_disjoint_complete_and_random():
    whole = data.load("shapes", "train", n=480, correlation=0.9)
    keys = {image.tobytes(): i for i, image in enumerate(whole.images)}

    def indices_of(portion):
        options = dict(n=480, correlation=0.9, portion=portion)
        images = data.load("shapes", "train", **options).images
        return [keys[image.tobytes()] for image in images]

    def count(indices):
        table = np.zeros((16, 16), int)
        label, texture = whole.columns["label"], whole.columns["attribute"]
        np.add.at(table, (label[indices], texture[indices]), 1)
        return table

    first, second = indices_of("[:70%]"), indices_of("[70%:]")
    assert sorted(first + second) == list(range(480))
    assert set(indices_of("[70%:85%]")) < set(second)
    assert first == sorted(first) and first != list(range(len(first)))
    # Shares hold for every class and texture, to whole images.
    first_counts, second_counts = count(first), count(second)
    total = first_counts + second_counts
    assert np.abs(first_counts - 0.7 * total).max() <= 1
    assert (second_counts[total > 1] > 0).all() and (first_counts[total > 0] > 0).all()


def test_a_portion_applies_after_other_options(root):
    whole = load(root, drop="dog")
    part = load(root, drop="dog", portion="[:50%]")
    assert len(part) == 10 and set(part.files) < set(whole.files)
    assert part.fingerprint not in (whole.fingerprint, load(root).fingerprint)
    assert "10 of 20 images, the portion [:50%]" in part.note
    assert part.fingerprint != load(root, drop="dog", portion="[50%:]").fingerprint


@pytest.mark.parametrize("text", ["80%", "[80%]", "[50%:50%]", "[:120%]"])
def test_other_portions_are_refused(root, text):
    with pytest.raises(ValueError, match="portion.*: .* must read|portion: must read"):
        load(root, portion=text)
