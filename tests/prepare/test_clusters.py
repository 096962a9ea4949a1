"""Clusters of features: planted clusters are recovered, printed, drawn and read back."""

import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from jbias import data, models, prepare
from jbias.evals.activations import features
from jbias.prepare import clusters

SIZES = {"cat": (9, 7, 5), "dog": (8, 6, 5), "eel": (10, 6, 6)}
LIGHT = ((20, 20, 20), (240, 240, 240), (230, 30, 30))


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """Folder with images of each class in three lights, unknown from the names; {file:
    light}.
    """
    root, lights = tmp_path_factory.mktemp("planted"), {}
    rng = np.random.default_rng(0)
    for name, sizes in SIZES.items():
        light_numbers = rng.permutation(np.repeat(range(3), sizes))
        if name == "dog":
            light_numbers = 2 - light_numbers  # Another light is the commonest.
        (root / "all" / name).mkdir(parents=True)
        for i, light in enumerate(light_numbers):
            noise = rng.integers(-15, 16, (16, 16, 3))
            pixels = np.clip(noise + LIGHT[light], 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(root / f"all/{name}/{i:03}.png")
            lights[f"{name}/{i:03}.png"] = int(light)
    return root, lights


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    folder = tmp_path_factory.mktemp("network")
    net = models.MODELS["cnn"](3, width=4)
    variables = net.init(jax.random.key(0), jnp.zeros((1, 16, 16, 3)))
    path = folder / "small.safetensors"
    models.save_safetensors(path, net, variables, names="own")
    (folder / "names.txt").write_text("cat\ndog\neel\n")
    arguments = [f"--checkpoint={path}", f"--classes={folder / 'names.txt'}", "--zoo="]
    return [*arguments, "--size=16"], net, variables


@pytest.fixture
def run(planted, network, tmp_path):
    """Function run(*more) that clusters into `out` and returns the exit code."""
    root, out = planted[0], tmp_path / "out"
    common = [*network[0], "--data=folder", f"--root={root}", "--split=all"]

    def command(*more, k=3):
        return prepare.main(["clusters", *common, f"--out={out}", f"--k={k}", *more])

    return command


def load(planted, out, **options):
    columns = str(out / "all.csv")
    return data.load(
        "folder", "all", root=str(planted[0]), size=16, columns=columns, **options
    )


@pytest.mark.slow
def test_planted_clusters_are_recovered_and_read_back(run, planted, tmp_path, capsys):
    assert run() == 0
    out = tmp_path / "out"
    output = capsys.readouterr().out
    assert "D1: 27 images, 8 to 10 of a class" in output
    assert "D3: 16 images, 5 to 6 of a class" in output
    source = load(planted, out)
    assert source.values["cluster"] == ("D1", "D2", "D3")
    light = np.array([planted[1][name] for name in source.files])
    for k, sizes in enumerate(SIZES.values()):
        in_class = source.columns["label"] == k
        for number, size in enumerate(sizes):
            lights = light[in_class & (source.columns["cluster"] == number)]
            assert len(lights) == size and len({*lights.tolist()}) == 1
    for k, name in enumerate(SIZES):
        with Image.open(out / f"all-{k}-{name}.png") as picture:
            assert picture.width > 9 * 64 and picture.height > 3 * 64
    shift = dict(level="only-D1", part="ood-D3", attribute="cluster")
    assert len(load(planted, out, shift=shift)) == 16


def test_the_picture_shows_the_nearest_to_each_centre(
    run, planted, network, tmp_path, monkeypatch
):
    drawn = {}

    def record(path, rows, **options):
        drawn[path] = rows

    monkeypatch.setattr(clusters.dataset, "write_sheet", record)
    assert run("--shown=4") == 0
    source = load(planted, tmp_path / "out")
    images = np.stack([source[i]["image"] for i in range(len(source))])
    rows = features.read(*network[1:], images, sites=["stage2"], pool=1)["stage2"]
    (cat,) = [rows for path, rows in drawn.items() if "cat" in path]
    assert [*cat] == ["D1 (9)", "D2 (7)", "D3 (5)"]
    in_cluster = (source.columns["label"] == 0) & (source.columns["cluster"] == 1)
    cluster_rows = rows[in_cluster].astype(float)
    order = ((cluster_rows - cluster_rows.mean(0)) ** 2).sum(1).argsort()[:4]
    np.testing.assert_array_equal(np.stack(cat["D2 (7)"]), images[in_cluster][order])


def test_the_command_is_deterministic_and_resumes(run, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(clusters, "_BLOCK", 20)
    assert run("--shown=0") == 0
    first = (tmp_path / "out/all.csv").read_bytes()
    blocks = sorted((tmp_path / "out/features").rglob("*.npy"))
    assert len(blocks) == 4 and not list((tmp_path / "out").glob("*.png"))
    contents = {path: path.read_bytes() for path in blocks}
    blocks[2].unlink()
    images_read = []
    read = features.read

    def counted_read(*args, **kwargs):
        images_read.append(len(args[2]))
        return read(*args, **kwargs)

    monkeypatch.setattr(features, "read", counted_read)
    assert run("--shown=0") == 0
    assert images_read == [20]
    assert {path: path.read_bytes() for path in blocks} == contents
    assert (tmp_path / "out/all.csv").read_bytes() == first
    assert run("--shown=0", "--restarts=2") == 2
    assert "restarts is 10 there, 2 here; name another --out" in capsys.readouterr().err
    out, feature_folder = tmp_path / "other", tmp_path / "out/features"
    assert (
        run("--shown=0", "--restarts=2", f"--out={out}", f"--features={feature_folder}")
        == 0
    )
    assert images_read == [20] and (out / "all.csv").exists()


def test_options_balanced_normalise_site_and_name(run, planted, tmp_path, capsys):
    args = ("--balanced", "--normalise", "--site=stage1", "--name=kind", "--shown=0")
    assert run(*args, k=4) == 0
    source = load(planted, tmp_path / "out")
    for k in range(3):
        sizes = np.bincount(source.columns["kind"][source.columns["label"] == k])
        assert len(sizes) == 4 and np.ptp(sizes) <= 1
    metadata = json.loads((tmp_path / "out/all.csv.json").read_text())
    assert (
        metadata["site"] == "stage1"
        and metadata["balanced"]
        and metadata["network"] == "small"
    )


def test_images_outside_a_part_have_no_cluster(run, planted, tmp_path):
    assert run("--split=all[:60%]", "--shown=0", "--least=1", k=2) == 0
    source = load(planted, tmp_path / "out")
    assert source.values["cluster"] == ("D1", "D2", "(none)")
    part = data.load("folder", "all[:60%]", root=str(planted[0]), size=16)
    named = np.array(source.files)[source.columns["cluster"] < 2]
    assert {*named} == {*part.files}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--k=20"], "must have --k=20 images or more, got 19 of class 'dog'; take"),
        (["--k=1"], "--k must be 2 or more"),
        (["--k=8"], "every cluster must have 8 images, class 'cat' has one of "),
        (["--site=stage9"], "--site: unknown 'stage9'; did you mean 'stage"),
        (["--network=large"], "--network must be one of .*got 'large'.*Known: small"),
        (["--split=none"], "must be an existing folder"),
        (["--options=crop"], "--options must read a=b,c=d, got 'crop'"),
        (["--size=32"], "small must take images of 32 pixels, got .*another --size"),
        (["--restarts=0"], "--restarts must be 1 or more, got 0"),
    ],
)
def test_bad_arguments_are_refused_in_one_line(run, args, message, capsys):
    assert run(*args) == 2
    error = capsys.readouterr().err
    assert error.count("\n") <= 2 and re.search(message, error)


def test_a_network_must_be_named(capsys):
    assert prepare.main(["clusters", "--data=shapes"]) == 2
    assert "--checkpoint must name a network" in capsys.readouterr().err


def test_photographs_and_sketches_form_separate_clusters(unpacked, network, tmp_path):
    """Clusters match the styles of real images, whose labels are not used."""
    styles = ("photo", "sketch")
    root = unpacked("pacs64", *(f"pacs64/{style}/dog" for style in styles))
    files = [
        path for style in styles for path in sorted(root.glob(f"pacs64/{style}/dog/*"))
    ]
    styled = [(path, path.parts[-3]) for path in files]
    lines = [f"{path.relative_to(root)},dog,{style}" for path, style in styled]
    lines = ["file,class,style", *lines[:60], *lines[-60:]]
    (root / "dogs.csv").write_text("\n".join(lines))
    common = ["--data=attributed", f"--root={root}", "--split=dogs", "--k=2"]
    out = tmp_path / "out"
    output_options = [f"--out={out}", "--normalise"]
    assert prepare.main(["clusters", *network[0], *common, *output_options]) == 0
    source = data.load(
        "attributed", "dogs", root=str(root), size=16, columns=str(out / "dogs.csv")
    )
    assert source.values["style"] == styles
    agreement = (source.columns["style"] == source.columns["cluster"]).mean()
    assert max(agreement, 1 - agreement) > 0.9
