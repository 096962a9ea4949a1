"""The options `keep`, `drop` and `portion`: some of any set, and no others."""

import numpy as np
import pytest

from jbias import data
from jbias.data import loader, splits

COUNTS = {"photo/cat": 10, "photo/dog": 10, "photo/eel": 10}


@pytest.fixture
def root(tree):
    return tree(COUNTS)


def load(root, split="photo", **options):
    return data.load("folder", split, root=str(root), size=8, **options)


def listed(tmp_path, told, name="kept.npy"):
    path = tmp_path / name
    if name.endswith(".npy"):
        np.save(path, told)
    else:
        path.write_text("\n".join(map(str, told)) + "\n")
    return str(path)


MASK = np.random.default_rng(0).random(30) < 0.5


@pytest.mark.parametrize(
    ("told", "name"),
    [
        (MASK, "mask.npy"),
        (np.flatnonzero(MASK), "numbers.npy"),
        (MASK.tolist(), "mask.txt"),
        (MASK.astype(int).tolist(), "digits.txt"),
        (np.flatnonzero(MASK)[::-1].tolist(), "numbers.txt"),
    ],
)
def test_masks_and_numbers_keep_the_same_images(root, tmp_path, told, name):
    whole = load(root)
    source = load(root, keep=listed(tmp_path, told, name))
    assert source.files == tuple(np.array(whole.files)[MASK])
    np.testing.assert_array_equal(
        loader.decode_all(source, workers=1), loader.decode_all(whole, workers=1)[MASK]
    )
    assert source.classes == whole.classes
    assert source.fingerprint == load(root, keep=listed(tmp_path, MASK)).fingerprint
    assert source.fingerprint != whole.fingerprint
    assert source.note == f"{MASK.sum()} of 30 images, by {name}"


def test_parts_of_what_is_kept_are_disjoint_and_whole(root, tmp_path):
    """The numbers are those of the whole split, whatever part of it is taken."""
    path = listed(tmp_path, MASK)
    parts = [load(root, f"photo[{part}]", keep=path) for part in (":60%", "60%:")]
    assert [len(one) for one in parts] != [0, 0]
    assert sorted(parts[0].files + parts[1].files) == sorted(
        load(root, keep=path).files
    )


def test_an_array_keeps_by_the_same_numbers(tmp_path):
    rng = np.random.default_rng(1)
    images = rng.integers(0, 256, (30, 8, 8, 3), np.uint8)
    labels = np.arange(30) % 3
    np.savez(tmp_path / "train.npz", images=images, labels=labels)
    options = dict(root=str(tmp_path), size=8, keep=listed(tmp_path, MASK))
    kept = data.load("npz", "train", **options)
    np.testing.assert_array_equal(kept.images, images[MASK])
    parts = [data.load("npz", f"train[{p}]", **options) for p in (":50%", "50%:")]
    found = np.concatenate([one.images for one in parts])
    assert {x.tobytes() for x in found} == {x.tobytes() for x in images[MASK]}


def test_a_dropped_class_is_gone_and_the_others_numbered_anew(root):
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
    both = [whole.columns[c] for c in ("label", "texture")]
    assert len(source) == (np.array(both) != 3).all(0).sum()
    for column in ("label", "texture"):
        names = np.array(source.classes)[source.columns[column]]
        kept = np.array(whole.classes)[whole.columns[column]]
        here = (np.array(both) != 3).all(0)
        np.testing.assert_array_equal(names, kept[here])


def test_numbers_and_classes_go_together(root, tmp_path):
    source = load(root, keep=listed(tmp_path, np.arange(15)), drop="cat")
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
def test_what_does_not_fit_is_refused(root, tmp_path, options, message):
    if isinstance(options.get("keep"), list):
        options = dict(keep=listed(tmp_path, options["keep"]))
    if options.get("keep") == "words":
        options = dict(keep=listed(tmp_path, ["first", "second"], "words.txt"))
    with pytest.raises(ValueError, match=r"^data\.test_what.*/photo: ") as error:
        load(root, **options)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_configs_may_name_them(root):
    options = dict(data="folder", root=str(root), split="photo", drop="dog", batch=4)
    opened = splits.train_set("config.train", options, 8)
    assert opened.sources[0].classes == ("cat", "eel")


def test_portions_are_disjoint_and_whole_and_random():
    whole = data.load("shapes", "train", n=480, correlation=0.9)
    keys = {image.tobytes(): i for i, image in enumerate(whole.images)}
    parts = [
        [
            keys[image.tobytes()]
            for image in data.load(
                "shapes", "train", n=480, correlation=0.9, portion=text
            ).images
        ]
        for text in ("[:70%]", "[70%:]", "[70%:85%]")
    ]
    assert sorted(parts[0] + parts[1]) == list(range(480))
    assert set(parts[2]) < set(parts[1])
    assert parts[0] == sorted(parts[0]) and parts[0] != list(range(len(parts[0])))
    # Of every class and texture, as near as whole images are.
    table = np.zeros((3, 16, 16), int)
    for of, part in zip(table, parts):
        np.add.at(
            of, (whole.columns["label"][part], whole.columns["attribute"][part]), 1
        )
    total = table[0] + table[1]
    assert np.abs(table[0] - 0.7 * total).max() <= 1
    assert (table[1][total > 1] > 0).all() and (table[0][total > 0] > 0).all()


def test_a_portion_is_of_what_other_options_leave(root):
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
