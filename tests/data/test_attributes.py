"""Data sets with an attribute besides the class: CelebA, and the user's own folders or
lists.
"""

import numpy as np
import pytest

from jbias import data
from jbias.data import base, set_options, tables
from tests import cases

FLAGS = ("Black_Hair", "Blond_Hair", "Gray_Hair", "Male")
# Black, blond, grey, male, part; images 1 to 6.
ROWS = ("1-0-0-1 0", "0-1-0-0 0", "0-0-1-1 0", "0-1-0-1 0", "1-1-0-0 0", "0-0-0-1 2")


@pytest.fixture
def faces(tmp_path, image):
    flag_lines, partition_lines = [str(len(ROWS)), " ".join(FLAGS) + " "], []
    for i, row in enumerate(ROWS, start=1):
        cells, part = row.split()
        image(tmp_path / f"img_align_celeba/{i:06}.jpg", (18, 22))
        flag_cells = " ".join("1" if cell == "1" else "-1" for cell in cells.split("-"))
        flag_lines.append(f"{i:06}.jpg  {flag_cells}")
        partition_lines.append(f"{i:06}.jpg {part}")
    (tmp_path / "list_attr_celeba.txt").write_text("\n".join(flag_lines) + "\n")
    (tmp_path / "list_eval_partition.txt").write_text("\n".join(partition_lines) + "\n")
    return tmp_path


def add_line(root, line):
    with (root / "list_eval_partition.txt").open("a") as file:
        file.write(f"{line}\n")


def labels_by_file(source) -> dict[str, tuple[int, int]]:
    """Return {file: (label, attribute)}."""
    columns = source.columns["label"], source.columns["attribute"]
    return dict(zip(source.files, zip(*(c.tolist() for c in columns)), strict=True))


def test_a_class_and_an_attribute_of_faces(faces):
    source = data.load("celeba", "train", root=str(faces), size=8)
    assert source.classes == ("not Blond_Hair", "Blond_Hair")
    assert source.values == {"attribute": ("not Male", "Male")}
    assert labels_by_file(source) == {
        "000001.jpg": (0, 1),
        "000003.jpg": (0, 1),
        "000002.jpg": (1, 0),
        "000004.jpg": (1, 1),
        "000005.jpg": (1, 0),
    }
    assert source.columns["attribute"].dtype == np.int32
    assert source[0]["image"].shape == (8, 8, 3)
    assert source.note == "5 images on disk, the published set has 162,770"
    assert len(data.load("celeba", "test", root=str(faces), size=8)) == 1


def test_images_need_exactly_one_of_several_attributes(faces):
    options = dict(root=str(faces), size=8, label="Male")
    hair = "Black_Hair+Blond_Hair+Gray_Hair"
    source = data.load("celeba", "train", attribute=hair, **options)
    assert source.values == {"attribute": tuple(hair.split("+"))}
    assert labels_by_file(source) == {
        "000002.jpg": (0, 1),
        "000001.jpg": (1, 0),
        "000003.jpg": (1, 2),
        "000004.jpg": (1, 1),
    }
    published = "5 images on disk, the published set has 162,770"
    assert source.note == f"{published}; 1 with none or several of {hair} left out"


def test_the_folders_of_the_authors_are_recognised(faces):
    for place, name in (
        ("Anno", "list_attr_celeba.txt"),
        ("Eval", "list_eval_partition.txt"),
        ("Img", "img_align_celeba"),
    ):
        (faces / place).mkdir()
        (faces / name).rename(faces / place / name)
    assert len(data.load("celeba", "train", root=str(faces), size=8)) == 5


def test_further_attributes_of_faces_are_columns(faces):
    options = dict(root=str(faces), size=8)
    plain = data.load("celeba", "train", **options)
    selected = data.load("celeba", "train", flags="Gray_Hair+Male", **options)
    assert selected.files == plain.files and selected.fingerprint != plain.fingerprint
    assert [*selected.values] == ["attribute", "Male", "Gray_Hair"]
    np.testing.assert_array_equal(selected.columns["Male"], plain.columns["attribute"])
    grey = dict(
        zip(selected.files, selected.columns["Gray_Hair"].tolist(), strict=True)
    )
    assert [name for name, value in grey.items() if value] == ["000003.jpg"]
    assert selected.values["Gray_Hair"] == ("not Gray_Hair", "Gray_Hair")
    all_flags = data.load("celeba", "train", flags="all", **options)
    assert {*all_flags.values} == {"attribute", *FLAGS} - {"Blond_Hair"}
    hair = "Black_Hair+Blond_Hair+Gray_Hair"
    source = data.load(
        "celeba", "train", attribute=hair, label="Male", flags="Male", **options
    )
    assert source.values[hair] == source.values["attribute"] == tuple(hair.split("+"))


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (None, {"flags": "Male+Grey_Hair"}, "did you mean 'Gray_Hair'"),
        (None, {"label": "Blonde_Hair"}, "did you mean 'Blond_Hair'"),
        (None, {"attribute": "Blond_Hair"}, "must be different ones of the 4"),
        (None, {"attribute": "Male+Male"}, "must be different ones of the 4"),
        (
            lambda r: (r / "img_align_celeba/000002.jpg").unlink(),
            {},
            "1 are not, first",
        ),
        (
            lambda r: (r / "list_attr_celeba.txt").write_text("1\na b\n000001.jpg 1\n"),
            {},
            "list_attr_celeba.txt:3: a line must read <file> and 2 of",
        ),
        (
            lambda r: (r / "list_attr_celeba.txt").write_text("1\na b\n"),
            {},
            "5 have none, first '000001.jpg'",
        ),
        (
            lambda r: (r / "list_eval_partition.txt").write_text("000001.jpg\n"),
            {},
            "list_eval_partition.txt:1: a line must read",
        ),
        (
            lambda r: add_line(r, "000006.jpg 3"),
            {},
            "list_eval_partition.txt:7: a line must read <file> <0, 1 or 2>",
        ),
        (
            lambda r: add_line(r, "../img_align_celeba/000006.jpg 0"),
            {},
            "list_eval_partition.txt:7: a line must read <file> <0, 1 or 2>",
        ),
        (
            lambda r: add_line(r, "000001.jpg 2"),
            {},
            "in one part, 1 have several lines, first '000001.jpg'",
        ),
        (
            lambda r: (r / "list_eval_partition.txt").unlink(),
            {},
            "needs 'list_eval_partition.txt' .*expected: faces .*1.5 GB packed",
        ),
    ],
)
def test_other_faces_are_refused(faces, change, options, message):
    if change:
        change(faces)
    with pytest.raises(ValueError, match=message) as refused:
        data.load("celeba", "train", root=str(faces), **options)
    assert "\n" not in str(refused.value)


def test_attributes_are_folders_inside_classes(tree):
    root = tree({"train/cat/snow": 2, "train/cat/grass": 3, "train/dog/beach": 2})
    source = data.load("attributed", "train", root=str(root), size=8)
    assert source.classes == ("cat", "dog")
    assert source.values == {"attribute": ("beach", "grass", "snow")}
    assert (
        list(labels_by_file(source).values())
        == [(0, 1)] * 3 + [(0, 2)] * 2 + [(1, 0)] * 2
    )
    half = data.load("attributed", "train[:50%]", root=str(root), size=8)
    assert labels_by_file(half).items() <= labels_by_file(source).items()
    assert half.values == source.values
    assert source[0]["attribute"] == 1


def test_a_list_gives_the_same_as_folders(tree):
    root = tree({"train/cat/snow": 2, "train/cat/grass": 3, "train/dog/beach": 2})
    source = data.load("attributed", "train", root=str(root), size=8)
    lines = [
        "file,class,attribute",
        *(
            f"train/{name},{source.classes[label]},{source.values['attribute'][value]}"
            for name, (label, value) in reversed(labels_by_file(source).items())
        ),
    ]
    (root / "listed.csv").write_text("\n".join(lines))
    listed = data.load("attributed", "listed", root=str(root), size=8)
    assert {
        f"train/{k}": v for k, v in labels_by_file(source).items()
    } == labels_by_file(listed)
    assert [*labels_by_file(listed)] == [
        f"train/{name}" for name in labels_by_file(source)
    ]
    assert (listed.classes, listed.values) == (source.classes, source.values)
    np.testing.assert_array_equal(listed[4]["image"], source[4]["image"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("file,class\n", "must have file, class and an attribute, got file, class"),
        ("file,attribute,hair\n", "must have file, class and an attribute, got"),
        ("file,class,hair,hair\n", "different names, got 'hair'"),
        ("file,class,attribute\n", "got the header alone"),
        (
            "file,class,attribute\na/000.png,cat,\n",
            "must have a line with class and attribute, got 1 lines",
        ),
        ("file,class,attribute\n,cat,snow\n", "listed.csv:2: a line must have an"),
        (
            "file,class,attribute\na/000.png,cat,snow, deep\n",
            "listed.csv:2: .* as many cells as the header, 3, got 4; quote commas",
        ),
        (
            "file,class,attribute\na/9.png,cat,snow\n",
            "2: files must be there and exist",
        ),
        (
            "file,class,attribute\na/000.png,cat,snow\na/000.png,dog,snow\n",
            "listed.csv:3: files must be there once: 'a/000.png'",
        ),
    ],
)
def test_other_lists_are_refused(tree, text, message):
    root = tree({"a": 1})
    (root / "listed.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        data.load("attributed", "listed", root=str(root))


@cases.each("name", ["{elsewhere}/a.jpg", "../elsewhere/a.jpg", "a/../a/000.png"])
def test_a_list_names_no_file_outside_its_folder(name, tree, image):
    root = tree({"a": 1})
    elsewhere = root.parent / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    image(elsewhere / "a.jpg", (8, 8))
    path = name.format(elsewhere=elsewhere)
    text = f"file,class,hair\na/000.png,cat,black\n{path},dog,brown\n"
    (root / "listed.csv").write_text(text)
    with pytest.raises(ValueError, match="listed.csv:3: files must lie below"):
        data.load("attributed", "listed", root=str(root))


def test_a_list_may_name_files_below_its_folder_in_every_spelling(tree):
    root = tree({"a": 3})
    text = f"file,class,hair\n./a/000.png,cat,black\n{root}/a/001.png,dog,brown\n"
    (root / "listed.csv").write_text(text)
    source = data.load("attributed", "listed", root=str(root), size=8)
    assert source.classes == ("cat", "dog") and source[1]["image"].shape == (8, 8, 3)


TABLE = """\
file,class,hair,smile,age,score,id,label,attribute
a/000.png,cat,black,yes,3,0.5,p0,x,u
a/001.png,dog,black,no,3,0.25,p1,x,v
a/002.png,dog,brown,,4,1,p2,x,u
a/003.png,cat,,yes,5,2,p3,x,v
a/004.png,,brown,no,5,3,p4,x,u
"""


@pytest.fixture
def table(tree, monkeypatch):
    """Function table(text, **options) that loads a list; columns of more than 3 values are
    no attributes.
    """
    monkeypatch.setattr(set_options, "MAX_VALUES", 3)
    root = tree({"a": 5})

    def load(text=TABLE, **options):
        (root / "listed.csv").write_text(text)
        return data.load("attributed", "listed", root=str(root), size=8, **options)

    return load


def values_of(source, name) -> list[str]:
    """Return the name of each image's value in a column."""
    return [source.values[name][value] for value in source.columns[name]]


def test_columns_of_a_table_are_attributes(table):
    source = table()
    assert source.classes == ("cat", "dog")
    assert [name[2:5] for name in source.files] == ["000", "003", "001", "002"]
    assert values_of(source, "attribute") == ["u", "v", "v", "u"]
    assert values_of(source, "hair") == ["black", "(none)", "black", "brown"]
    assert source.values["hair"] == ("black", "brown", "(none)")
    assert values_of(source, "smile") == ["yes", "yes", "no", "(none)"]
    assert source.values["age"] == ("3", "4", "5")
    assert [*source.values] == ["attribute", "hair", "smile", "age"]
    assert source.columns["hair"].dtype == np.int32
    assert source.note == (
        "1 images without class or attribute left out; no attributes: score (numbers"
        " that are not whole), id (4 values), label (batches have another of that name)"
    )
    assert table().fingerprint == source.fingerprint
    other = table(TABLE.replace("black,no", "brown,no"))
    assert other.files == source.files and other.fingerprint != source.fingerprint


def test_columns_are_chosen_as_class_and_attribute(table):
    source = table(label="hair", attribute="smile")
    assert source.classes == ("black", "brown")
    assert [name[2:5] for name in source.files] == ["000", "001", "004"]
    assert (
        values_of(source, "attribute")
        == values_of(source, "smile")
        == ["yes", "no", "no"]
    )
    assert values_of(source, "class") == ["cat", "dog", "(none)"]
    assert source.note.startswith(
        "2 images without hair or smile left out; no attributes: attribute (another is"
    )
    by_id = table(attribute="id")
    assert values_of(by_id, "attribute") == ["p0", "p3", "p1", "p2"]
    assert "id" not in by_id.columns


def test_several_columns_make_one(table):
    source = table(attribute="hair+smile")
    assert source.values["attribute"] == ("black no", "black yes")
    assert values_of(source, "attribute") == ["black yes", "black no"]
    assert [name[2:5] for name in source.files] == ["000", "001"]
    colliding_text = TABLE.replace("black,yes", "a b,c").replace("black,no", "a,b c")
    with pytest.raises(ValueError, match="values of hair.smile must differ when"):
        table(colliding_text, attribute="hair+smile")


def test_the_first_column_of_names_is_the_default_attribute(table):
    weather = table("file,class,weather\na/000.png,cat,sun\n")
    assert [*weather.values] == ["attribute", "weather"]
    three_columns = table("file,class,x,p,q\na/000.png,a,.5,u,v\na/001.png,a,1.5,u,w\n")
    assert values_of(three_columns, "attribute") == ["u", "u"]
    numbers = table("file,class,x\na/000.png,a,.5\na/001.png,a,1.5\n")
    assert numbers.values == {"attribute": (".5", "1.5")}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attribute": "hairs"}, "got 'hairs'; did you mean 'hair'"),
        ({"attribute": "hair+hair"}, "must name different columns"),
        ({"attribute": "class"}, "must name different columns beside file and class"),
        ({"label": "colour"}, "header must have file, colour and an attribute"),
    ],
)
def test_unknown_columns_are_refused(table, options, message):
    with pytest.raises(ValueError, match=message) as refused:
        table(**options)
    assert "\n" not in str(refused.value)


def test_folders_have_one_attribute(tree):
    root = tree({"train/cat/snow": 2, "train/dog/grass": 2})
    with pytest.raises(ValueError, match="must name columns of .*train.csv', got"):
        data.load("attributed", "train", root=str(root), attribute="hair")


def test_images_without_an_attribute_are_refused(tree):
    root = tree({"train/cat/snow": 2, "train/dog": 1})
    with pytest.raises(
        ValueError, match="1 lie directly in a class, first 'dog/000.png'"
    ):
        data.load("attributed", "train", root=str(root))


@pytest.mark.parametrize(
    ("split", "folder"), [("real_world", "Real World"), ("art", "Art")]
)
def test_office_home(tree, split, folder):
    classes = tables.class_names("office_home")
    root = tree({f"{folder}/{name}": 1 for name in classes})
    source = data.load("office_home", split, root=str(root), size=8)
    assert source.classes == classes
    images = data.DATASETS["office_home"].images
    published = f"{images[split]:,}"
    assert source.note == f"65 images on disk, the published set has {published}"
    assert sum(images.values()) == 15_588
    (root / folder / "Mug").rename(root / folder / "Mugs")
    with pytest.raises(ValueError, match="got 'Mugs'; did you mean 'Mug'"):
        data.load("office_home", split, root=str(root))
    with pytest.raises(base.Missing, match="expected: 65 classes .*about 1.1 GB"):
        data.load("office_home", "clipart", root=str(root))
