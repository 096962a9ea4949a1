"""Small copies of the layouts of eight published sets, and the errors of damaged copies."""

import csv

import numpy as np
import pytest
from PIL import Image

from jbias import data
from jbias.configs import erm
from jbias.data import base, class_maps, config_sets, decoding, sources, tables
from jbias.data.sets import geirhos
from tests import cases


def refused(name, split, root, kind=ValueError):
    """Return the one-line message with which a set is refused."""
    with pytest.raises(kind) as error:
        data.load(name, split, root=str(root))
    assert "\n" not in str(error.value)
    return str(error.value)


DOMAINS = {
    "vlcs": ("sun09", "SUN09", 10_729),
    "terra_incognita": ("location_38", "location_38", 24_330),
    "domain_net": ("clipart", "clipart", 586_575),
}


@cases.each("name", [*DOMAINS])
def test_a_domain_is_a_split_of_class_folders(tree, name):
    split, folder, total = DOMAINS[name]
    classes = tables.class_names(name)
    root = tree({f"{folder}/{x}": 1 for x in classes}, size=(12, 6))
    source = data.load(name, split, root=str(root), size=8)
    assert source.classes == classes and len(source) == len(classes)
    data_set = data.DATASETS[name]
    assert f"{total:,} images" in data_set.about
    if data_set.images:
        assert sum(data_set.images.values()) == total
        published = data_set.images[split]
        assert source.note.endswith(f"the published set has {published:,}")
    assert source.preprocessing.endswith("squeezed to 8x8")
    path = root / folder / source.files[0]
    with Image.open(path) as file:
        expected = np.asarray(file.convert("RGB").resize((8, 8), Image.BILINEAR))
    np.testing.assert_array_equal(source.image(0), expected)
    (root / folder / classes[0]).rename(root / folder / f"{classes[0]}s")
    assert f"got '{classes[0]}s'; did you mean" in refused(name, split, root)
    other = data.DATASETS[name].splits[1]
    message = refused(name, other, root, kind=base.Missing)
    assert data.DATASETS[name].where in message and "expected: " in message


def test_a_user_chooses_how_images_are_made_square(tree):
    root = str(tree({f"SUN09/{x}": 1 for x in tables.class_names("vlcs")}, (12, 6)))
    cropped = data.load("vlcs", "sun09", root=root, size=4, fit="crop")
    assert "short side 4, centre crop 4" in cropped.preprocessing
    squeezed = data.load("vlcs", "sun09", root=root, size=4, crop=False)
    assert squeezed.preprocessing.endswith("squeezed to 4x4")


DOMAIN_FOLDERS = ("Caltech101", "LabelMe", "SUN09", "VOC2007")


@pytest.fixture
def vlcs_root(tree):
    """Return a folder like VLCS with 20 images of each class in each domain."""
    classes = tables.class_names("vlcs")
    return str(tree({f"{f}/{x}": 20 for f in DOMAIN_FOLDERS for x in classes}))


def test_one_domain_is_left_out(vlcs_root):
    """Three domains train and validate, with the column "domain"; the fourth is the test."""
    config = erm.get_config(f"data=vlcs,root={vlcs_root},held_out=sun09").to_dict()
    trained = config_sets.train_set("config.train", config["train"], size=8)
    columns = config_sets.join_columns(trained.sources)
    assert np.bincount(columns["domain"]).tolist() == [90, 90, 90]
    assert config["train"]["batch"] == 96
    valid = config_sets.open_test_source("config.valid", config["valid"], size=8)
    assert valid.values["domain"] == ("caltech101", "labelme", "voc2007")
    assert np.bincount(valid.columns["domain"]).tolist() == [10, 10, 10]
    (test,) = config["tests"].values()
    assert (test["split"], test["data"]) == ("sun09", "vlcs")
    trained_files = {
        f"{source.name.partition('/')[2].partition('[')[0]}/{file}"
        for source in trained.sources
        for file in source.files
    }
    assert len({*valid.files}) == 30 and not {*valid.files} & trained_files


def test_joined_images_are_those_of_their_sources(vlcs_root):
    """A joined source has each source's images and labels, also a selection of them."""
    splits = [
        data.load("vlcs", name, root=vlcs_root, size=8) for name in ("labelme", "sun09")
    ]
    joined = config_sets.join(splits)
    expected = [split[i] for split in splits for i in range(len(split))]
    assert len(joined) == len(expected) == 200
    for i in (0, 99, 100, 199):
        assert joined[i]["label"] == expected[i]["label"]
        np.testing.assert_array_equal(joined[i]["image"], expected[i]["image"])
    few = sources.take(joined, np.array([150, 3]), digest="two")
    np.testing.assert_array_equal(few.image(0), expected[150]["image"])
    assert few.files == (joined.files[150], joined.files[3])
    assert joined.fingerprint not in {split.fingerprint for split in splits}


def test_sources_that_do_not_fit_are_not_joined(vlcs_root):
    small, large = (
        data.load("vlcs", name, root=vlcs_root, size=size)
        for name, size in (("labelme", 8), ("sun09", 9))
    )
    with pytest.raises(ValueError, match="vlcs/sun09: must fit vlcs/labelme"):
        config_sets.join([small, large])
    with pytest.raises(ValueError, match="splits: must differ"):
        config_sets.join([small, small])


@pytest.mark.parametrize(
    "arguments",
    ["data=vlcs,root=x,held_out=photo", "data=waterbirds,root=x,held_out=test"],
)
def test_a_domain_that_does_not_exist_is_not_held_out(arguments):
    with pytest.raises(ValueError, match="config argument"):
        erm.get_config(arguments)


def png(size=(2, 2), border=0):
    """Return the bytes of an image without red, with a red border of so many pixels."""
    pixels = np.random.default_rng(0).integers(0, 256, (*size[::-1], 3), np.uint8)
    pixels[..., 0] = 0
    if border:
        inner = pixels[border:-border, border:-border].copy()
        pixels[:] = (255, 0, 0)
        pixels[border:-border, border:-border] = inner
    return sources.to_png(pixels)


def write(root, folders, content, count=1):
    """Write the same image into each folder below the root and return the root."""
    for folder in folders:
        (root / folder).mkdir(parents=True)
        for i in range(count):
            (root / folder / f"{i:03}.png").write_bytes(content)
    return root


@pytest.fixture(scope="module")
def clipart_images(tmp_path_factory):
    """The images of a domain of DomainNet, two of each class."""
    folders = [f"clipart/{x}" for x in tables.class_names("domain_net")]
    return write(tmp_path_factory.mktemp("domain_net"), folders, png(), count=2)


@pytest.fixture
def clipart(clipart_images):
    """The domain with its lists, which leave out the second image of each class."""
    root, classes = clipart_images, tables.class_names("domain_net")
    for part, few in (("train", classes[:-1]), ("test", classes[-1:])):
        lines = [f"clipart/{x}/000.png {classes.index(x)}\n" for x in few]
        (root / f"clipart_{part}.txt").write_text("".join(lines))
    return root


def test_lists_leave_out_duplicates(clipart):
    source = data.load("domain_net", "clipart", root=str(clipart), size=2)
    assert len(source) == 345 and {x.split("/")[1] for x in source.files} == {"000.png"}
    (clipart / "clipart_test.txt").unlink()
    assert "'{}' is missing; download".format(clipart / "clipart_test.txt") in refused(
        "domain_net", "clipart", clipart
    )
    (clipart / "clipart_train.txt").unlink()
    source = data.load("domain_net", "clipart", root=str(clipart), size=2)
    assert source.note == "690 images on disk, the published set has 48,129"


def test_bad_lists_are_refused(clipart):
    path = clipart / "clipart_test.txt"
    path.write_text("clipart/zigzag/009.png 344\n")
    message = refused("domain_net", "clipart", clipart)
    assert "1 are not, first 'zigzag/009.png'; unpack" in message
    for line in ("real/zigzag/000.png 344", "clipart/zigzag/000.png", "clipart 344"):
        path.write_text(f"{line}\n")
        message = refused("domain_net", "clipart", clipart)
        assert "clipart_test.txt:1: a line must read clipart/<class>/<file>" in message


BIRDS = [  # File, water bird, split, water; groups of the training images: 3, 1, 1, 2.
    *[(f"001.Crow/{i}.jpg", 0, 0, 0) for i in range(3)],
    ("001.Crow/3.jpg", 0, 0, 1),
    ("002.Gull/0.jpg", 1, 0, 0),
    ("002.Gull/1.jpg", 1, 0, 1),
    ("002.Gull/2.jpg", 1, 0, 1),
    ("002.Gull/3.jpg", 1, 1, 0),
    ("001.Crow/4.jpg", 0, 2, 1),
    ("002.Gull/4.jpg", 1, 2, 0),
]


@pytest.fixture
def birds(tmp_path, image):
    """Function birds(rows, folder="") that writes the published files and returns the root."""

    def write(rows=BIRDS, folder=""):
        root = tmp_path / folder
        for name, *_ in BIRDS:
            image(root / name, size=(10, 6))
        with open(root / "metadata.csv", "w", newline="") as file:
            table = csv.writer(file)
            table.writerow(
                ["img_id", "img_filename", "y", "split", "place", "place_filename"]
            )
            for i, row in enumerate(rows, 1):
                table.writerow([i, *row, "/o/ocean/1.jpg"])
        return tmp_path

    return write


@cases.each("folder", ["", "waterbird_complete95_forest2water2", "waterbirds_v1.0"])
def test_waterbirds_have_birds_and_places(birds, folder):
    root = str(birds(folder=folder))
    source = data.load("waterbirds", "train", root=root, size=8)
    assert source.classes == ("landbird", "waterbird")
    assert source.values["attribute"] == ("land", "water")
    assert source.measures == ("accuracy", "groups")
    groups = np.zeros((2, 2), int)
    np.add.at(groups, (source.columns["label"], source.columns["attribute"]), 1)
    assert groups.tolist() == [[3, 1], [1, 2]]
    for name, bird, place in zip(
        source.files, source.columns["label"], source.columns["attribute"]
    ):
        assert (name, bird, 0, place) in BIRDS
    assert len(data.load("waterbirds", "valid", root=root, size=8)) == 1
    assert sum(data.DATASETS["waterbirds"].images.values()) == 11_788
    at_224 = data.load("waterbirds", "train", root=root).preprocessing
    assert at_224.endswith("squeezed to 256x256, centre crop 224")
    config = erm.get_config(f"data=waterbirds,root={root}")
    splits = config.train.split, config.valid.split, [*config.tests]
    assert splits == ("train", "valid", ["test"])


@cases.each(
    ("row", "message"),
    [
        (("001.Crow/0.jpg", 2, 0, 0), "csv:2: y must be one of 0, 1, got '2'"),
        (("001.Crow/0.jpg", 1, 3, 0), "csv:2: split must be one of 0, 1, 2, got '3'"),
        (("001.Crow/0.jpg", 1, 0, ""), "csv:2: place must be one of 0, 1, got ''"),
        (("001.Crow/1.jpg", 1, 0, 0), "csv:3: an image must have one line, got"),
        (("001.Crow/9.jpg", 1, 0, 0), "1 are not, first '001.Crow/9.jpg'"),
        (("../9.jpg", 1, 0, 0), "1 are not, first '../9.jpg'"),
    ],
)
def test_a_wrong_line_of_waterbirds_is_refused(birds, row, message):
    assert message in refused("waterbirds", "train", birds([row, *BIRDS[1:]]))


def test_waterbirds_need_their_table(birds):
    root = birds()
    path = root / "metadata.csv"
    path.write_text(path.read_text().replace("place,", "background,"))
    assert "place is missing; fetch" in refused("waterbirds", "train", root)
    path.unlink()
    message = refused("waterbirds", "train", root, kind=base.Missing)
    assert "needs 'metadata.csv'" in message and "nlp.stanford.edu" in message


OBJECTS = class_maps.members("objectnet")


@pytest.fixture(scope="module")
def objectnet(tmp_path_factory):
    """ObjectNet's folders with an image each, whose border of two pixels is red."""
    folders = [f"images/{x}" for x in (*OBJECTS, "squeegee")]
    content = png((20, 14), border=2)
    return write(tmp_path_factory.mktemp("objectnet"), folders, content)


def test_objectnets_border_is_cut_off(objectnet):
    source = data.load("objectnet", "test", root=str(objectnet), size=10)
    assert source.classes == tuple(OBJECTS) and len(source) == 113
    assert not any(source.image(i)[..., 0].any() for i in range(0, 113, 10))
    assert source.preprocessing.startswith("border of 2 cut off; Pillow")
    with Image.open(objectnet / "images" / source.files[0]) as file:
        inner = np.asarray(file.crop((2, 2, 18, 12)).crop((3, 0, 13, 10)))
    np.testing.assert_array_equal(source.image(0), inner)
    trimmed = decoding.preprocess(10, trim=2)
    with pytest.raises(ValueError, match="more than 4 pixels wide.* got 4 x 9"):
        trimmed(Image.new("RGB", (4, 9)))


def test_objectnet_has_the_classes_that_overlap_with_imagenets():
    """The 125 classes have 6,250 validation images, as imagenet-testbed counts them."""
    ids = [wnid for members in OBJECTS.values() for wnid in members]
    assert len(OBJECTS) == 113 and len(ids) == len({*ids}) == 125
    assert {*ids} <= {*tables.wnids()}
    words = tables.lemmas()
    assert [words[x] for x in OBJECTS["still_camera"]] == [
        "Polaroid camera",
        "reflex camera",
    ]


def test_a_decision_on_objectnet_is_that_of_the_most_probable_class(objectnet):
    """The authors' rule: the largest of the 125 logits must be of the right folder."""
    source = data.load("objectnet", "test", root=str(objectnet), size=10)
    space = class_maps.of_outputs("imagenet")
    mapped = config_sets.class_map("x", {}, source, space, "mean_prob")
    assert mapped.aggregate == "max_prob" and mapped.classes == source.classes
    logits = np.random.default_rng(0).normal(size=(200, 1000))
    folder_of = {x: name for name, wnids in OBJECTS.items() for x in wnids}
    index = [i for i, wnid in enumerate(tables.wnids()) if wnid in folder_of]
    best = np.array(index)[logits[:, index].argmax(1)]
    expected = [folder_of[tables.wnids()[i]] for i in best]
    scores = np.where(mapped.matrix > 0, logits[:, :, None], -np.inf).max(1)
    assert [mapped.classes[i] for i in scores.argmax(1)] == expected
    chosen = config_sets.class_map("x", {"aggregate": "sum_prob"}, source, space, "")
    assert chosen.aggregate == "sum_prob"


def test_networks_of_other_classes_are_matched_to_objectnet(objectnet):
    few = class_maps.match(
        OBJECTS["chair"][:1], "wnid", tuple(OBJECTS), "objectnet", aggregate="max_prob"
    )
    assert (few.relabel >= 0).sum() == 1
    by_name = class_maps.match(tuple(OBJECTS), "names", tuple(OBJECTS), "objectnet")
    assert by_name.matrix is None
    with pytest.raises(base.Mismatch, match="members of ObjectNet's 113, none of 1 is"):
        class_maps.match(("n01440764",), "wnid", tuple(OBJECTS), "objectnet")
    with pytest.raises(ValueError, match="be ObjectNet's 113.* 'chair'"):
        class_maps.match(tables.wnids(), "wnid", ("chairs",), "objectnet")


def test_objectnet_is_never_trained_on(objectnet):
    options = dict(data="objectnet", split="test", root=str(objectnet))
    for place in (options, dict(data="vlcs", also=(options,))):
        with pytest.raises(ValueError, match="licence must allow training") as error:
            opened = lambda *_: None
            config_sets.train_set("config.train", place, 8, opened)
        assert "\n" not in str(error.value)
    config_sets.open_test_source("config.tests.o", options, 8)


def test_incomplete_objectnet_is_refused(objectnet, tmp_path):
    (objectnet / "images/wok").rename(objectnet / "images/work")
    message = refused("objectnet", "test", objectnet)
    (objectnet / "images/work").rename(objectnet / "images/wok")
    assert "1 are missing, first 'wok'; unpack the archive again" in message
    message = refused(
        "objectnet", "test", tmp_path / "images/wine_bottle", base.Missing
    )
    assert "https://objectnet.dev/download.html" in message


REFINED = tables.read("refined_bias")


@pytest.fixture
def refined(tree):
    counts = {f"refined_bias_shape/{x}": 2 for x in REFINED["shape"]}
    counts |= {f"refined_bias_texture/{x}": 3 for x in REFINED["texture"]}
    return tree(counts)


@cases.each(
    ("split", "counts"),
    {"shape": (20, 0), "texture": (0, 30), "both": (20, 30)}.items(),
)
def test_refined_bias_has_one_cue_an_image(refined, split, counts):
    source = data.load("refined_bias", split, root=str(refined), size=8)
    cues = np.bincount(source.columns["cue"], minlength=2)
    assert tuple(cues) == counts and source.values["cue"] == ("shape", "texture")
    for name, label, cue in zip(
        source.files, source.columns["label"], source.columns["cue"]
    ):
        class_name = source.classes[label]
        assert name.split("/")[1] == class_name
        assert class_name in REFINED[("shape", "texture")[cue]]
    at_224 = data.load("refined_bias", split, root=str(refined)).preprocessing
    assert at_224.endswith("short side 256, centre crop 224")
    assert len(class_maps.members("refined_bias")) == 20


def test_refined_bias_enlarges_images_of_the_exact_size(tree, image):
    folders = [f"refined_bias_shape/{x}" for x in REFINED["shape"]]
    root = tree(dict.fromkeys(folders, 1), size=(28, 28))
    source = data.load("refined_bias", "shape", root=str(root), size=28)
    with Image.open(root / source.files[0]) as file:
        enlarged = np.asarray(file.convert("RGB").resize((32, 32), Image.BILINEAR))
    np.testing.assert_array_equal(source.image(0), enlarged[2:30, 2:30])


def test_damaged_refined_bias_is_refused(refined):
    (refined / "refined_bias_shape/mouse").rename(refined / "refined_bias_shape/mice")
    assert "got 'mice'" in refused("refined_bias", "shape", refined)
    (refined / "refined_bias_texture").rename(refined / "texture")
    message = refused("refined_bias", "both", refined / "texture", base.Missing)
    assert "https://github.com/PumjunKim/REFINED-BIAS" in message


PAIRS = [("airplane", "bear"), ("bear", "bear"), ("truck", "airplane")]


@pytest.fixture
def frequencies(tmp_path, image):
    """Function frequencies(folder) that writes images of PAIRS as files and returns the root."""

    def write(folder):
        root = tmp_path / "root" / folder.replace("/", "-")
        for i, (low, high) in enumerate(PAIRS):
            image(root / folder / low / f"{i}_{low}{i + 1}-{high}12.png")
        return root

    return write


@cases.each("folder", ["", "test", "test/stimuli"])
def test_frequency_cues_are_in_the_names(frequencies, folder):
    root = frequencies(folder)
    source = data.load("frequency_cue_conflict", "test", root=str(root), size=8)
    check_frequencies(source)


def check_frequencies(source):
    """Check the classes of both bands of PAIRS."""
    assert source.classes == tuple(class_maps.geirhos16())
    assert (source.space, source.measures) == ("entry16", ("accuracy", "shape_bias"))
    name = lambda column: [source.classes[i] for i in source.columns[column]]
    assert list(zip(name("label"), name("texture"))) == PAIRS
    assert source.image(0).shape == (8, 8, 3)


def parquet(root, rows):
    """Write (low, high) of each row as published, with images, and return the root."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    images = [
        {
            "bytes": sources.to_png(rng.integers(0, 256, (8, 8, 3), np.uint8)),
            "path": None,
        }
        for _ in rows
    ]
    columns = {"lf_label": [low for low, _ in rows], "hf_label": [x for _, x in rows]}
    table = pa.table({"image": images} | columns)
    (root / "data").mkdir(exist_ok=True)
    path = root / "data/test-00000-of-00001.parquet"
    pq.write_table(table, path, row_group_size=2)
    return root


def test_frequency_cues_are_in_the_columns(tmp_path):
    root = parquet(tmp_path, [PAIRS[2], PAIRS[0], PAIRS[1]])
    source = data.load("frequency_cue_conflict", "test", root=str(root), size=8)
    check_frequencies(source)
    assert source.files[0] == "test-00000-of-00001/1"


def test_other_frequency_cues_are_refused(tmp_path, frequencies, image):
    load = lambda: refused("frequency_cue_conflict", "test", tmp_path)
    parquet(tmp_path, [("airplane", "bare")])
    assert "must be among Geirhos' 16, got 'bare'" in load()
    parquet(tmp_path, [("airplane", None)])
    assert "every row must have text in 'hf_label', 1 have none" in load()
    for path in (tmp_path / "data").iterdir():
        path.unlink()
    image(tmp_path / "test/bear/bear1.png")
    assert "must be named <low class><i>-<high class><j>, got" in load()
    (tmp_path / "test/bear/bear1.png").rename(tmp_path / "test/bear/bear1-bare2.png")
    assert "got 'bare'; take the published files" in load()


def barebones(root, image, name="DIS5K"):
    """Write two objects of a set with their table and return the path of the table."""
    folder = root / "data" / name
    rows = [("b#1", "Bed"), ("a#1", "Shoe")]
    for stem, _ in rows:
        image(folder / f"hq/{stem}.jpg")
        image(folder / f"silhouette/{stem}.png", mode="L")
    path = folder / "metadata_with_silhouette.csv"
    place = f"data/{name}".rstrip("/")
    lines = [
        f"{place}/hq/{x}.jpg,{label},{place}/silhouette/{x}.png" for x, label in rows
    ]
    path.write_text("\n".join(["image_path,label,silhouette_path", *lines, ""]))
    return path


@cases.each(("split", "folder"), [("dis5k", "DIS5K"), ("coco", "coco"), ("wtp", "")])
def test_barebones_has_photographs_and_silhouettes(tmp_path, image, split, folder):
    barebones(tmp_path, image, folder)
    for form, ending in (("hq", ".jpg"), ("silhouette", ".png")):
        name = f"{split}/{form}"
        source = data.load("barebones", name, root=str(tmp_path), size=8)
        assert source.classes == ("Bed", "Shoe")
        assert [x.split("/")[-1] for x in source.files] == [
            f"b#1{ending}",
            f"a#1{ending}",
        ]


def test_a_damaged_table_of_barebones_is_refused(tmp_path, image):
    path = barebones(tmp_path, image)
    load = lambda: refused("barebones", "dis5k/silhouette", tmp_path)
    text = path.read_text()
    path.write_text(text.replace(",Bed,", ",,"))
    assert "silhouette.csv:2: a line must have label and silhouette_path" in load()
    path.write_text(text.replace("silhouette/b#1", "silhouette/a#1"))
    assert "csv:3: an image must have one label, got 'Shoe' after 'Bed'" in load()
    path.write_text(text.replace("silhouette_path", "mask_path"))
    assert "the header must have label and silhouette_path, got image_path" in load()
    path.write_text(text.replace("silhouette/b#1", "silhouette/b#2"))
    assert "1 are not, first 'data/DIS5K/silhouette/b#2.png'" in load()
    message = refused("barebones", "voc/hq", tmp_path, base.Missing)
    assert "needs data/voc/metadata_with_silhouette.csv" in message
    assert "https://github.com/VishalZ0110/WTP-Bench" in message


def test_cue_conflicts_of_names_and_frequencies_have_the_same_classes():
    assert tables.class_names("waterbirds") == ("landbird", "waterbird")
    assert {*geirhos.CLASSES} == {*class_maps.members("entry16")}
