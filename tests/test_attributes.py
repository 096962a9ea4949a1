"""Shifts of attributes end to end: annotated, drawn, and found by clustering."""

import json

import numpy as np
import pytest
from PIL import Image

from jbias import data, prepare, train
from jbias.configs import erm
from tests import cases, smoke_runs

HAIR = ("Black_Hair", "Blond_Hair", "Brown_Hair", "Gray_Hair")
PER_CELL = 30  # Images of each gender and hair, in training.


@pytest.fixture(scope="module")
def faces(tmp_path_factory):
    """Write a small CelebA: the colour encodes the hair, the brightness the gender."""
    root, rng = tmp_path_factory.mktemp("celeba"), np.random.default_rng(0)
    flags, partition_lines = [], []
    for partition, count in ((0, PER_CELL), (1, 4), (2, 4)):
        for male in (0, 1):
            for hair in range(-1, 4):
                # hair = -1 means two colours of hair; these images are rarer.
                for _ in range(count if hair >= 0 else 2):
                    name = f"{len(flags) + 1:06}.jpg"
                    row = [male, *(hair in (-1, i) for i in range(4)), 1]
                    signs = "  ".join("1" if flag else "-1" for flag in row)
                    flags.append(f"{name} {signs}")
                    partition_lines.append(f"{name} {partition}")
                    pixels = rng.integers(0, 60, (22, 18, 3)) + 120 * male
                    pixels[..., max(hair, 0) % 3] += 60
                    path = root / "img_align_celeba" / name
                    path.parent.mkdir(exist_ok=True)
                    Image.fromarray(pixels.astype(np.uint8)).save(path)
    header = " ".join(("Male", *HAIR, "Young"))
    count_cells = [str(len(flags)), header, *flags]
    (root / "list_attr_celeba.txt").write_text("\n".join(count_cells) + "\n")
    (root / "list_eval_partition.txt").write_text("\n".join(partition_lines) + "\n")
    return root


def load_faces(root, level: str, part: str):
    shift = dict(level=level, part=part)
    options = dict(root=str(root), size=8, label="Male", attribute="+".join(HAIR))
    return data.load("celeba", "train", shift=shift, **options)


def count_cells(source) -> np.ndarray:
    counts = np.zeros((2, 4), int)
    np.add.at(counts, (source.columns["label"], source.columns["attribute"]), 1)
    return counts


@cases.each(
    ("level", "training", "outside"),
    [
        ("M4", [[1, 1, 0, 0]] * 2, [[0, 0, 1, 1]] * 2),
        ("C6", [[1, 1, 0, 0], [0, 0, 1, 1]], [[0, 0, 1, 1], [1, 1, 0, 0]]),
        ("J4", [[1, 1, 0, 0], [0, 1, 1, 0]], [[0, 0, 1, 1], [1, 0, 0, 1]]),
        ("C0", [[1, 1, 1, 1]] * 2, [[1, 1, 1, 1]] * 2),
    ],
)
def test_hair_of_faces_is_shifted(faces, level, training, outside):
    sources = {p: load_faces(faces, level, p) for p in ("train", "valid", "id", "ood")}
    for part_name, source in sources.items():
        expected_cells = np.array(outside if part_name == "ood" else training)
        counts = count_cells(source)
        assert source.classes == ("not Male", "Male")
        assert source.values["attribute"] == HAIR
        assert counts.sum(1)[0] == counts.sum(1)[1]
        np.testing.assert_array_equal(counts > 0, expected_cells > 0)
        share = counts / counts.sum(1, keepdims=True)
        assert (
            abs(share - expected_cells / expected_cells.sum(1, keepdims=True)).max()
            < 0.2
        )
    files = [name for source in sources.values() for name in source.files]
    assert len(files) == len({*files})
    only = load_faces(faces, "only-Gray_Hair", "train")
    assert count_cells(only)[:, :3].sum() == 0 < count_cells(only)[:, 3].min()


def test_every_flag_of_faces_may_be_shifted(faces):
    shift = dict(level="C6", part="train", attribute="Blond_Hair")
    options = dict(root=str(faces), size=8, label="Male", flags="all", shift=shift)
    source = data.load("celeba", "train", **options)
    assert {*source.values} == {"attribute", *HAIR, "Young"}
    counts = np.zeros((2, 2), int)
    np.add.at(counts, (source.columns["label"], source.columns["attribute"]), 1)
    assert counts[0, 1] == counts[1, 0] == 0 < counts[0, 0]
    assert abs(counts[0, 0] - counts[1, 1]) <= 1


def small_config(argument: str):
    c = erm.get_config(f"{argument},model=cnn,smoke,seeds=1")
    with c.unlocked():
        c.size, c.model.width, c.train.batch, c.epochs = 32, 4, 32, 1.0
        c.inputs = ()
        c.run.devices = 1
    return c


def train_and_read(config, workdir) -> tuple[dict, dict]:
    """Train a run; return the last accuracy record and the provenance of each set."""
    assert train.run(config, workdir)
    rows = [r for r in smoke_runs.records(workdir) if r["metric"] == "accuracy"]
    last = max(r["step"] for r in rows)
    set_facts = json.loads((workdir / "provenance.json").read_text())["data"]
    return {r["dataset"]: r for r in rows if r["step"] == last}, set_facts


def test_the_preset_of_faces_trains_under_a_shift(faces, tmp_path):
    hair = "+".join(HAIR)
    c = small_config(f"data=celeba,root={faces},label=Male,attribute={hair},shift=C6")
    records, facts_of_sets = train_and_read(c, tmp_path / "run")
    assert {*records} >= {"valid", "id", "ood"}
    assert facts_of_sets["train/0"]["values"]["attribute"] == [*HAIR]
    assert c.train.shift.attribute == hair and c.train.flags == "all"
    (first, second) = np.array(facts_of_sets["train/0"]["tables"]["attribute"])
    assert not first[2:].any() and not second[:2].any()


@pytest.mark.slow
def test_clusters_of_features_become_the_attribute_of_another_run(tmp_path):
    """The features of the first run give the attribute of the second."""
    first = small_config("shift=C6,attribute=background")
    records, facts_of_sets = train_and_read(first, tmp_path / "first")
    assert {*records} >= {"valid", "id", "ood"}
    assert facts_of_sets["train/0"]["values"]["background"] == ["dark", "light"]
    out = tmp_path / "clusters"
    arguments = ["--data=shapes", "--n=512", f"--out={out}", "--k=3", "--shown=0"]
    network = f"--checkpoint={tmp_path / 'first'}"
    assert prepare.main(["clusters", network, *arguments, "--balanced"]) == 0
    cluster_arguments = f"columns={out / 'train.csv'},attribute=cluster"
    second = small_config(f"shift=only-D1,{cluster_arguments}")
    assert {*second.tests} == {"id", "ood-D2", "ood-D3"}
    records, facts_of_sets = train_and_read(second, tmp_path / "second")
    assert facts_of_sets["train/0"]["values"]["cluster"] == ["D1", "D2", "D3"]
    counts = np.array(facts_of_sets["train/0"]["tables"]["attribute"])
    assert counts[:, 0].all() and not counts[:, 1:].any()
    sizes = [records[name]["n"] for name in ("ood-D2", "ood-D3")]
    assert sum(sizes) + facts_of_sets["train/0"]["n"] + 2 * records["id"]["n"] == 512
