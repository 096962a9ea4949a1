"""The page's images: the embedded stimuli to the pixel, folders of one's own, and the noise."""

import base64
import collections
import csv
import io
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from jbias import data
from jbias.answers import letter_answers, observers
from jbias.data.embedded import shapes
from jbias.observing import cli, comparison, masks, page, stimuli
from tests import cases


@pytest.fixture(scope="module")
def shown():
    return stimuli.embedded()


def pixels(url):
    """Return the pixels of a picture of the page."""
    kind, _, text = url.partition(",")
    assert kind == "data:image/png;base64"
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(text))))


def draw(path, side=20, value=0):
    """Write an image of one colour."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (side, side), (value, 0, 0)).save(path)


def test_embedded_pictures_are_the_images_of_the_set_to_the_pixel(shown):
    assert shown.classes == shapes.CLASSES and len(shown.examples) == 16
    for group in shown.groups:
        split = group.dataset.removeprefix("shapes-")
        source = data.load("shapes", split, size=64, n=len(group.images))
        assert group.label.tolist() == source.columns["label"].tolist()
        for number in (0, len(group.images) - 1):
            assert np.array_equal(pixels(group.pictures[number]), source.images[number])


def test_embedded_cue_conflicts_are_all_pairs_once(shown):
    conflicts = shown.groups[0]
    pairs = {*zip(conflicts.label.tolist(), conflicts.texture.tolist(), strict=True)}
    assert pairs == {(a, b) for a in range(16) for b in range(16) if a != b}
    assert len(conflicts.images) == 240
    for group in shown.groups:
        for block in group.blocks:
            assert sorted(group.label[[*block]]) == [*range(16)]
        numbers = [number for block in group.blocks for number in block]
        assert sorted(numbers) == [*range(len(group.images))]


def test_the_buttons_show_each_class_with_its_own_texture(shown):
    """The pictures are of the training images whose texture is the class's."""
    source = data.load("shapes", "train", size=64, n=256, correlation=1.0)
    assert np.array_equal(source.columns["attribute"], source.columns["label"])
    by_pixels = {
        image.tobytes(): int(label)
        for image, label in zip(source.images, source.columns["label"], strict=True)
    }
    labels = [by_pixels[pixels(url).tobytes()] for url in shown.examples]
    assert labels == [*range(16)]


def test_the_stored_network_follows_textures(shown):
    """Stored decisions are about these drawings; 0.011 is what `jbias measure` printed for all 480."""
    (network,) = comparison.of_embedded(shown)
    conflicts = shown.groups[0]
    decided = network.decisions[0][0]
    num_shape = int((decided == conflicts.label).sum())
    num_texture = int((decided == conflicts.texture).sum())
    assert num_shape / (num_shape + num_texture) == pytest.approx(0.011, abs=0.01)
    assert (num_shape + num_texture) / 240 == pytest.approx(0.946, abs=0.03)


def test_decisions_about_other_drawings_are_refused(shown, tmp_path, monkeypatch):
    changed = comparison.STORED.read_text("utf-8").replace(
        "shapes-edge,", "shapes-edge,0"
    )
    path = tmp_path / "networks.csv"
    path.write_text(changed)
    monkeypatch.setattr(comparison, "STORED", path)
    with pytest.raises(ValueError, match="shapes-edge"):
        comparison.of_embedded(shown)


def test_published_people_are_those_of_the_docs():
    """docs/published-shape-biases.md: 0.9587 of 9,634 decisions, kappa 0.331."""
    people = comparison.published_people()
    assert (round(people.shape_bias, 4), people.count) == (0.9587, 10)
    assert round(people.kappa, 3) == 0.331


def test_noise_is_pink():
    """Amplitude falls as 1 / frequency, around mid-grey; another seed, other noise."""
    noise = masks.make(seed=1, count=8) / 255 - 0.5
    size = noise.shape[1]
    amplitude = np.abs(np.fft.fft2(noise)).mean(0)
    frequency = np.hypot(np.fft.fftfreq(size)[:, None], np.fft.fftfreq(size)[None])
    is_low = (frequency > 2 / size) & (frequency < 0.35)
    slope, _ = np.polyfit(np.log(frequency[is_low]), np.log(amplitude[is_low]), 1)
    assert slope == pytest.approx(-1, abs=0.05)
    assert noise.mean() == pytest.approx(0, abs=0.005)
    assert noise.std() == pytest.approx(masks.STD, abs=0.02)
    assert not np.array_equal(masks.make(seed=1), masks.make(seed=2))


CONFLICTS = [
    f"{a}{i}-{b}{i}" for a, b in (("cat", "dog"), ("dog", "cat")) for i in (1, 2, 3)
]


def test_a_folder_of_cue_conflicts(tmp_path):
    """Names say both classes; each class has equally many images, drawn by the seed."""
    for i, name in enumerate([*CONFLICTS, "cat9-cat9"]):
        draw(tmp_path / name[:3] / f"{name}.png", value=i)
    shown = stimuli.from_folder(str(tmp_path), num_images=5, seed=1)
    (group,) = shown.groups
    assert shown.classes == stimuli.stimulus_names.CLASSES16 and group.has_conflicts
    assert shown.note == "3 of 7 images are left out"
    names = [shown.classes[i] for i in group.label]
    assert collections.Counter(names) == {"cat": 2, "dog": 2}
    for image, label, texture in zip(
        group.images, group.label, group.texture, strict=True
    ):
        assert image.startswith(f"{shown.classes[label]}/{shown.classes[label]}")
        assert f"-{shown.classes[texture]}" in image
    samples = {
        stimuli.from_folder(str(tmp_path), num_images=2, seed=s).groups[0].images
        for s in range(6)
    }
    assert len(samples) > 1


def test_images_are_in_the_folder_itself_or_in_folders_of_any_name(tmp_path):
    """Names of cue conflicts and trials of model-vs-human say the classes, wherever the files are."""
    for i, name in enumerate(CONFLICTS):
        draw(tmp_path / "flat" / f"{name}.png", value=i)
        draw(tmp_path / "folders" / f"batch{i % 2}" / f"{name.upper()}.PNG", value=i)
    flat, folders = (
        stimuli.from_folder(str(tmp_path / name)).groups[0]
        for name in ("flat", "folders")
    )
    assert sorted(flat.images) == sorted(f"{name}.png" for name in CONFLICTS)
    assert {*flat.ids} == {*folders.ids} == {*CONFLICTS}
    for name in ("cat", "dog"):
        draw(tmp_path / "trials" / f"0001_cr_dnn_0_{name}_00_n01-{name}.png")
    (group,) = stimuli.from_folder(str(tmp_path / "trials")).groups
    labels = {stimuli.stimulus_names.CLASSES16[i] for i in group.label}
    assert labels == {"cat", "dog"}


def test_a_folder_of_class_folders_and_the_size(tmp_path):
    for name in ("owl", "tree"):
        draw(tmp_path / name / "a.jpg", side=100, value=9)
        draw(tmp_path / name / "b.png", side=30, value=9)
    draw(tmp_path / ".hidden" / "x.png")
    shown = stimuli.from_folder(str(tmp_path), size=50)
    (group,) = shown.groups
    assert shown.classes == ("owl", "tree") and not group.has_conflicts
    sides = {
        x: pixels(y).shape[:2]
        for x, y in zip(group.images, group.pictures, strict=True)
    }
    assert sides["owl/a.jpg"] == (50, 50) and sides["owl/b.png"] == (30, 30)


def export(folder, rows):
    """Write a folder as `jbias export-stimuli` does."""
    header = ("id", "set", "condition", "imagename", "category", "texture", "exact")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "index.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerows([header, *[(i, *row, "yes") for i, row in enumerate(rows)]])
    for i, (_, _, name, *_) in enumerate(rows):
        draw(folder / name, value=i)


EXPORTED = [
    ("cues", "", "cues/as it is/0.png", "star", "moon"),
    ("cues", "", "cues/as it is/1.png", "moon", "star"),
    ("plain", "fog", "plain/fog/0.png", "star", ""),
    ("plain", "fog", "plain/fog/1.png", "moon", ""),
]


def test_a_folder_of_exported_stimuli(tmp_path):
    export(tmp_path, EXPORTED)
    (group,) = stimuli.from_folder(str(tmp_path), set_name="cues").groups
    assert {*group.images} == {"cues/as it is/0.png", "cues/as it is/1.png"}
    assert group.has_conflicts
    (group,) = stimuli.from_folder(str(tmp_path), set_name="plain/fog").groups
    assert not group.has_conflicts
    for name in ("", "other"):
        with pytest.raises(ValueError, match="cues, plain/fog"):
            stimuli.from_folder(str(tmp_path), set_name=name)


def test_an_index_may_not_name_files_elsewhere(tmp_path):
    export(tmp_path / "in", EXPORTED[:1])
    index = tmp_path / "in" / "index.csv"
    index.write_text(index.read_text().replace("cues/as it is/0.png", "../secret.png"))
    with pytest.raises(ValueError, match=r"secret\.png"):
        stimuli.from_folder(str(tmp_path / "in"))


def test_people_and_networks_of_the_standing_table_decided_about_published_images(
    tmp_path,
):
    names = letter_answers.images()[:40:3]
    for name in names:
        draw(tmp_path / f"{name}.png")
    label = {
        name.rstrip("0123456789").split("-")[0].rstrip("0123456789") for name in names
    }
    shown = stimuli.from_folder(str(tmp_path), num_images=16)
    people, resnet, stylized = comparison.of_folder(shown)
    assert people.name == "10 people" and people.decisions[0].shape[0] == 10
    assert "ResNet-50" in resnet.name and "Stylized" in stylized.name
    table = {x.name: x for x in letter_answers.standing_table()}
    member = table["texture-vs-shape/resnet50"]
    known = dict(zip(member.images, member.decision, strict=True))
    assert resnet.decisions[0][0].tolist() == [known[x] for x in shown.groups[0].ids]
    assert label <= {*shown.classes}


def test_decisions_of_models_are_matched_by_name(tmp_path):
    folder = tmp_path / "in"
    export(folder, EXPORTED[:2])
    path = tmp_path / "mine.csv"
    path.write_text(
        "model,imagename,object_response,category,texture\n"
        "net,cues/as it is/1.png,star,moon,star\n"
    )
    shown = stimuli.from_folder(str(folder))
    (network,) = comparison.of_folder(shown, str(path))
    decided = dict(zip(shown.groups[0].images, network.decisions[0][0], strict=True))
    assert decided["cues/as it is/1.png"] == shown.classes.index("star")
    assert decided["cues/as it is/0.png"] == observers.NO_ROW
    path.write_text(path.read_text().replace("/1.png", "/7.png"))
    with pytest.raises(ValueError, match="--decisions"):
        comparison.of_folder(shown, str(path))


@cases.each(
    ("arguments", "message"),
    [
        (["--set=a"], "--set: is for --stimuli"),
        (["--decisions=a.csv"], "--decisions: is for --stimuli"),
        (["--stimuli=nowhere"], "must be a folder"),
        (["--stimuli=."], "must have images"),
        (["--stimuli=damaged"], "damaged"),
        (["--stimuli=two", "--images=1"], "--images: must be at least 2"),
        (["--stimuli=flat"], "cat7-elephant1.png"),
        (["--stimuli=single"], "give a folder with more"),
        (["--stimuli=formula"], "spreadsheets"),
        (["--stimuli=two", "--set=a"], "--set: is for a folder of"),
    ],
)
def test_refusals_are_one_line(arguments, message, tmp_path, monkeypatch, capsys):
    (tmp_path / "work").mkdir(exist_ok=True)
    monkeypatch.chdir(tmp_path / "work")
    if arguments[0] == "--stimuli=damaged":
        for name in ("a", "b"):
            draw(tmp_path / "work" / "damaged" / name / "x.png")
        (tmp_path / "work" / "damaged" / "a" / "x.png").write_bytes(b"no image")
    folders = (
        "two/a",
        "two/b",
        "single/a",
        "formula/=a",
        "formula/b",
        "flat",
        "flat/a",
    )
    for name in folders:
        if arguments[0] == f"--stimuli={name.split('/')[0]}":
            draw(tmp_path / "work" / name / "x.png")
    assert cli.main([*arguments, "--out=out"]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not (tmp_path / "work" / "out" / "index.html").exists()


def test_the_command_replaces_its_own_page_alone(tmp_path, capsys):
    for name in ("a", "b"):
        draw(tmp_path / "in" / name / "x.png")
    arguments = [f"--stimuli={tmp_path / 'in'}", f"--out={tmp_path / 'out'}"]
    assert cli.main(arguments) == cli.main(arguments) == 0
    path = tmp_path / "out" / page.NAME
    lines = capsys.readouterr().out.splitlines()
    assert [line.startswith(f"written: {path}") for line in lines] == [True, True]
    assert ["replaces the earlier page" in line for line in lines] == [False, True]
    (tmp_path / "out" / "notes.txt").write_text("mine")
    assert cli.main(arguments) == 0
    assert (tmp_path / "out" / "notes.txt").read_text() == "mine"
    path.write_text("mine")
    assert cli.main(arguments) == 2
    assert path.read_text() == "mine"


def test_the_page_is_written_to_the_folder_you(tmp_path, monkeypatch, capsys):
    """The default of --out; an empty --out, as of an unset variable, is refused."""
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        draw(tmp_path / "in" / name / "x.png")
    assert cli.main(["--stimuli=in"]) == 0
    assert (tmp_path / "you" / page.NAME).is_file()
    with pytest.raises(SystemExit):
        cli.main(["--stimuli=in", "--out="])
    assert "--out: must be a folder" in capsys.readouterr().err
    assert not (tmp_path / page.NAME).exists()


def test_refusals_load_no_slow_packages(tmp_path):
    """A refusal takes a second; jax, scipy.stats and matplotlib would take several."""
    script = (
        "import sys; from jbias.observing import cli; code = cli.main(sys.argv[1:]);"
        "print(code, *({'jax', 'scipy.stats', 'matplotlib'} & {*sys.modules}))"
    )
    arguments = [f"--stimuli={tmp_path}", f"--out={tmp_path / 'out'}"]
    command = [sys.executable, "-c", script, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout == "2\n" and "must have images" in result.stderr


def test_names_cannot_break_out_of_the_page(tmp_path):
    """A class or file name with marks of HTML stays text."""
    evil = "<script>alert(1)<"
    for name in (evil, "b"):
        draw(tmp_path / name / "x.png")
    text = page.to_html(stimuli.from_folder(str(tmp_path)), [])
    assert "<script>alert" not in text and "\\u003cscript>alert(1)" in text
