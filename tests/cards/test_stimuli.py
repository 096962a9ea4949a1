"""Cards name the images that were decided about, and their tables can be read again."""

import numpy as np
import pytest
from PIL import Image

from jbias.cards import cli, published, stimuli, tables, verify
from jbias.data import tables as data_tables
from jbias.report import decisions as report
from tests.cards import planted


def table(images, dataset="cue-conflict"):
    """Return a table of images without decisions."""
    shape, texture = zip(*map(published.cues, images))
    return tables.Table(
        dataset=dataset,
        num_classes=16,
        images=tuple(images),
        label=shape,
        texture=texture if texture[0] else None,
        decided={"": ("na",) * len(images)},
    )


CONFLICTS = planted.CONFLICTS[:3]
OWN = ("airplane77-bicycle1", "bear1-bicycle77")
EDGES = ("airplane1", "truck10")


@pytest.mark.parametrize(
    ("source", "images", "data", "path", "expected"),
    [
        ("geirhos/cue-conflict", CONFLICTS, "geirhos", "", "geirhos/cue-conflict"),
        ("geirhos/cue-conflict", OWN, "geirhos", "", "folder drawings"),
        ("geirhos/cue-conflict", (*CONFLICTS, *OWN), "geirhos", "", "folder drawings"),
        ("geirhos/cue-conflict", ("000000",), "geirhos", "", "folder drawings"),
        ("geirhos/cue-conflict", OWN, "geirhos", "a/mine.csv", "table mine.csv"),
        ("geirhos/edge", EDGES, "geirhos", "", "geirhos/edge"),
        ("geirhos/edge", ("airplane11",), "geirhos", "", "folder drawings"),
        (
            "geirhos/cue-conflict",
            CONFLICTS,
            "folder",
            "",
            "folder geirhos/cue-conflict",
        ),
        ("imagenet/val", ("photo1",), "imagenet", "", "folder drawings"),
        ("imagenet/val", ("ilsvrc2012_val_00000001",), "imagenet", "", "imagenet/val"),
        ("imagenet/val", CONFLICTS, "my.py:make", "", "own imagenet/val"),
        ("decisions/images", OWN, "decisions", "a/mine.csv", "table mine.csv"),
        ("decisions/mine", OWN, "decisions", "a/mine.csv", "set mine"),
        ("shapes/cue_conflict", ("000000",), "shapes", "", "shapes/cue_conflict"),
    ],
)
def test_only_published_images_have_a_published_name(
    source, images, data, path, expected
):
    name = stimuli.name_of(
        source, [table(images)], data=data, root="x/drawings", table=path
    )
    assert name == expected


def test_published_sets_have_their_numbers_of_images():
    counts = {
        "geirhos/cue-conflict": 1280,
        "geirhos/edge": 160,
        "geirhos/silhouette": 160,
        "model_vs_human/sketch": 800,
        "model_vs_human/contrast/c05": 160,
        "imagenet/val": 50_000,
        "imagenet/val[:10%]": 50_000,
        "folder geirhos/edge": None,
        "shapes/cue_conflict": None,
        "mine": None,
    }
    assert {name: published.count(name) for name in counts} == counts
    for name in list(counts)[:3]:
        assert len(published.image_names(name)) == counts[name]


def test_names_of_published_files_are_those_of_the_list():
    files = [f"{name.partition('-')[0][:-1]}/{name}.png" for name in planted.CONFLICTS]
    assert {*map(published.image_id, files)} == {*data_tables.cue_conflicts()}


def test_a_set_that_is_not_published_has_another_name_than_the_published():
    drawings = table(OWN)
    entry = {"name": "folder drawings", "published": None}
    (renamed,), entries = stimuli.rename_own([drawings], {"cue-conflict": entry})
    assert renamed.dataset == "own-cue-conflict" and entries == {renamed.dataset: entry}
    entry = {"name": "shapes/edge", "published": None}
    (renamed,), _ = stimuli.rename_own([table(EDGES, dataset="edge")], {"edge": entry})
    assert renamed.dataset == "shapes-edge"
    entry = {"name": "geirhos/cue-conflict", "published": 1280}
    (renamed,), entries = stimuli.rename_own([drawings], {"cue-conflict": entry})
    assert renamed.dataset == "cue-conflict" and [*entries] == ["cue-conflict"]


@pytest.mark.parametrize(
    ("names", "label", "texture", "expected"),
    [
        (("cat/1.jpg", "dog/1.jpg"), ("cat", "dog"), ("dog", "cat"), True),
        (("1.jpg", "1.jpg"), ("cat", "dog"), None, False),
        (("cat1-dog77.png",), ("cat",), ("dog",), True),
        (("cat1-dog77.png",), ("dog",), ("cat",), False),
        (("cat1-dog77.png",), ("cat",), None, False),
        (("cat1-dog77.png", "a.png"), ("cat", "cat"), ("dog", "dog"), False),
    ],
)
def test_names_that_say_other_classes_are_no_names_for_a_table(
    names, label, texture, expected
):
    assert stimuli.are_readable(names, label, texture) == expected


def write_own_table(path):
    """Write a table of 120 decisions on cue conflicts of one's own; return its path."""
    kinds, lines = ("red", "green", "blue"), []
    for i in range(120):
        shape, texture = kinds[i % 3], kinds[(i + 1) % 3]
        answer = (shape, texture, texture)[i // 3 % 3]
        lines.append(f"{shape}/{i}.png,{answer},{shape},{texture}")
    header = "imagename,object_response,category,texture"
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def check_readable(folder, tmp_path):
    """Check that the table of a card is read by `jbias measure` and `jbias report decisions`."""
    content = planted.read(folder)
    (entry,) = content["decisions"]
    path = folder / entry["file"]
    flags = [f"--out={tmp_path / 'again'}", f"--cards={tmp_path / 'cards-again'}"]
    assert cli.main([str(path), *flags]) == 0
    (again,) = (tmp_path / "cards-again").iterdir()
    numbers = planted.read(again)["numbers"]
    keys = ("name", "value", "count", "n", "neither", "unanswered")
    assert [[x[key] for key in keys] for x in numbers] == [
        [x[key] for key in keys] for x in content["numbers"] if x["name"] != "accuracy"
    ]
    page = [f"--decisions={path}", f"--out={tmp_path / 'page'}"]
    assert not report.main(page)
    assert (tmp_path / "page/index.html").exists()


def test_the_table_of_ones_own_conflicts_is_named_and_read_again(tmp_path):
    path = write_own_table(tmp_path / "mine.csv")
    flags = [f"--out={tmp_path / 'measured'}", f"--cards={tmp_path / 'cards'}"]
    assert cli.main([str(path), *flags]) == 0
    folder = tmp_path / "cards/mine"
    content = planted.read(folder)
    assert content["stimuli"]["images"]["name"] == "table mine.csv"
    assert "shape bias on table mine.csv" in (folder / "badge.svg").read_text()
    assert not verify.verify(folder).differences
    changed = {**content["stimuli"]["images"], "digest": "0" * 64}
    planted.save(folder, {**content, "stimuli": {"images": changed}}, sealed=True)
    lines = verify.verify(folder).differences
    assert any("digest is 0000" in line for line in lines)
    check_readable(folder, tmp_path)


MODEL = """
import numpy as np

def predict(images):
    red = np.asarray(images, np.float32)[:, :, :, 0].mean((1, 2))
    return np.eye(16, dtype=np.float32)[(red * 15.9).astype(int) % 16]
"""


@pytest.mark.slow
def test_drawings_in_a_folder_are_not_called_published(tmp_path):
    """Drawings in folders as the published ones, with names as theirs and with other names."""
    (tmp_path / "model.py").write_text(MODEL)
    for form in ("{shape}{i}-{texture}99", "drawing {i} of {texture}-{texture}1"):
        place = tmp_path / f"set{len(form)}"
        root = place / "geirhos"
        for k, shape in enumerate(planted.CLASSES):
            (root / "cue-conflict" / shape).mkdir(parents=True)
            for i in range(1, 16):
                texture = planted.CLASSES[(k + i) % 16]
                name = form.format(shape=shape, texture=texture, i=i)
                pixels = np.full((8, 8, 3), 16 * ((k + i * (i % 2)) % 16) + 8, np.uint8)
                path = root / "cue-conflict" / shape / f"{name}.png"
                Image.fromarray(pixels).save(path)
        flags = [f"--out={place / 'measured'}", f"--cards={place / 'cards'}"]
        flags += [f"--stimuli={root}", "--classes=geirhos16", "--size=8"]
        model = str(tmp_path / "model.py")
        assert cli.main([model, "--only=shape_bias", *flags]) == 0
        folder = place / "cards/model"
        content = planted.read(folder)
        (entry,) = content["stimuli"].values()
        assert [*content["stimuli"]] == ["own-cue-conflict"]
        assert entry["name"] == "folder geirhos" and entry["published"] is None
        assert not verify.verify(folder).differences
        check_readable(folder, place)
