"""Pictures: the pixels are those of measuring, the maps those of the network."""

import re

import numpy as np
import pytest
from PIL import Image

from jbias import evaluate, look, looking, subjects, train
from jbias.evals import grad_cam, show
from jbias.report import saliency_figures
from tests import runs

SUITE = """
import ml_collections

def get_config(text=""):
    c = ml_collections.ConfigDict()
    c.size = 32
    c.run = dict(batch=48, decisions=False, step="latest")
    common = dict(data="shapes", correlation=0.99, n=48)
    c.sets = dict(
        edge=dict(split="edge", **common),
        test=dict(split="test", **common),
        photos=dict(data="geirhos", split="edge", root="nowhere"),
    )
    c.measures = dict(
        accuracy=dict(probe="plain", sets=("edge", "test", "photos")),
        receptive_field=dict(sets=("test",), images=8),
        grid_shuffle=dict(sets=("test",), grids=(2,)),
        cut_occlusion=dict(sets=("test",), fills=("black", "other"), others="edge"),
        mixing=dict(sets=("test",), methods=("fmix",)),
        spectral=dict(sets=("test",)),
        occlusion=dict(sets=("test",), fractions=(0.3,), site="stage2"),
        pgd=dict(sets=("test",), eps=0.1, steps=1, step_size=0.1),
    )
    return c
"""
STILL = ("grid_shuffle", "cut_occlusion", "mixing", "spectral", "occlusion")
MOVED = ("occlusion", "pgd")
ROWS = np.array([0, 12, 24, 35, 47])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("runs") / "erm"
    train.run(
        runs.small(epochs=1.0, eval_every="1 epoch", save_every="1 epoch"), workdir
    )
    return workdir


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("suites") / "mine.py"
    path.write_text(SUITE)
    return path


@pytest.fixture
def figs(monkeypatch):
    """By name, the figures that are written, which say where pictures lie."""
    found, write = {}, looking.Look.write

    def note(self, name, fig):
        found[name] = fig
        write(self, name, fig)

    monkeypatch.setattr(looking.Look, "write", note)
    return found


def draw(file, out, *args) -> int:
    return look.main([f"--suite={file}", f"--out={out}", "--images=5", *map(str, args)])


def cells(fig, path) -> dict[str, list[np.ndarray]]:
    """The part of a PNG that each picture takes, by column."""
    drawn = np.asarray(Image.open(path).convert("RGB"))
    high, wide, _ = drawn.shape
    titles = [text.get_text() for text in fig.texts if text.get_va() == "bottom"]
    found = {re.sub(r"(?<=_)\n", "", title).replace("\n", " "): [] for title in titles}
    assert len(found) * len(ROWS) == len(fig.axes)
    for axes, title in zip(fig.axes, np.repeat(list(found), len(ROWS)), strict=True):
        box = axes.get_position()
        x = [round(wide * value) for value in (box.x0, box.x1)]
        y = [round(high * (1 - value)) for value in (box.y1, box.y0)]
        found[title].append(drawn[slice(*y), slice(*x)])
    return found


def shown_in_measuring(file, run, out, monkeypatch) -> dict:
    """The stimuli of all images, by measure, condition and seed's network."""
    found, shown = {}, show.shown

    def note(network, made, batch, condition):
        stimuli = shown(network, made, batch, condition)
        np.testing.assert_array_equal(batch.index, np.arange(48))
        found.setdefault((made.numbers, condition), np.asarray(stimuli))
        return stimuli

    with monkeypatch.context() as patch:
        patch.setattr(show, "shown", note)
        for name in (*STILL, "pgd"):
            before = set(found)
            args = [f"--checkpoint={run}", f"--suite={file}", f"--only={name}"]
            assert evaluate.main([*args, f"--out={out}"]) == 0
            for key in set(found) - before:
                found[name, key[1]] = found.pop(key)
    return found


@pytest.fixture
def drawn(run, file, figs, tmp_path, monkeypatch, capsys):
    code = draw(file, tmp_path / "pictures", f"--checkpoint={run}", "--maps=48")
    assert code == 0, capsys.readouterr().err
    return tmp_path / "pictures"


def test_pixels_are_those_that_measuring_shows(
    run, file, drawn, figs, tmp_path, monkeypatch
):
    stimuli = shown_in_measuring(file, run, tmp_path / "measured", monkeypatch)
    (folder,) = (path.name for path in drawn.iterdir() if path.is_dir())
    compared = set()
    for name in (
        *(f"{one}@test" for one in STILL),
        *(f"{folder}/{one}@test" for one in MOVED),
    ):
        found = cells(figs[name], drawn / f"{name}.png")
        measure = name.rpartition("/")[2].partition("@")[0]
        clean = found.pop("as it is")
        for condition, pictures in found.items():
            expected = np.rint(255 * stimuli[measure, condition][ROWS])
            expected = expected.repeat(4, 1).repeat(4, 2)
            same = (np.stack(pictures) == expected).all(-1).mean()
            # In other batches sums are of other order, and salience may be a near tie.
            assert same == 1 if name.startswith(measure) else same > 0.98, condition
            assert not (np.stack(pictures) == np.stack(clean)).all() or (
                condition in ("unfiltered", "low 0.99")
            )
            compared.add((measure, condition))
    rest = set(stimuli) - compared
    assert {condition for _, condition in rest} == {""}, rest


def test_files_are_all_sheets_in_all_formats(drawn, figs):
    found = {str(path.relative_to(drawn)) for path in drawn.rglob("*.*")}
    (folder,) = (path.name for path in drawn.iterdir() if path.is_dir())
    names = {"accuracy", "saliency@test", "mean_saliency@test"}
    names |= {f"{one}@test" for one in STILL} | {
        f"{folder}/{one}@test" for one in MOVED
    }
    assert found == {f"{name}.{end}" for name in names for end in ("png", "svg", "pdf")}
    assert folder.startswith("erm-shapes-") and "-seed0-" in folder


def test_saliency_is_of_the_network_and_says_what_it_decides(
    run, file, tmp_path, monkeypatch
):
    seen, means = {}, {}
    over, mean = saliency_figures.over, saliency_figures.means
    monkeypatch.setattr(
        saliency_figures, "over", lambda *a, **k: seen.update(a=a, k=k) or over(*a, **k)
    )
    monkeypatch.setattr(
        saliency_figures, "means", lambda a, **k: means.update(a) or mean(a, **k)
    )
    args = (f"--runs={run}", "--seeds=0", "--only=accuracy", "--set=test", "--maps=48")
    assert draw(file, tmp_path, *args) == 0
    images, names, by_network = seen["a"]
    assert [*by_network] == ["erm/resnet18 seed 0", "erm/resnet18 seed 1"]
    assert names[0].startswith("0 ") and names[-1].startswith("47 ")
    assert seen["k"]["title"] == "Grad-CAM at stage2, test"  # Where occlusion looks.
    for subject, (name, one) in zip(
        subjects.from_run(str(run), step="latest"), by_network.items(), strict=True
    ):
        maps = grad_cam.of(subject.net, subject.variables, images, "stage2")
        np.testing.assert_allclose(one.maps, maps, atol=1e-4)
        logits = np.asarray(subject.apply(subject.variables, images), np.float64)
        share = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        decided = [subject.classes[k] for k in logits.argmax(-1)]
        assert decided == one.decided
        np.testing.assert_allclose(one.chance, share.max(-1), rtol=1e-4)
        labels = [name.partition(" ")[2] for name in names]
        assert one.right.tolist() == [a == b for a, b in zip(decided, labels)]
        assert means[name].count == 48 and means[name].map.shape == (32, 32)


def test_without_networks_what_they_make_is_left_out_and_told(
    file, figs, tmp_path, capsys
):
    assert (
        draw(file, tmp_path, "--set=test", "--only=occlusion,pgd,receptive_field") == 0
    )
    told = capsys.readouterr().err
    assert set(figs) == {"occlusion@test"}
    assert [*cells(figs["occlusion@test"], tmp_path / "occlusion@test.png")] == [
        *("as it is", "rectangle 0.3", "fourier 0.3")
    ]
    assert "pgd@test: without linf 25.5/255 1 steps" in told
    assert "receptive_field@test" in told and told.endswith(
        f"drew 1 figures in {tmp_path}\n"
    )


def test_what_cannot_be_looked_at_is_told_and_the_rest_is_drawn(
    run, file, figs, tmp_path, capsys
):
    args = (f"--checkpoint={run}", "--only=accuracy,occlusion", "--site=stage9")
    assert draw(file, tmp_path, *args, "--set=test", "--images=100") == 1
    told = capsys.readouterr().err
    assert "saliency@test: models.taps: site must be of" in told
    assert "test has 48 images, so 48 of each set are drawn" in told
    assert "1 not, see above" in told
    assert {name.partition("/")[2] for name in figs} == {"", "occlusion@test"}


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--set=tets"], "--set: unknown 'tets'.*test"),
        (["--only=grid_shuffle", "--set=edge"], "--set: unknown 'edge'"),
        (["--only=grid"], "--only: unknown 'grid'"),
        (["--only=accuracy", "--set=photos"], "none of its sets is there"),
        (["--only=a,,b"], "--only must be names, as A,B, got 'a,,b'"),
        (["--site=stage2"], "--site says nothing without --checkpoint"),
        (["--images=0"], "--images: must be a whole number of at least 1, got '0'"),
        (["--maps=-1", "--runs=x"], "--maps: must be a whole number of at least 0"),
        (["--runs=nowhere"], "nothing is at 'nowhere'"),
        (["nowhere"], "unknown argument 'nowhere'"),
        (["--suite="], "--suite is missing"),
    ],
)
def test_wrong_arguments_are_refused_in_a_line(args, said, file, tmp_path, capsys):
    try:
        code = draw(file, tmp_path / "out", *args)
    except SystemExit as ended:
        code = ended.code
    told = capsys.readouterr().err.strip().splitlines()[-1]
    assert code == 2 and re.search(said, told), told
    assert not (tmp_path / "out").exists()
