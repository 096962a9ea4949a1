"""From attributes to networks: given, drawn and found ones under a shift, end to end."""

import json

import numpy as np
import pytest
from PIL import Image

from jbias import data, prepare, train
from jbias.configs import erm
from tests import cases, smoke_runs

HAIR = ("Black_Hair", "Blond_Hair", "Brown_Hair", "Gray_Hair")
EACH = 30  # Images of each gender and hair, in training.


@pytest.fixture(scope="module")
def faces(tmp_path_factory):
    """CelebA in its file formats: the colour is the hair's, the brightness the gender's."""
    root, rng = tmp_path_factory.mktemp("celeba"), np.random.default_rng(0)
    flags, parts = [], []
    for part, count in ((0, EACH), (1, 4), (2, 4)):
        for male in (0, 1):
            for hair in range(-1, 4):
                # Of the first kind one in three, with two colours of hair.
                for _ in range(count if hair >= 0 else 2):
                    name = f"{len(flags) + 1:06}.jpg"
                    held = [male, *(hair in (-1, i) for i in range(4)), 1]
                    signs = "  ".join("1" if one else "-1" for one in held)
                    flags.append(f"{name} {signs}")
                    parts.append(f"{name} {part}")
                    pixels = rng.integers(0, 60, (22, 18, 3)) + 120 * male
                    pixels[..., max(hair, 0) % 3] += 60
                    path = root / "img_align_celeba" / name
                    path.parent.mkdir(exist_ok=True)
                    Image.fromarray(pixels.astype(np.uint8)).save(path)
    header = " ".join(("Male", *HAIR, "Young"))
    table = [str(len(flags)), header, *flags]
    (root / "list_attr_celeba.txt").write_text("\n".join(table) + "\n")
    (root / "list_eval_partition.txt").write_text("\n".join(parts) + "\n")
    return root


def of_faces(root, level: str, part: str):
    shift = dict(level=level, part=part)
    options = dict(root=str(root), size=8, label="Male", attribute="+".join(HAIR))
    return data.load("celeba", "train", shift=shift, **options)


def table(source) -> np.ndarray:
    found = np.zeros((2, 4), int)
    np.add.at(found, (source.columns["label"], source.columns["attribute"]), 1)
    return found


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
    parts = {p: of_faces(faces, level, p) for p in ("train", "valid", "id", "ood")}
    for part, source in parts.items():
        wanted = np.array(outside if part == "ood" else training)
        held = table(source)
        assert source.classes == ("not Male", "Male")
        assert source.values["attribute"] == HAIR
        assert held.sum(1)[0] == held.sum(1)[1]
        np.testing.assert_array_equal(held > 0, wanted > 0)
        share = held / held.sum(1, keepdims=True)
        assert abs(share - wanted / wanted.sum(1, keepdims=True)).max() < 0.2
    files = [name for source in parts.values() for name in source.files]
    assert len(files) == len({*files})
    only = of_faces(faces, "only-Gray_Hair", "train")
    assert table(only)[:, :3].sum() == 0 < table(only)[:, 3].min()


def test_every_flag_of_faces_may_be_shifted(faces):
    shift = dict(level="C6", part="train", attribute="Blond_Hair")
    options = dict(root=str(faces), size=8, label="Male", flags="all", shift=shift)
    source = data.load("celeba", "train", **options)
    assert {*source.values} == {"attribute", *HAIR, "Young"}
    found = np.zeros((2, 2), int)
    np.add.at(found, (source.columns["label"], source.columns["attribute"]), 1)
    assert found[0, 1] == found[1, 0] == 0 < found[0, 0]
    assert abs(found[0, 0] - found[1, 1]) <= 1


def tiny(argument: str):
    c = erm.get_config(f"{argument},model=cnn,smoke,seeds=1")
    with c.unlocked():
        c.size, c.model.width, c.train.batch, c.epochs = 32, 4, 32, 1.0
        c.inputs = ()
        c.run.devices = 1
    return c


def finished(config, workdir) -> tuple[dict, dict]:
    """Records by set of the last step, and what provenance says of each set."""
    assert train.run(config, workdir)
    rows = [r for r in smoke_runs.records(workdir) if r["metric"] == "accuracy"]
    last = max(r["step"] for r in rows)
    told = json.loads((workdir / "provenance.json").read_text())["data"]
    return {r["dataset"]: r for r in rows if r["step"] == last}, told


def test_the_preset_of_faces_trains_under_a_shift(faces, tmp_path):
    hair = "+".join(HAIR)
    c = tiny(f"data=celeba,root={faces},label=Male,attribute={hair},shift=C6")
    found, told = finished(c, tmp_path / "run")
    assert {*found} >= {"valid", "id", "ood"}
    assert told["train/0"]["values"]["attribute"] == [*HAIR]
    assert c.train.shift.attribute == hair and c.train.flags == "all"
    (first, second) = np.array(told["train/0"]["tables"]["attribute"])
    assert not first[2:].any() and not second[:2].any()


@pytest.mark.slow
def test_found_clusters_are_trained_on_one_by_one(tmp_path):
    """A run's own features give the attribute of the next."""
    first = tiny("shift=C6,attribute=background")
    found, told = finished(first, tmp_path / "first")
    assert {*found} >= {"valid", "id", "ood"}
    assert told["train/0"]["values"]["background"] == ["dark", "light"]
    out = tmp_path / "clusters"
    arguments = ["--data=shapes", "--n=512", f"--out={out}", "--k=3", "--shown=0"]
    network = f"--checkpoint={tmp_path / 'first'}"
    assert prepare.main(["clusters", network, *arguments, "--balanced"]) == 0
    of = f"columns={out / 'train.csv'},attribute=cluster"
    second = tiny(f"shift=only-D1,{of}")
    assert {*second.tests} == {"id", "ood-D2", "ood-D3"}
    found, told = finished(second, tmp_path / "second")
    assert told["train/0"]["values"]["cluster"] == ["D1", "D2", "D3"]
    counts = np.array(told["train/0"]["tables"]["attribute"])
    assert counts[:, 0].all() and not counts[:, 1:].any()
    sizes = [found[name]["n"] for name in ("ood-D2", "ood-D3")]
    assert sum(sizes) + told["train/0"]["n"] + 2 * found["id"]["n"] == 512
