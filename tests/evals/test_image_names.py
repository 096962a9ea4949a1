"""A name in a table of decisions means the right image of a set, or no image."""

import re
import unicodedata

import pytest
from PIL import Image

from jbias import config as jc
from jbias.data.sets import geirhos
from jbias.evals import decision_tables, image_names, suites
from tests import cases

NAMES = (
    "cat/1.jpg",
    "cat/2.jpg",
    "dog/1.jpg",
    "dog/a b.png",
    "dog/ä.jpg",
    "dog/50%.jpg",
)
FOLDERS = ("test", "photos")


def find(name: str, names=NAMES) -> list[str]:
    return [names[i] for i in image_names.ImageNames(names, FOLDERS).find(name)]


@cases.each(
    ("name", "image"),
    [
        *((name, name) for name in NAMES),
        ("./cat/1.jpg", "cat/1.jpg"),
        ("cat\\1.jpg", "cat/1.jpg"),
        (".\\cat\\1.jpg", "cat/1.jpg"),
        (" cat/1.jpg ", "cat/1.jpg"),
        ("cat//1.jpg", "cat/1.jpg"),
        ("test/cat/1.jpg", "cat/1.jpg"),
        ("photos/test/cat/1.jpg", "cat/1.jpg"),
        ("/far/away/test/cat/1.jpg", "cat/1.jpg"),
        ("C:\\data\\test\\cat\\1.jpg", "cat/1.jpg"),
        ("dog/a%20b.png", "dog/a b.png"),
        ("dog/50%25.jpg", "dog/50%.jpg"),
        ("cat/1.JPG", "cat/1.jpg"),
        ("cat/1.png", "cat/1.jpg"),
        ("cat/1", "cat/1.jpg"),
        ("2.jpg", "cat/2.jpg"),
        ("2", "cat/2.jpg"),
        ("test/2.jpg", "cat/2.jpg"),
        (unicodedata.normalize("NFD", "dog/ä.jpg"), "dog/ä.jpg"),
        (unicodedata.normalize("NFD", "ä.jpg"), "dog/ä.jpg"),
    ],
)
def test_an_image_is_matched_by_every_spelling_of_its_path(name, image):
    assert find(name) == [image]


@cases.each(
    "name",
    [
        "train/cat/1.jpg",
        "/far/away/cat/1.jpg",
        "cow/2.jpg",
        "dog/2.jpg",
        "x_2.jpg",
        "cat_2.jpg",
        "set_cat/2.jpg",
        "22.jpg",
        "Cat/1.jpg",
        "test/train/cat/1.jpg",
        "cat/test/2.jpg",
        "dog/test/2.jpg",
        "",
        "/",
    ],
)
def test_a_name_that_only_ends_as_an_images_name_means_no_image(name):
    assert find(name) == []


def test_a_name_without_a_folder_may_mean_two_images():
    assert find("1.jpg") == ["cat/1.jpg", "dog/1.jpg"]
    assert find("cat/1.webp", ("cat/1.jpg", "cat/1.png")) == ["cat/1.jpg", "cat/1.png"]
    assert find("cat/1.PNG", ("cat/1.jpg", "cat/1.png")) == ["cat/1.png"]


def test_an_exact_path_takes_precedence():
    names = ("cat/1.jpg", "./cat/1.jpg", "cat/1.JPG", "test/cat/1.jpg", "cat%2F1.jpg")
    for name in names:
        assert find(name, names) == [name]


def test_other_spellings_are_listed_once_an_exact_name_fails(monkeypatch):
    """A set may have millions of images, and most tables name them exactly."""
    listed = []
    index = image_names._index

    def note_form(names, form):
        listed.append(form)
        return index(names, form)

    monkeypatch.setattr(image_names, "_index", note_form)
    images = image_names.ImageNames(NAMES, FOLDERS)
    assert [images.find(name) for name in NAMES] == [[i] for i in range(len(NAMES))]
    assert listed == [image_names._exact]
    assert images.find("cat/1.JPG") == images.find("cat/1.JPG") == [0]
    assert len(listed) == len({*listed}) > 1


def test_a_class_called_as_the_set_is_no_folder_of_the_set():
    assert find("test/9.jpg", ("test/1.jpg", "dog/9.jpg")) == []


STIMULI = ("cat/cat7-elephant1.png", "dog/dog2-car1.png", "dog/cat7-elephant1.png")


@cases.each(
    ("name", "places"),
    [
        ("0001_s5n_dnn_0_cat_00_cat7-elephant1.png", [0]),
        ("0417_s5n_s01_0_dog_00_dog2-car1.png", [1]),
        ("0417_s5n_s01_0_dog_00_cat7-elephant1.png", [2]),
        ("0417_s5n_s01_0_bird_00_dog2-car1.png", []),
        ("0417_s5n_s01_0_cow_00_dog2-car1.png", []),
        ("x_dog2-car1.png", []),
        ("dog2-car1.png", []),  # ImageNames finds names without these fields.
    ],
)
def test_published_names_of_cue_conflicts_include_the_shape(name, places):
    assert image_names.PublishedNames(STIMULI).find(name) == places


TRIALS = (
    "session-1/0001_cop_dnn_c30_knife_10_n03041632_7380.png",
    "session-1/0002_cop_dnn_c05_knife_10_n03041632_7381.png",
)


@cases.each(
    ("name", "places"),
    [
        ("0001_cop_dnn_c30_knife_10_n03041632_7380.png", [0]),
        ("0963_cop_s04_c30_knife_10_n03041632_7380.JPEG", [0]),
        ("0001_cop_dnn_c05_knife_10_n03041632_7380.png", []),
        ("0001_eid_dnn_c30_knife_10_n03041632_7380.png", []),
        ("0001_cop_dnn_c30_boat_10_n03041632_7380.png", []),
        ("n03041632_7380.png", []),
    ],
)
def test_published_names_of_distorted_photos_include_experiment_and_condition(
    name, places
):
    conditions = geirhos.CONDITIONS["contrast"]
    assert image_names.PublishedNames(TRIALS, conditions).find(name) == places


SUITE = """
import ml_collections

def get_config(text=""):
    c = ml_collections.ConfigDict()
    c.size, c.run = 8, dict()
    c.sets = dict(test=dict(data="folder", split="test", root=ROOT))
    c.measures = dict(accuracy=dict(probe="plain", sets=("test",)))
    return c
"""
PHOTOS = ("cat/1.jpg", "dog/1.jpg", "owl/art_0.jpg", "owl/cartoon_0.jpg")


@pytest.fixture
def load(tmp_path):
    """load(names) returns the decisions read from a table that has these image names."""
    for name in PHOTOS:
        path = tmp_path / "photos/test" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8)).save(path)
    (tmp_path / "s.py").write_text(f"ROOT = {str(tmp_path / 'photos')!r}{SUITE}")
    config = jc.load(f"{tmp_path}/s.py", (), flag="suite")
    suite = suites.open_suite(config, print)

    def read(names):
        rows = [f"{x},{y.split('/')[0]}" for x, y in zip(names, PHOTOS, strict=True)]
        table = tmp_path / "test_mine.csv"
        table.write_text("\n".join(["imagename,object_response", *rows]))
        (network,) = decision_tables.load(str(table), suite, {})
        return network.decided["test", ""].tolist()

    return read


@cases.each(
    "names",
    [
        PHOTOS,
        [f"/elsewhere/photos/test/{name}" for name in PHOTOS],
        [f"test/{name}" for name in PHOTOS],
        [name.replace("/", "\\") for name in PHOTOS],
        [name.replace(".jpg", ".png") for name in PHOTOS],
    ],
)
def test_names_that_repeat_between_classes_are_known_by_their_folders(names, load):
    assert load(names) == [0, 1, 2, 2]


def test_a_response_is_a_class_with_accents_composed_or_not(tmp_path):
    name = unicodedata.normalize("NFC", "café")
    for folder in (name, "tea"):
        (tmp_path / f"photos/test/{folder}").mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(tmp_path / f"photos/test/{folder}/{folder}.png")
    (tmp_path / "s.py").write_text(f"ROOT = {str(tmp_path / 'photos')!r}{SUITE}")
    config = jc.load(f"{tmp_path}/s.py", (), flag="suite")
    suite = suites.open_suite(config, print)
    table = tmp_path / "test_mine.csv"
    for form in ("NFC", "NFD"):
        response = unicodedata.normalize(form, name)
        rows = [f"{response}/{response}.png,{response}", f"tea/tea.png,{response}"]
        text = "\n".join(["imagename,object_response", *rows])
        table.write_text(text, encoding="utf-8")
        (network,) = decision_tables.load(str(table), suite, {})
        assert network.decided["test", ""].tolist() == [0, 0]


@cases.each(
    ("names", "message"),
    [
        (
            ["1.jpg", *PHOTOS[1:]],
            "2 of that name: 'cat/1.jpg' and 'dog/1.jpg'; name each",
        ),
        (
            [*PHOTOS[:3], "owl/sketch_0.jpg"],
            "csv:5: 1 of the file's 4 images are not among the 4 of the set test",
        ),
        (
            ["train/cat/1.jpg", *PHOTOS[1:]],
            "the first is 'train/cat/1.jpg'; give the folder",
        ),
        ([PHOTOS[1], *PHOTOS[1:]], "must be decided about once, got 'dog/1.jpg' again"),
        (["./dog/1.jpg", *PHOTOS[1:]], "must be decided about once, got 'dog/1.jpg'"),
    ],
)
def test_names_of_no_image_or_of_two_are_refused(names, message, load):
    with pytest.raises(ValueError, match=re.escape(message)) as error_info:
        load(names)
    assert "\n" not in str(error_info.value)
