"""The command that passes a set through damaged networks, and training on its output."""

import json

import jax
import numpy as np
import pytest
from PIL import Image

from jbias import data, prepare
from jbias.augment import deepaugment
from jbias.data import config_sets, loader
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
    """Write files of small untrained networks, whose outputs differ from the images."""
    folder, paths = tmp_path_factory.mktemp("weights"), {}
    for name, net in (("cae", cae), ("edsr", edsr)):
        drawn = net.init(jax.random.key(0), **SMALL[name])
        paths[name] = folder / f"{name}.npz"
        weight_files.write_npz(
            paths[name], {k: np.asarray(v) for k, v in drawn.items()}
        )
    return paths


def run_deepaugment(net, weights, out, *args):
    command = ["deepaugment", f"--net={net}", f"--out={out}", *SHAPES, *args]
    return prepare.main([*command, f"--weights={weights[net]}"])


def files(folder, ending="png"):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob(f"*.{ending}")}


@pytest.fixture(scope="module")
def filled_folders(weights, tmp_path_factory):
    """{network: folder filled by one call}."""
    folder = tmp_path_factory.mktemp("made")
    for net in SMALL:
        assert run_deepaugment(net, weights, folder / net) == 0
    return {net: folder / net for net in SMALL}


def read(root, split="valid"):
    source = data.load("folder", split, root=str(root), size=SIZE)
    return source, loader.decode_all(source, workers=1)


@pytest.mark.slow
@pytest.mark.quick("edsr")
@pytest.mark.parametrize("net", SMALL)
def test_each_image_has_an_augmented_image_of_its_class_and_number(net, filled_folders):
    clean = data.load("shapes", "valid", size=SIZE, n=N)
    source, images = read(filled_folders[net])
    assert set(source.classes) == set(clean.classes) and len(source) == N
    for name, label in zip(source.files, source.columns["label"]):
        number = int(name.rpartition("/")[2].removesuffix(".png"))
        expected = clean.classes[clean.columns["label"][number]]
        assert source.classes[label] == expected
    assert images.shape == (N, SIZE, SIZE, 3)
    assert len({image.tobytes() for image in images}) == N


@pytest.mark.slow
@pytest.mark.parametrize("net", SMALL)
def test_a_second_call_gives_the_same_bits(net, filled_folders, weights, tmp_path):
    assert run_deepaugment(net, weights, tmp_path / "again") == 0
    assert files(tmp_path / "again") == files(filled_folders[net])


@pytest.mark.slow
@pytest.mark.parametrize("net", SMALL)
def test_an_image_depends_on_the_seed_its_run_and_its_number(
    net, filled_folders, weights
):
    """Images are recomputed by hand: alone, with keys from these numbers."""
    net_entry = autoencoder.NETS[net]
    stored = weight_files.load(net_entry.model.PUBLISHED, weights[net])
    clean = data.load("shapes", "valid", size=SIZE, n=N).images / np.float32(255)
    order, damages, features = (
        prng.stream(prng.key(0), name) for name in ("order", "weights", "features")
    )

    @jax.jit
    def run(weights, image, keys):
        return autoencoder.same_size(
            net_entry, weights, image, keys, enlarge=net_entry.enlarge, damaged=True
        )

    for images in deepaugment.draw_order(order, N).index_by_network[:3]:
        first, i = images[0], images[-1]
        damaged = net_entry.damage(stored, jax.random.fold_in(damages, first))
        keys = jax.random.fold_in(features, i)[None]
        output = run(damaged, clean[i][None], keys)[0]
        expected = np.clip(output, 0, 1) * 255
        (path,) = (filled_folders[net] / "valid").rglob(f"{i:06d}.png")
        with Image.open(path) as image:
            difference = np.abs(
                np.asarray(image) - (expected - 0.5)
            )  # Cut, not rounded.
        assert (difference < 0.51).mean() > 0.99  # A bit may tip by rounding.


@pytest.mark.slow
def test_another_seed_is_another_set(filled_folders, weights, tmp_path):
    assert run_deepaugment("cae", weights, tmp_path / "other", "--seed=1") == 0
    seed_1, default_seed = files(tmp_path / "other"), files(filled_folders["cae"])
    assert set(seed_1) == set(default_seed)
    assert all(seed_1[name] != default_seed[name] for name in default_seed)


@pytest.mark.slow
def test_missing_images_are_made_again(filled_folders, weights, tmp_path, capsys):
    out = tmp_path / "out"
    assert run_deepaugment("cae", weights, out) == 0
    contents = files(out)
    deleted = sorted(contents)[::5]
    for name in deleted:
        (out / name).unlink()
    (out / deleted[0]).with_name(f".{deleted[0].name}.part").write_bytes(b"cut short")
    times_of_remaining = {
        name: (out / name).stat().st_mtime_ns
        for name in contents
        if name not in deleted
    }
    capsys.readouterr()
    assert run_deepaugment("cae", weights, out) == 0
    assert f"{len(deleted)} images made, {N} in all" in capsys.readouterr().out
    assert files(out) == contents == files(filled_folders["cae"])
    assert all(
        (out / name).stat().st_mtime_ns == time
        for name, time in times_of_remaining.items()
    )
    assert not list(out.rglob(".*.part"))


@pytest.mark.slow
def test_parts_add_up_to_the_whole_set(filled_folders, weights, tmp_path):
    out, counts = tmp_path / "out", []
    for k in (1, 2, 3):
        assert run_deepaugment("cae", weights, out, f"--part={k}/3") == 0
        counts.append(len(files(out)))
    assert counts == sorted(set(counts)) and files(out) == files(filled_folders["cae"])


@cases.each(
    ("args", "key"),
    [
        (["--seed=1"], "seed"),
        (["--renewal=0.5"], "renewal"),
        (["--n=64"], "fingerprint"),
    ],
)
def test_a_folder_of_other_settings_is_refused(
    args, key, filled_folders, weights, capsys
):
    contents = files(filled_folders["cae"])
    assert run_deepaugment("cae", weights, filled_folders["cae"], *args) == 2
    error = capsys.readouterr().err
    assert f"{key} is" in error and error.count("\n") == 1
    assert files(filled_folders["cae"]) == contents


def test_a_folder_of_unknown_origin_is_refused(weights, tmp_path, capsys):
    """The folder is refused before any training."""
    (tmp_path / "valid").mkdir()
    for args in ([], ["--weights="]):
        assert run_deepaugment("cae", weights, tmp_path, *args) == 2
        assert "must be new" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["valid"]


def test_the_set_has_a_note_about_its_origin(filled_folders):
    source = data.load("folder", "valid", root=str(filled_folders["cae"]), size=SIZE)
    assert source.note.startswith("made by jbias.prepare deepaugment of shapes/valid")
    assert source.cite == data.load("shapes", "valid", size=SIZE, n=64).cite
    (filled_folders["cae"] / "mine.json").write_text("[]")
    (filled_folders["cae"] / "mine").symlink_to(filled_folders["cae"] / "valid")
    assert not data.load(
        "folder", "mine", root=str(filled_folders["cae"]), size=SIZE
    ).note


def test_settings_are_written_next_to_the_images(filled_folders):
    settings = json.loads((filled_folders["edsr"] / "valid.json").read_text())
    assert (
        settings["net"] == "edsr"
        and settings["seed"] == 0
        and settings["source"] == "shapes/valid"
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
def test_bad_arguments_are_refused_in_one_line(
    arguments, message, weights, tmp_path, capsys
):
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
    paths = sorted((out / "train").rglob("*.jpeg"))
    names = [path.relative_to(out / "train").as_posix() for path in paths]
    assert names == ["a/000000.jpeg", "a/000001.jpeg", "b/000002.jpeg"]
    for path in paths:
        with Image.open(path) as image:
            # 32 * 4 / 3 in steps of four pixels.
            assert image.size == (44 * factor, 32 * factor)


def training(folders):
    """Return the training set of clean and augmented sources, all images, and columns."""
    also = tuple(
        dict(data="folder", root=str(root), split="valid") for root in folders.values()
    )
    config = dict(data="shapes", split="valid", n=N, also=also)
    train = config_sets.train_set("config.train", config, SIZE)
    images = [loader.decode_all(source, workers=1) for source in train.sources]
    return train, np.concatenate(images), config_sets.join_columns(train.sources)


def test_the_augmented_half_of_a_batch_differs_from_the_clean_half(filled_folders):
    """A batch has half of its images from each source: other files and pixels, same
    labels.
    """
    train, images, columns = training({"cae": filled_folders["cae"]})
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


def test_the_union_has_three_versions_of_each_image(filled_folders):
    train, images, columns = training(filled_folders)
    assert len(train.sources) == 3 and len(images) == 3 * N
    assert len({image.tobytes() for image in images}) == 3 * N
    counts = np.bincount(columns["label"])
    assert (counts == 3 * N // 16).all()
    fingerprints = {source.fingerprint for source in train.named(0).values()}
    assert len(fingerprints) == 3
