"""jbias look: pictures have the pixels of the evaluation, and maps are those of the network."""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from jbias import data, evaluate, look, models
from jbias.evals import inference, networks, suites
from jbias.report import image_sheets
from jbias.stimuli import grad_cam
from tests import cases

pytestmark = pytest.mark.slow

SUITE = """
import ml_collections
from jbias.evals.activations import inside

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
        own=dict(probe=f"{__file__}:make_own", sets=("test",), images=8),
    )
    return c

def make_own():
    return inside.Inside(lambda *args: [])
"""
STILL_MEASURES = ("grid_shuffle", "cut_occlusion", "mixing", "occlusion")
MOVED_MEASURES = ("occlusion", "pgd")
SITE = "stage1"
ROWS = np.array([0, 12, 24, 35, 47])


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """Return arguments: a file of sixteen classes and their names."""
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


def draw_sheets(file, out, *args) -> int:
    return look.main([f"--suite={file}", f"--out={out}", "--images=5", *map(str, args)])


def crop_pictures(fig, path) -> dict[str, list[np.ndarray]]:
    """Return the pictures of a PNG by the title of their column."""
    page = np.asarray(Image.open(path).convert("RGB"))
    high, wide, _ = page.shape
    titles = [text.get_text() for text in fig.texts if text.get_va() == "bottom"]
    pictures = {
        re.sub(r"(?<=_)\n", "", title).replace("\n", " "): [] for title in titles
    }
    assert len(pictures) * len(ROWS) == len(fig.axes)
    for axes, title in zip(fig.axes, np.repeat(list(pictures), len(ROWS)), strict=True):
        box = axes.get_position()
        x = [round(wide * value) for value in (box.x0, box.x1)]
        y = [round(high * (1 - value)) for value in (box.y1, box.y0)]
        pictures[title].append(page[slice(*y), slice(*x)])
    return pictures


@pytest.fixture(scope="module")
def drawn(network, file, tmp_path_factory):
    """Return the folder of pictures, and the figures by name."""
    out, figures, write = tmp_path_factory.mktemp("drawn"), {}, look.Look.write

    def note(self, name, fig):
        figures[name] = fig
        write(self, name, fig)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(look.Look, "write", note)
        assert draw_sheets(file, out, *network, "--maps=48") == 0
    return out, figures


@pytest.fixture(scope="module")
def stimuli(network, file, tmp_path_factory):
    """Return the stimuli of an evaluation, by measure and condition."""
    stimuli_by_condition, names, make_stimuli, build_probe = (
        {},
        {},
        inference.make_stimuli,
        suites.build_probe,
    )

    def note_name(measure, context):
        built_probe = build_probe(measure, context)
        names[id(built_probe)] = measure.name
        return built_probe

    def note(network, built_probe, batch, condition, **options):
        images = make_stimuli(network, built_probe, batch, condition, **options)
        np.testing.assert_array_equal(batch.index, np.arange(48))
        name = names.get(id(built_probe))  # None for unchanged images.
        stimuli_by_condition[name, condition] = np.asarray(images)
        return images

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(suites, "build_probe", note_name)
        patch.setattr(inference, "make_stimuli", note)
        args = (
            f"--suite={file}",
            f"--only={','.join({*STILL_MEASURES, *MOVED_MEASURES})}",
        )
        out = f"--out={tmp_path_factory.mktemp('measured')}"
        assert evaluate.main([*network, *args, out]) == 0
    return stimuli_by_condition


@pytest.mark.slow
def test_pictures_have_the_pixels_of_the_evaluation(stimuli, drawn):
    out, figs = drawn
    compared = set()
    sheets = [f"{name}@test" for name in STILL_MEASURES]
    for sheet in (*sheets, *(f"small/{name}@test" for name in MOVED_MEASURES)):
        pictures_by_condition = crop_pictures(figs[sheet], out / f"{sheet}.png")
        measure = sheet.rpartition("/")[2].partition("@")[0]
        clean = np.stack(pictures_by_condition.pop("as it is"))
        for condition, pictures in pictures_by_condition.items():
            expected = np.rint(255 * stimuli[measure, condition][ROWS])
            is_equal = np.stack(pictures) == expected.repeat(4, 1).repeat(4, 2)
            # Sums have another order in other batches, so that near ties may be reversed.
            smallest_share = 0.98 if sheet.startswith("small/") else 1
            assert is_equal.all(-1).mean() >= smallest_share, (sheet, condition)
            assert (np.stack(pictures) != clean).any(), condition
            compared.add((measure, condition))
    not_compared = set(stimuli) - compared
    assert {condition for _, condition in not_compared} == {""}, not_compared


def test_files_are_all_sheets_in_all_formats(drawn):
    out, _ = drawn
    names = {"accuracy", "saliency@test", "mean_saliency@test"}
    names |= {f"{name}@test" for name in STILL_MEASURES} | {
        f"small/{n}@test" for n in MOVED_MEASURES
    }
    files = {str(path.relative_to(out)) for path in out.rglob("*.*")}
    assert files == {f"{name}.{end}" for name in names for end in ("png", "svg", "pdf")}


@pytest.fixture
def seeds(network, monkeypatch):
    """Replace the opened networks by those of a run of two seeds; return them."""
    path, classes, _ = (
        network_of_file.partition("=")[2] for network_of_file in network
    )
    networks_of_seeds = []
    for seed in (0, 1):
        network_of_file = networks.from_file(path, classes=classes)
        scale = functools.partial(jnp.multiply, 1 + 0.5 * seed)
        variables = jax.tree.map(scale, network_of_file.variables)
        fields = {**network_of_file.fields, "run": "r", "variant": "mine", "seed": seed}
        network_info = {"config": {}, "path": "some/run"}
        networks_of_seeds.append(
            dataclasses.replace(
                network_of_file,
                name=f"r-seed{seed}",
                variables=variables,
                fields=fields,
                about=network_info,
            )
        )
    monkeypatch.setattr(networks, "open_networks", lambda *_: iter(networks_of_seeds))
    return networks_of_seeds


@pytest.mark.slow
@pytest.mark.parametrize("count", [0, 1])
def test_saliency_sheets_have_the_networks_maps_and_decisions(
    count, seeds, network, file, tmp_path, monkeypatch
):
    calls = []

    def note_call(function, *args, **options):
        calls.append((args, options))
        return function(*args, **options)

    for name, function in (
        ("saliency", image_sheets.saliency),
        ("mean_maps", image_sheets.mean_maps),
    ):
        monkeypatch.setattr(image_sheets, name, functools.partial(note_call, function))
    args = (f"--seeds={count}", "--only=accuracy", "--set=test", "--maps=48")
    assert draw_sheets(file, tmp_path, *network, *args) == 0
    ((images, names, by_network), options), ((means,), _) = calls
    assert [*by_network] == ["mine/cnn seed 0", "mine/cnn seed 1"][: 2 - count]
    assert names[0].startswith("0 ") and names[-1].startswith("47 ")
    assert options["title"] == f"Grad-CAM at {SITE}, test"  # The site of occlusion.
    for subject, (name, saliency) in zip(seeds, by_network.items()):
        maps = grad_cam.image_maps(subject.net, subject.variables, images, SITE)
        np.testing.assert_allclose(saliency.maps, maps, atol=1e-4)
        logits = subject.net.apply(subject.variables, images, train=False)
        logits = np.asarray(logits, np.float64)
        share = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        assert saliency.decisions == [subject.classes[k] for k in logits.argmax(-1)]
        np.testing.assert_allclose(saliency.confidence, share.max(-1), rtol=1e-4)
        labels = [name.partition(" ")[2] for name in names]
        assert saliency.is_correct.tolist() == [
            a == b for a, b in zip(saliency.decisions, labels)
        ]
        assert means[name].count == 48 and means[name].map.shape == (32, 32)


def test_without_networks_stimuli_that_need_one_are_left_out_with_a_message(
    file, tmp_path, capsys
):
    args = ("--set=test", "--only=occlusion,pgd,receptive_field,own")
    assert draw_sheets(file, tmp_path, *args) == 0
    error_output = capsys.readouterr().err
    assert {path.stem for path in tmp_path.iterdir()} == {"occlusion@test"}
    assert (
        "occlusion@test: without grad_cam most 0.3, grad_cam least 0.3 and"
        in error_output
    )
    assert "pgd@test: without linf 25.5/255 1 steps" in error_output
    for name in ("receptive_field", "own"):
        assert f"{name}@test: does not change images" in error_output
    assert error_output.endswith(f"drew 1 figures in {tmp_path}\n")


def test_figures_that_cannot_be_drawn_are_named_and_the_other_figures_are_drawn(
    network, file, tmp_path, capsys
):
    args = (*network, "--only=accuracy", "--set=edge", "--site=stage9")
    assert draw_sheets(file, tmp_path, *args, "--images=100") == 1
    error_output = capsys.readouterr().err
    assert (
        "not drawn: small: saliency@edge: models.taps: site must be one of"
        in error_output
    )
    assert "edge has 48 images, so 48 of each set are drawn" in error_output
    assert "1 not, see above" in error_output
    assert {path.stem for path in tmp_path.iterdir()} == {"accuracy"}


@cases.each(
    ("args", "message"),
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
def test_invalid_arguments_are_refused_in_one_line(
    args, message, file, tmp_path, capsys
):
    try:
        code = draw_sheets(file, tmp_path / "out", *args)
    except SystemExit as error:
        code = error.code
    last_line = capsys.readouterr().err.strip().splitlines()[-1]
    assert code == 2 and re.search(message, last_line), last_line
    assert not (tmp_path / "out").exists()
