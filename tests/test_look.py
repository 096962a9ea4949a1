"""Pictures: the pixels are those of measuring, the maps those of the network."""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from jbias import data, evaluate, look, models
from jbias.evals import grad_cam, inference, networks, suites
from jbias.report import image_sheets
from tests import cases

pytestmark = pytest.mark.slow

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
        occlusion=dict(sets=("test",), fractions=(0.3,), site="stage1"),
        pgd=dict(sets=("test",), eps=0.1, steps=1, step_size=0.1),
    )
    return c
"""
STILL = ("grid_shuffle", "cut_occlusion", "mixing", "occlusion")
MOVED = ("occlusion", "pgd")
SITE = "stage1"
ROWS = np.array([0, 12, 24, 35, 47])


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """A file of sixteen classes and their names, as arguments."""
    folder = tmp_path_factory.mktemp("network")
    net = models.MODELS["cnn"](16, width=4)
    variables = net.init(jax.random.key(0), jnp.zeros((1, 32, 32, 3)))
    models.save_safetensors(folder / "small.safetensors", net, variables, names="own")
    names = data.load("shapes", "test", n=48).classes
    (folder / "names.txt").write_text("\n".join(names))
    return (
        f"--checkpoint={folder / 'small.safetensors'}",
        f"--classes={folder / 'names.txt'}",
        "--zoo=",
    )


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("suites") / "mine.py"
    path.write_text(SUITE)
    return path


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


@pytest.fixture(scope="module")
def drawn(network, file, tmp_path_factory):
    """The folder of pictures, and the figures in it by name."""
    out, found, write = tmp_path_factory.mktemp("drawn"), {}, look.Look.write

    def note(self, name, fig):
        found[name] = fig
        write(self, name, fig)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(look.Look, "write", note)
        assert draw(file, out, *network, "--maps=48") == 0
    return out, found


@pytest.fixture(scope="module")
def stimuli(network, file, tmp_path_factory):
    """What measuring shows of all images, by measure and condition."""
    found, names, shown, made_of = {}, {}, inference.make_stimuli, suites.build_probe

    def named(measure, beside):
        made = made_of(measure, beside)
        names[id(made)] = measure.name
        return made

    def note(network, made, batch, condition, **options):
        images = shown(network, made, batch, condition, **options)
        np.testing.assert_array_equal(batch.index, np.arange(48))
        found[names[id(made)], condition] = np.asarray(images)
        return images

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(suites, "build_probe", named)
        patch.setattr(inference, "make_stimuli", note)
        args = (f"--suite={file}", f"--only={','.join({*STILL, *MOVED})}")
        out = f"--out={tmp_path_factory.mktemp('measured')}"
        assert evaluate.main([*network, *args, out]) == 0
    return found


@pytest.mark.slow
def test_pixels_are_those_that_measuring_shows(stimuli, drawn):
    out, figs = drawn
    compared = set()
    sheets = [f"{name}@test" for name in STILL]
    for sheet in (*sheets, *(f"small/{name}@test" for name in MOVED)):
        found = cells(figs[sheet], out / f"{sheet}.png")
        measure = sheet.rpartition("/")[2].partition("@")[0]
        clean = np.stack(found.pop("as it is"))
        for condition, pictures in found.items():
            expected = np.rint(255 * stimuli[measure, condition][ROWS])
            same = np.stack(pictures) == expected.repeat(4, 1).repeat(4, 2)
            # In other batches sums are of other order, and salience may be a near tie.
            least = 0.98 if sheet.startswith("small/") else 1
            assert same.all(-1).mean() >= least, (sheet, condition)
            assert (np.stack(pictures) != clean).any(), condition
            compared.add((measure, condition))
    rest = set(stimuli) - compared
    assert {condition for _, condition in rest} == {""}, rest


def test_files_are_all_sheets_in_all_formats(drawn):
    out, _ = drawn
    names = {"accuracy", "saliency@test", "mean_saliency@test"}
    names |= {f"{name}@test" for name in STILL} | {f"small/{n}@test" for n in MOVED}
    found = {str(path.relative_to(out)) for path in out.rglob("*.*")}
    assert found == {f"{name}.{end}" for name in names for end in ("png", "svg", "pdf")}


@pytest.fixture
def seeds(network, monkeypatch):
    """Networks as of a run of two seeds, which is opened in the place of a file."""
    path, classes, _ = (one.partition("=")[2] for one in network)
    found = []
    for seed in (0, 1):
        one = networks.from_file(path, classes=classes)
        scaled = functools.partial(jnp.multiply, 1 + 0.5 * seed)
        variables = jax.tree.map(scaled, one.variables)
        fields = {**one.fields, "run": "r", "variant": "mine", "seed": seed}
        about = {"config": {}, "path": "some/run"}
        made = dict(
            name=f"r-seed{seed}", variables=variables, fields=fields, about=about
        )
        found.append(dataclasses.replace(one, **made))
    monkeypatch.setattr(networks, "open_networks", lambda *_: iter(found))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("count", [0, 1])
def test_saliency_is_of_the_network_and_says_what_it_decides(
    count, seeds, network, file, tmp_path, monkeypatch
):
    drawn = []

    def note(real, *args, **options):
        drawn.append((args, options))
        return real(*args, **options)

    for name, real in (
        ("saliency", image_sheets.saliency),
        ("mean_maps", image_sheets.mean_maps),
    ):
        monkeypatch.setattr(image_sheets, name, functools.partial(note, real))
    args = (f"--seeds={count}", "--only=accuracy", "--set=test", "--maps=48")
    assert draw(file, tmp_path, *network, *args) == 0
    ((images, names, by_network), options), ((means,), _) = drawn
    assert [*by_network] == ["mine/cnn seed 0", "mine/cnn seed 1"][: 2 - count]
    assert names[0].startswith("0 ") and names[-1].startswith("47 ")
    assert options["title"] == f"Grad-CAM at {SITE}, test"  # Where occlusion looks.
    for subject, (name, one) in zip(seeds, by_network.items()):
        maps = grad_cam.image_maps(subject.net, subject.variables, images, SITE)
        np.testing.assert_allclose(one.maps, maps, atol=1e-4)
        logits = subject.net.apply(subject.variables, images, train=False)
        logits = np.asarray(logits, np.float64)
        share = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        assert one.decided == [subject.classes[k] for k in logits.argmax(-1)]
        np.testing.assert_allclose(one.chance, share.max(-1), rtol=1e-4)
        labels = [name.partition(" ")[2] for name in names]
        assert one.right.tolist() == [a == b for a, b in zip(one.decided, labels)]
        assert means[name].count == 48 and means[name].map.shape == (32, 32)


def test_without_networks_what_they_make_is_left_out_and_told(file, tmp_path, capsys):
    args = ("--set=test", "--only=occlusion,pgd,receptive_field")
    assert draw(file, tmp_path, *args) == 0
    told = capsys.readouterr().err
    assert {path.stem for path in tmp_path.iterdir()} == {"occlusion@test"}
    assert "occlusion@test: without grad_cam most 0.3, grad_cam least 0.3 and" in told
    assert "pgd@test: without linf 25.5/255 1 steps" in told
    assert "receptive_field@test: does not change images" in told
    assert told.endswith(f"drew 1 figures in {tmp_path}\n")


def test_what_cannot_be_looked_at_is_told_and_the_rest_is_drawn(
    network, file, tmp_path, capsys
):
    args = (*network, "--only=accuracy", "--set=edge", "--site=stage9")
    assert draw(file, tmp_path, *args, "--images=100") == 1
    told = capsys.readouterr().err
    assert "not drawn: small: saliency@edge: models.taps: site must be one of" in told
    assert "edge has 48 images, so 48 of each set are drawn" in told
    assert "1 not, see above" in told
    assert {path.stem for path in tmp_path.iterdir()} == {"accuracy"}


@cases.each(
    ("args", "said"),
    [
        (["--set=tets"], "--set: unknown 'tets'.*test"),
        (["--only=grid_shuffle", "--set=edge"], "--set: unknown 'edge'"),
        (["--only=grid"], "--only: unknown 'grid'"),
        (["--only=accuracy", "--set=photos"], "none of its sets was found"),
        (
            ["--only=a,,b"],
            "--only: must be different names separated by commas, such as A,B, got 'a,,b'",
        ),
        (["--site=stage2"], "--site has no effect without --checkpoint"),
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
