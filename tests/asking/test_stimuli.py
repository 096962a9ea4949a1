"""Folders of images: their classes, the drawn order, and pictures as they are sent."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from jbias.answers import stimulus_names
from jbias.asking import pictures, stimuli
from jbias.observing import stimuli as observed_stimuli


def write(folder, *names):
    for i, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 3), (i, 0, 0)).save(path)
    return str(folder)


def test_cue_conflicts_offer_all_16_classes(tmp_path):
    folder = write(tmp_path, "cat/cat1-dog2.png", "dog3-car1.jpg")
    read = stimuli.read(folder)
    assert [x.name for x in read.stimuli] == ["cat/cat1-dog2.png", "dog3-car1.jpg"]
    assert read.classes == stimulus_names.CLASSES16
    assert {(x.label, x.dataset) for x in read.stimuli} == {("", "")}


def test_class_folders_are_the_classes(tmp_path):
    read = stimuli.read(write(tmp_path, "pot/a/1.png", "cup/1.png", ".hidden/1.png"))
    assert [(x.name, x.label) for x in read.stimuli] == [
        ("cup/1.png", "cup"),
        ("pot/a/1.png", "pot"),
    ]
    assert read.classes == ("cup", "pot")


def test_a_published_set_is_named_by_its_folder(tmp_path):
    read = stimuli.read(write(tmp_path / "edges", "cat/cat1.png", "dog/dog1.png"))
    assert {x.dataset for x in read.stimuli} == {"edge"}
    assert read.classes == stimulus_names.CLASSES16


def test_names_of_model_vs_human_say_the_class(tmp_path):
    names = [
        f"dnn/0001_cop_dnn_c30_{x}_10_n03041632_7380.png" for x in ("knife", "cat")
    ]
    read = stimuli.read(write(tmp_path, *names))
    assert [x.label for x in read.stimuli] == ["cat", "knife"]


def test_an_index_of_export_stimuli_says_set_condition_and_class(tmp_path):
    write(tmp_path, "test/as it is/000000.png", "test/fog-3/000000.png", "other.png")
    (tmp_path / "index.csv").write_text(
        "id,set,condition,imagename,category,texture,exact\n"
        "0,test,,test/as it is/000000.png,cup,pot,yes\n"
        "1,test,fog/3,test/fog-3/000000.png,cup,,no\n"
    )
    read = stimuli.read(str(tmp_path))
    assert read.stimuli == (
        ("test/as it is/000000.png", "cup", "pot", "test", ""),
        ("test/fog-3/000000.png", "cup", "", "test", "fog/3"),
    )
    assert read.classes == ("cup", "pot")


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ((), "must hold images"),
        (("a.png", "b.png"), "put those of a class into a folder"),
        (("cat1-dog2.png", "b.png"), "must be named as the other images"),
        (("a/cat1-dog2.png", "b/cat1-dog2.png"), "is there twice"),
    ],
)
def test_folders_without_known_classes_are_refused_in_a_line(tmp_path, names, words):
    with pytest.raises(ValueError, match=words) as error:
        stimuli.read(write(tmp_path, *names))
    assert "--columns" not in str(error.value) and "\n" not in str(error.value)


def test_the_drawn_order_is_a_permutation_that_a_limit_cuts(tmp_path):
    names = [f"{x}/{i}.png" for x in ("cup", "pot") for i in range(20)]
    all_stimuli = stimuli.read(write(tmp_path, *names)).stimuli
    drawn = stimuli.draw(all_stimuli, seed=0)
    assert sorted(drawn) == sorted(all_stimuli) and drawn != sorted(drawn)
    assert stimuli.draw(all_stimuli[::-1], seed=0, limit=7) == drawn[:7]
    assert stimuli.draw(all_stimuli, seed=1) != drawn


def test_the_digest_changes_with_every_name_class_and_pixel(tmp_path):
    write(tmp_path / "a", "cup/1.png", "pot/2.png")
    write(tmp_path / "b", "cup/1.png", "pot/3.png")
    write(tmp_path / "c", "cap/1.png", "pot/2.png")
    write(tmp_path / "d", "pot/2.png", "cup/1.png")  # Other pixels.
    digests = {stimuli.read(str(tmp_path / x)).digest() for x in "abcd"}
    assert len(digests) == 4


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"])
def test_pictures_are_sent_byte_for_byte_or_with_the_same_pixels(tmp_path, kind):
    path = tmp_path / f"x.{kind.lower()}"
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)
    Image.fromarray(pixels).save(path, kind)
    picture = pictures.load(str(path))
    assert (picture.width, picture.height) == (7, 5) == pictures.size(str(path))
    head, _, text = picture.address.partition(";base64,")
    content = base64.b64decode(text)
    is_known = kind in ("PNG", "JPEG", "WEBP", "GIF")
    assert head == f"data:image/{kind.lower() if is_known else 'png'}"
    if is_known:
        assert content == path.read_bytes()
    else:
        assert (np.asarray(Image.open(io.BytesIO(content))) == pixels).all()


def test_a_damaged_picture_is_an_error_before_it_is_sent(tmp_path):
    path = tmp_path / "x.png"
    Image.fromarray(np.zeros((50, 50, 3), np.uint8)).save(path)
    path.write_bytes(path.read_bytes()[:60])
    with pytest.raises((ValueError, OSError), match="x.png|truncated"):
        pictures.load(str(path))


def test_a_folder_of_several_sets_is_refused_with_the_folder_of_one(tmp_path):
    write(tmp_path, "cue-conflict/cat/cat1-dog2.png", "edge/cat/cat1.png")
    for read in (stimuli.read, observed_stimuli.from_folder):
        with pytest.raises(ValueError, match=r"edge; give .*/cue-conflict$"):
            read(str(tmp_path))
