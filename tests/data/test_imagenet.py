"""ImageNet-1k and related sets: 1000 classes in one order, independent of folder names."""

import json
import shutil
import tarfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from jbias import data
from jbias.data import base, corruptions, tables
from jbias.data.sets import imagenet

WNIDS = tables.wnids()


@pytest.fixture(scope="module")
def pixel(tmp_path_factory):
    """File with an image of one pixel: links to it make a thousand classes quickly."""
    path = tmp_path_factory.mktemp("pixel") / "pixel.jpeg"
    Image.new("RGB", (1, 1)).save(path)
    return path


@pytest.fixture
def classes(tmp_path, pixel):
    """Function classes("val", names) that makes a split with an image per folder of these
    names.
    """

    def make(split, names, image="{}.jpeg"):
        for name in names:
            folder = tmp_path / split / name
            folder.mkdir(parents=True)
            (folder / image.format(name)).symlink_to(pixel)
        return str(tmp_path)

    return make


def test_folders_by_wnid(classes):
    root = classes("val", WNIDS)
    source = data.load("imagenet", "val", root=root, size=8)
    assert source.classes == WNIDS
    assert source.space == "wnid"
    assert source.note == "1,000 images on disk, the published set has 50,000"
    assert source.files[7] == f"{WNIDS[7]}/{WNIDS[7]}.jpeg"
    np.testing.assert_array_equal(source.columns["label"], np.arange(1000))


@pytest.mark.parametrize("form", ["{}", "{:03}"])
def test_numbers_are_classes_in_their_own_order_and_not_as_they_sort(classes, form):
    names = [form.format(i) for i in range(1000)]
    root = classes("imagenetv2-matched-frequency-format-val", names)
    source = data.load("imagenet_v2", "matched-frequency", root=root, size=8)
    assert source.classes == WNIDS
    for name, label in zip(source.files, source.columns["label"], strict=True):
        assert int(name.partition("/")[0]) == label
    np.testing.assert_array_equal(source.columns["label"], np.arange(1000))
    assert source.note == "1,000 images on disk, the published set has 10,000"


@pytest.mark.parametrize("split", ["matched-frequency", "threshold-0.7", "top-images"])
def test_every_variant_of_imagenet_v2_is_recognised_as_unpacked(classes, split):
    folder = f"imagenetv2-{split.replace('threshold-', 'threshold')}-format-val"
    root = classes(folder, [str(i) for i in range(1000)])
    half = data.load("imagenet_v2", f"{split}[:50%]", root=root, size=8)
    assert half.classes == WNIDS
    assert half.name == f"imagenet_v2/{split}[:50%]"


def test_the_option_subset_accepts_some_classes(classes):
    root = classes("train", WNIDS[5:50:3])
    with pytest.raises(
        ValueError, match="985 are missing, first 'n01440764'.*subset=.*`prepare check`"
    ):
        data.load("imagenet", "train", root=root)
    source = data.load("imagenet", "train", root=root, subset=True, size=8)
    assert source.classes == WNIDS[5:50:3]
    np.testing.assert_array_equal(source.columns["label"], np.arange(15))


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        ((*WNIDS[1:], "n99999999"), {}, "1 of 1,000 are not, first 'n99999999'; "),
        (("cat", *WNIDS[1:]), {}, "first 'cat'; name classes by WordNet ids"),
        ([str(i) for i in range(1, 1001)], {}, "0 to 999, each once, got 1,000 from 1"),
        (["1", "01"], {}, "0 to 999, each once, got 2 from 1 to 1"),
        ([str(i) for i in range(100)], {"subset": True}, "only if all are there"),
    ],
)
def test_other_classes_are_refused(classes, names, options, message):
    root = classes("val", names)
    with pytest.raises(ValueError, match=message) as refused:
        data.load("imagenet", "val", root=root, size=8, **options)
    assert "\n" not in str(refused.value)


def parquet(root, labels, content, names=None):
    """Write a shard as Hugging Face does, with class names in the metadata."""
    table = pa.table({"image": [content] * len(labels), "label": pa.array(labels)})
    if names:
        feature = {"label": {"names": list(names), "_type": "ClassLabel"}}
        info = json.dumps({"info": {"features": feature}})
        table = table.replace_schema_metadata({"huggingface": info})
    pq.write_table(table, root / "validation-00000-of-00001.parquet")


SPOKEN = ["tench, Tinca tinca", *map(str, range(998)), "toilet tissue, bathroom tissue"]


@pytest.mark.parametrize("names", [None, SPOKEN])
def test_whole_numbers_of_shards_are_in_the_order_of_wordnet(tmp_path, pixel, names):
    order = np.random.default_rng(0).permutation(1000)
    parquet(tmp_path, order, pixel.read_bytes(), names)
    source = data.load("imagenet", "val", root=str(tmp_path), size=8)
    assert source.classes == WNIDS
    np.testing.assert_array_equal(source.columns["label"], np.arange(1000))


def test_archives_of_numbered_folders(tmp_path, pixel):
    with tarfile.open(tmp_path / "top-images.tar", "w") as archive:
        for i in range(1000):
            archive.add(pixel, f"imagenetv2-top-images-format-val/{i}/{i}.jpeg")
    source = data.load("imagenet_v2", "top-images", root=str(tmp_path), size=8)
    assert source.classes == WNIDS
    stems = [int(name.rpartition("/")[2].partition(".")[0]) for name in source.files]
    np.testing.assert_array_equal(source.columns["label"], stems)
    assert source[10]["label"] == 10


def test_labels_of_some_classes_need_their_names(tmp_path, pixel):
    parquet(tmp_path, [1, 0, 1], pixel.read_bytes())
    options = dict(root=str(tmp_path), size=8, subset=True)
    with pytest.raises(ValueError, match="classes=<file>, a WordNet id a line"):
        data.load("imagenet", "val", **options)
    names = tmp_path / "names.txt"
    names.write_text(f"{WNIDS[30]}\n{WNIDS[20]}\n")
    source = data.load("imagenet", "val", classes=str(names), **options)
    assert source.classes == (WNIDS[20], WNIDS[30])
    assert source.columns["label"].tolist() == [0, 0, 1]


@pytest.fixture
def flat(tmp_path, pixel):
    """Folder with validation images 1 to 4 as the challenge packed them."""
    (tmp_path / "val").mkdir()
    for i in range(1, 5):
        (tmp_path / f"val/ILSVRC2012_val_{i:08}.JPEG").symlink_to(pixel)
    return tmp_path


LINES = {
    "wnids": [WNIDS[(i * 7) % 1000] for i in range(50_000)],
    "names": [
        f"ILSVRC2012_val_{i + 1:08}.JPEG {(i * 7) % 1000}" for i in range(50_000)
    ],
    "kaggle": [
        "ImageId,PredictionString",
        *(
            f"ILSVRC2012_val_{i:08},{WNIDS[i * 7 - 7]} 85 1 499 272 {WNIDS[0]} 1 2 3 4"
            for i in (4, 2, 3, 1)
        ),
    ],
}


@pytest.mark.parametrize("lines", LINES)
def test_images_in_one_folder_have_labels_in_a_file(flat, lines):
    path = flat / "labels.txt"
    path.write_text("\n".join(LINES[lines]))
    options = dict(root=str(flat), labels=str(path), size=8)
    source = data.load("imagenet", "val", subset=True, **options)
    assert source.classes == WNIDS[:22:7]
    assert source.columns["label"].tolist() == [0, 1, 2, 3]
    assert source.files[3] == "val/ILSVRC2012_val_00000004.JPEG"
    assert source[3]["image"].shape == (8, 8, 3)
    message = "all 1,000 classes must be there, 996 are missing, first .*subset=True"
    with pytest.raises(ValueError, match=message) as refused:
        data.load("imagenet", "val", **options)
    assert "\n" not in str(refused.value)


def test_two_labels_of_one_image_are_refused(flat):
    path = flat / "labels.txt"
    name = "ILSVRC2012_val_00000002"
    path.write_text(f"{name} 7\n{name} 7\n{name} 8\n")
    with pytest.raises(ValueError, match=f"line 3 must agree with the other of {name}"):
        imagenet.read_labels(str(path))


def test_images_of_all_classes_in_one_folder(tmp_path, pixel):
    """Labels are numbered as without `subset`, and all classes are declared."""
    (tmp_path / "val").mkdir()
    order = np.random.default_rng(0).permutation(1000)
    for i in range(1, 1001):
        (tmp_path / f"val/ILSVRC2012_val_{i:08}.JPEG").symlink_to(pixel)
    path = tmp_path / "labels.txt"
    path.write_text(
        "\n".join(f"ILSVRC2012_val_{i:08} {k}" for i, k in enumerate(order, 1))
    )
    options = dict(root=str(tmp_path), labels=str(path), size=8)
    for subset in (False, True):
        source = data.load("imagenet", "val", subset=subset, **options)
        assert source.classes == WNIDS
        np.testing.assert_array_equal(source.columns["label"], np.arange(1000))
        numbers = [int(name[-13:-5]) for name in source.files]
        np.testing.assert_array_equal(order[np.array(numbers) - 1], np.arange(1000))


def test_class_folders_take_precedence_over_images_in_one_folder(classes, flat):
    (flat / "val").rename(flat / "validation")
    root = classes("val", WNIDS[:3])
    assert len(data.load("imagenet", "val", root=root, subset=True, size=8)) == 3


def test_one_folder_may_have_another_name_and_ignored_files(flat):
    path = flat / "labels.txt"
    path.write_text("\n".join(LINES["kaggle"]))
    options = dict(root=str(flat), labels=str(path), subset=True, size=8)
    original = data.load("imagenet", "val", **options)
    (flat / "val").rename(flat / "validation")
    (flat / "validation/list.txt").write_text("of the images")
    with pytest.raises(ValueError, match="1 other files lie in .*validation/list.txt"):
        data.load("imagenet", "val", **options)
    source = data.load("imagenet", "val", ignore=("*/list.txt",), **options)
    assert len(source) == 4
    assert source[0]["image"].shape == (8, 8, 3)
    assert source.fingerprint == original.fingerprint
    with pytest.raises(ValueError, match="labels must come without classes") as refused:
        data.load("imagenet", "val", classes=str(path), **options)
    assert "\n" not in str(refused.value)
    (flat / "validation/list.txt").unlink()
    del options["labels"]
    with pytest.raises(ValueError, match="give labels=<file>"):
        data.load("imagenet", "val", **options)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "give labels=<file>, a WordNet id a line for images 1 to 50,000"),
        (
            "490\n361\n",
            "line 1 must have .*, got '490'; the numbers of the challenge's",
        ),
        (f"{WNIDS[0]}\n", "there must be 50,000 lines, got 1"),
        (f"ILSVRC2012_val_00000001 {WNIDS[0]}\n", "3 have none, first .*00000002"),
        ("ILSVRC2012_val_00000001 n99999999\n", "line 1 must have a WordNet id"),
    ],
)
def test_images_in_one_folder_without_labels_are_refused(flat, text, message):
    options = {}
    if text:
        (flat / "labels.txt").write_text(text)
        options = {"labels": str(flat / "labels.txt")}
    with pytest.raises(ValueError, match=message) as refused:
        data.load("imagenet", "val", root=str(flat), **options)
    assert "\n" not in str(refused.value)


def test_corruptions_have_a_split_for_each_severity(classes, tmp_path):
    splits = data.DATASETS["imagenet_c"].splits
    assert len(splits) == 95
    assert len(data.DATASETS["imagenet_c_bar"].splits) == 50
    assert {split.partition("/")[0] for split in splits} == {*corruptions.CORRUPTIONS}
    root = classes("fog/3", WNIDS)
    source = data.load("imagenet_c", "fog/3", root=root)
    assert source.preprocessing.endswith("short side 224, centre crop 224")
    assert source.name == "imagenet_c/fog/3"
    (tmp_path / "extra").mkdir()
    classes("extra/spatter/5", WNIDS[:2])  # As the archive of that name unpacks.
    extra = data.load("imagenet_c", "spatter/5", root=root, subset=True)
    assert extra.note == "2 images on disk, the published set has 50,000"
    with pytest.raises(ValueError, match="did you mean 'fog/5'"):
        data.load("imagenet_c", "fog/6", root=root)
    with pytest.raises(
        base.Missing, match="expected: .*validation images.*about 65 GB"
    ):
        data.load("imagenet_c", "fog/4", root=root)


def test_images_of_224_pixels_are_not_resized(tmp_path, image):
    path = image(tmp_path / f"sparkles/1/{WNIDS[0]}/a.png", (224, 224))
    options = dict(root=str(tmp_path), subset=True)
    source = data.load("imagenet_c_bar", "sparkles/1", **options)
    with Image.open(path) as image_file:
        np.testing.assert_array_equal(source[0]["image"], np.asarray(image_file))


@pytest.mark.parametrize(
    ("name", "split", "folder"),
    [
        ("imagenet_sketch", "sketch", "sketch"),
        ("stylized_imagenet", "val", "val"),
        ("deepaugment", "cae", "CAE"),
        ("deepaugment", "edsr", "EDSR"),
    ],
)
def test_related_sets_are_recognised_by_the_authors_names(classes, name, split, folder):
    root = classes(folder, WNIDS[:3])
    source = data.load(name, split, root=root, subset=True, size=8)
    assert source.classes == WNIDS[:3]
    assert "the published set has" in source.note
    assert source.cite == data.DATASETS[name].cite


@pytest.mark.slow
def test_the_sample_is_read_as_imagenet(unpacked, tmp_path):
    root = unpacked("imagenet-sample", "imagenet-sample/val") / "imagenet-sample"
    source = data.load("imagenet", "val", root=str(root), size=64)
    as_folder = data.load("folder", "val", root=str(root), size=64, space="wnid")
    assert source.files == as_folder.files
    assert source.fingerprint == as_folder.fingerprint
    for i, wnid in enumerate(WNIDS):  # The same images by the numbers of ImageNet-V2.
        (tmp_path / "top-images").mkdir(exist_ok=True)
        shutil.copytree(root / "val" / wnid, tmp_path / "top-images" / str(i))
    numbered = data.load("imagenet_v2", "top-images", root=str(tmp_path), size=64)
    for i in range(0, 1000, 83):
        np.testing.assert_array_equal(numbered[i]["image"], source[i]["image"])
