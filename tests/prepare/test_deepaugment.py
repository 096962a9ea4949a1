"""The command that sends a set through damaged networks, and training on what it made."""

import json

import jax
import numpy as np
import pytest
from PIL import Image

from jbias import data, prepare
from jbias.augment import deepaugment
from jbias.data import loader, splits
from jbias.models import cae, edsr, weight_files
from jbias.prepare import autoencoder
from jbias.training import prng, samplers
from tests import cases

pytestmark = pytest.mark.slow

N, SIZE = 48, 32
SMALL = {"cae": {"width": 8}, "edsr": {"features": 4, "blocks": 4, "scale": 2}}
SHAPES = ["--data=shapes", "--split=valid", f"--n={N}"]


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """Files of small networks, not trained: what is made differs from the images."""
    folder, paths = tmp_path_factory.mktemp("weights"), {}
    for name, net in (("cae", cae), ("edsr", edsr)):
        drawn = net.init(jax.random.key(0), **SMALL[name])
        paths[name] = folder / f"{name}.npz"
        weight_files.write_npz(
            paths[name], {k: np.asarray(v) for k, v in drawn.items()}
        )
    return paths


def make(net, weights, out, *more):
    command = ["deepaugment", f"--net={net}", f"--out={out}", *SHAPES, *more]
    return prepare.main([*command, f"--weights={weights[net]}"])


def files(folder, ending="png"):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob(f"*.{ending}")}


@pytest.fixture(scope="module")
def made(weights, tmp_path_factory):
    """{network: the folder that one call filled}."""
    folder = tmp_path_factory.mktemp("made")
    for net in SMALL:
        assert make(net, weights, folder / net) == 0
    return {net: folder / net for net in SMALL}


def read(root, split="valid"):
    source = data.load("folder", split, root=str(root), size=SIZE)
    return source, loader.decode_all(source, workers=1)


@pytest.mark.slow
@pytest.mark.quick("edsr")
@pytest.mark.parametrize("net", SMALL)
def test_every_image_has_one_of_its_class_and_number(net, made):
    clean = data.load("shapes", "valid", size=SIZE, n=N)
    source, images = read(made[net])
    assert set(source.classes) == set(clean.classes) and len(source) == N
    for name, label in zip(source.files, source.columns["label"]):
        number = int(name.rpartition("/")[2].removesuffix(".png"))
        expected = clean.classes[clean.columns["label"][number]]
        assert source.classes[label] == expected
    assert images.shape == (N, SIZE, SIZE, 3)
    assert len({image.tobytes() for image in images}) == N


@pytest.mark.slow
@pytest.mark.parametrize("net", SMALL)
def test_the_same_again_to_the_bit(net, made, weights, tmp_path):
    assert make(net, weights, tmp_path / "again") == 0
    assert files(tmp_path / "again") == files(made[net])


@pytest.mark.slow
@pytest.mark.parametrize("net", SMALL)
def test_an_image_is_of_the_seed_its_run_and_its_number(net, made, weights):
    """Made again by hand: alone, with keys from these numbers."""
    chosen = autoencoder.NETS[net]
    stored = weight_files.load(chosen.model.PUBLISHED, weights[net])
    clean = data.load("shapes", "valid", size=SIZE, n=N).images / np.float32(255)
    order, damages, features = (
        prng.stream(prng.key(0), name) for name in ("order", "weights", "features")
    )

    @jax.jit
    def run(weights, image, keys):
        return autoencoder.same_size(
            chosen, weights, image, keys, enlarge=chosen.enlarge, damaged=True
        )

    for images in deepaugment.draw_order(order, N).runs[:3]:
        first, i = images[0], images[-1]
        damaged = chosen.damage(stored, jax.random.fold_in(damages, first))
        keys = jax.random.fold_in(features, i)[None]
        expected = np.clip(run(damaged, clean[i][None], keys)[0], 0, 1) * 255
        (path,) = (made[net] / "valid").rglob(f"{i:06d}.png")
        with Image.open(path) as image:
            gap = np.abs(np.asarray(image) - (expected - 0.5))  # Cut, not rounded.
        assert (gap < 0.51).mean() > 0.99  # A bit may tip by rounding.


@pytest.mark.slow
def test_another_seed_is_another_set(made, weights, tmp_path):
    assert make("cae", weights, tmp_path / "other", "--seed=1") == 0
    other, first = files(tmp_path / "other"), files(made["cae"])
    assert set(other) == set(first)
    assert all(other[name] != first[name] for name in first)


@pytest.mark.slow
def test_what_is_missing_is_made_again(made, weights, tmp_path, capsys):
    out = tmp_path / "out"
    assert make("cae", weights, out) == 0
    whole = files(out)
    lost = sorted(whole)[::5]
    for name in lost:
        (out / name).unlink()
    (out / lost[0]).with_name(f".{lost[0].name}.part").write_bytes(b"cut short")
    kept = {name: (out / name).stat().st_mtime_ns for name in whole if name not in lost}
    capsys.readouterr()
    assert make("cae", weights, out) == 0
    assert f"{len(lost)} images made, {N} in all" in capsys.readouterr().out
    assert files(out) == whole == files(made["cae"])
    assert all((out / name).stat().st_mtime_ns == time for name, time in kept.items())
    assert not list(out.rglob(".*.part"))


@pytest.mark.slow
def test_parts_make_the_whole(made, weights, tmp_path):
    out, seen = tmp_path / "out", []
    for k in (1, 2, 3):
        assert make("cae", weights, out, f"--part={k}/3") == 0
        seen.append(len(files(out)))
    assert seen == sorted(set(seen)) and files(out) == files(made["cae"])


@cases.each(
    ("more", "key"),
    [
        (["--seed=1"], "seed"),
        (["--renewal=0.5"], "renewal"),
        (["--n=64"], "fingerprint"),
    ],
)
def test_a_folder_of_other_settings_is_refused(more, key, made, weights, capsys):
    before = files(made["cae"])
    assert make("cae", weights, made["cae"], *more) == 2
    error = capsys.readouterr().err
    assert f"{key} is" in error and error.count("\n") == 1
    assert files(made["cae"]) == before


def test_a_strange_folder_is_refused(weights, tmp_path, capsys):
    """Before anything is trained."""
    (tmp_path / "valid").mkdir()
    for more in ([], ["--weights="]):
        assert make("cae", weights, tmp_path, *more) == 2
        assert "must be new" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["valid"]


def test_who_reads_the_set_is_told_what_it_is(made):
    source = data.load("folder", "valid", root=str(made["cae"]), size=SIZE)
    assert source.note.startswith("made by jbias.prepare deepaugment of shapes/valid")
    assert source.cite == data.load("shapes", "valid", size=SIZE, n=64).cite
    (made["cae"] / "mine.json").write_text("[]")
    (made["cae"] / "mine").symlink_to(made["cae"] / "valid")
    assert not data.load("folder", "mine", root=str(made["cae"]), size=SIZE).note


def test_the_settings_are_kept(made):
    held = json.loads((made["edsr"] / "valid.json").read_text())
    assert (
        held["net"] == "edsr" and held["seed"] == 0 and held["source"] == "shapes/valid"
    )


@cases.each(
    ("arguments", "message"),
    [
        (["--net=vae"], "--net: unknown 'vae'; did you mean 'cae'? Known: cae, edsr"),
        (["--net=cae", "--format=gif"], "--format must be one of png, jpeg"),
        (["--net=cae", "--part=3/2"], "--part must be like 1/4, got '3/2'"),
        (["--net=cae", "--renewal=2"], "--renewal must be in [0, 1]"),
        (["--net=cae", "--short=512"], "--short is for files"),
        (["--net=cae", "--true-skips"], "edsr has it"),
        (["--net=cae", "--size=33"], "must be a multiple of 4 for cae, got 33 times 2"),
        (["--net=cae", "--split=vald"], "did you mean 'valid'"),
        (
            ["--net=cae", "--weights=none.npz"],
            "jbias prepare weights --net=cae",
        ),
    ],
)
def test_refuses_in_one_line(arguments, message, weights, tmp_path, capsys):
    command = ["deepaugment", f"--out={tmp_path / 'out'}", *SHAPES]
    if arguments[0] == "--net=cae":
        command.append(f"--weights={weights['cae']}")
    assert prepare.main([*command, *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.quick("edsr-2")
@pytest.mark.parametrize(("net", "factor"), [("cae", 1), ("edsr", 2)])
def test_files_keep_their_ratio_with_short(net, factor, weights, tmp_path):
    for name in ("a/0.png", "a/1.png", "b/2.png"):
        path = tmp_path / "photographs" / "train" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 30), "teal").save(path)
    out = tmp_path / "out"
    command = ["deepaugment", f"--net={net}", f"--out={out}", "--data=folder"]
    command += [f"--root={tmp_path / 'photographs'}", f"--weights={weights[net]}"]
    assert prepare.main([*command, "--short=32", "--format=jpeg"]) == 0
    made = sorted((out / "train").rglob("*.jpeg"))
    names = [path.relative_to(out / "train").as_posix() for path in made]
    assert names == ["a/000000.jpeg", "a/000001.jpeg", "b/000002.jpeg"]
    for path in made:
        with Image.open(path) as image:
            # 32 * 4 / 3 in steps of four pixels.
            assert image.size == (44 * factor, 32 * factor)


def training(made):
    """The sources of a run on clean and augmented images, and what it is fed."""
    also = tuple(
        dict(data="folder", root=str(root), split="valid") for root in made.values()
    )
    config = dict(data="shapes", split="valid", n=N, also=also)
    train = splits.train_set("config.train", config, SIZE)
    images = [loader.decode_all(source, workers=1) for source in train.sources]
    return train, np.concatenate(images), splits.join_columns(train.sources)


def test_the_augmented_half_is_no_clean_half(made):
    """Half a batch from each source: other files, other pixels, the same labels."""
    train, images, columns = training({"cae": made["cae"]})
    order = samplers.MixtureSampler.from_shares(
        [len(s) for s in train.sources], (0.5, 0.5), 16, "order"
    )
    for step in range(order.steps_per_epoch):
        index = order.index(0, step)
        halves = [images[index[columns["domain"][index] == d]] for d in (0, 1)]
        assert [len(half) for half in halves] == [8, 8]
        clean, augmented = ({x.tobytes() for x in half} for half in halves)
        assert not clean & augmented
    clean, augmented = (images[columns["domain"] == d] / 255 for d in (0, 1))
    # The same images by number: an appended clean set would have no distance.
    assert np.sqrt(np.mean((clean.mean((1, 2)) - augmented.mean((1, 2))) ** 2)) > 0.05
    assert abs(clean.std() - augmented.std()) > 0.05


def test_the_union_has_three_images_of_each(made):
    train, images, columns = training(made)
    assert len(train.sources) == 3 and len(images) == 3 * N
    assert len({image.tobytes() for image in images}) == 3 * N
    counts = np.bincount(columns["label"])
    assert (counts == 3 * N // 16).all()
    fingerprints = {source.fingerprint for source in train.named(0).values()}
    assert len(fingerprints) == 3
