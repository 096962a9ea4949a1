"""Streamed training sets: batches do not depend on readers, kills or processes."""

import collections
import contextlib
import itertools
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import jax
import numpy as np
import pytest
from PIL import Image

from jbias import run_spec, train
from jbias.data import config_sets, loader, sources
from jbias.runtime import mesh
from jbias.training import input_pipeline, input_plan, samplers, setup, stages
from tests import cases, smoke_runs
from tests.test_resume import assert_same_end, finish

CLASSES = ("star", "heart", "plus")
COUNT = 23  # Images per class: 69 in all, which 16 does not divide.


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return draw(tmp_path_factory.mktemp("photos"))


def draw(root) -> str:
    """Write images of several sizes, brighter for later classes; return the folder."""
    rng = np.random.default_rng(0)
    for split in ("train", "valid"):
        for label, name in enumerate(CLASSES):
            folder = root / split / name
            folder.mkdir(parents=True)
            for i in range(COUNT):
                shape = (*rng.integers(30, 90, 2), 3)
                pixels = rng.integers(0, 256, shape) // 4 + 60 * label
                Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{i:02d}.png")
    return str(root)


def config(photos, **entries):
    """Return a small run's config on the folder; entries: of config.train."""
    c = smoke_runs.small()
    c.train = dict(data="folder", root=photos, split="train", batch=16, **entries)
    c.valid = dict(data="folder", root=photos, split="valid")
    c.model = dict(name="cnn", width=4)
    c.tests, c.epochs = {}, 3.0  # Four steps each.
    return c


def stage(config) -> stages.Stage:
    spec = run_spec.RunSpec.from_config(config)
    plans = input_plan.plan_stages(spec.stages, setup.open_train_sets(spec))
    (built,) = stages.build_stages(spec, plans, {}, mesh.make(1))
    return built


def batches(stage, seed: int, first: int, stop: int) -> list[dict]:
    """Return a seed's batches of some steps, without the stage's input transforms."""
    batches = [assemble_batch(stage, seed, step) for step in range(first, stop)]
    stage.feed.close()
    return batches


def assemble_batch(stage, seed: int, step: int) -> dict:
    """Return a seed's batch of one step, without the stage's input transforms."""
    shared, rows = (
        stage.feed.shared(step)["train"],
        stage.feed.batch(seed, step)["train"],
    )
    batch = input_pipeline.assemble_batch(shared, rows, len(CLASSES))
    return {name: np.asarray(x) for name, x in batch.items()}


def assert_equal(a: list[dict], b: list[dict]) -> None:
    assert len(a) == len(b) > 0
    jax.tree.map(np.testing.assert_array_equal, a, b)


CUTS = [dict(crop="host"), dict(crop="device", window=32, canvas=40)]
cuts = pytest.mark.parametrize("cut", CUTS, ids=["host", "device"])


@pytest.mark.slow
@cuts
def test_every_batch_is_a_function_of_seed_and_step(photos, cut):
    c = config(photos, **cut)
    expected = batches(stage(c), 0, 0, 9)
    assert_equal(expected[5:], batches(stage(c), 0, 5, 9))
    c.seeds = (4, 0)  # With another seed, and more threads.
    c.run.loading.threads = 3
    together = stage(c)
    of_seed_0 = []
    for step in range(9):
        by_seed = {seed: assemble_batch(together, seed, step) for seed in (4, 0)}
        of_seed_0.append(by_seed[0])
    together.feed.close()
    assert_equal(expected, of_seed_0)


@pytest.mark.slow
def test_worker_processes_give_the_same_windows(photos):
    c = config(photos, **CUTS[1])
    expected = batches(stage(c), 0, 2, 5)
    c.run.loading.workers = 2
    assert_equal(expected, batches(stage(c), 0, 2, 5))


@cuts
def test_images_have_the_labels_and_colours_of_their_index(photos, cut):
    built = stage(config(photos, **cut))
    epoch = batches(built, 0, 0, built.order.steps_per_epoch)
    index = np.concatenate([batch["index"] for batch in epoch])
    assert len(set(index)) == len(index) == 64
    label = np.concatenate([batch["target"].argmax(-1) for batch in epoch])
    np.testing.assert_array_equal(label, index // COUNT)
    brightness = np.concatenate([b["image"].mean((1, 2, 3)) for b in epoch]) * 255
    assert np.abs(brightness - 32 - 60 * np.array([1, 2, 0])[index // COUNT]).max() < 20


def test_a_window_of_the_whole_set_equals_a_set_in_memory(photos):
    c = config(photos, crop="device", window=10_000)
    c.inputs = ()
    streamed = batches(stage(c), 1, 0, 6)
    c = config(photos)
    c.inputs = ()
    assert_equal(streamed, batches(smoke_runs.stage(c.to_dict()), 1, 0, 6))


def test_the_host_crops_the_original_image(photos):
    """The largest crop is the original image, resized."""
    c = config(photos, crop="host")
    c.inputs = (dict(name="random_resized_crop", area=(1.0, 1.0), aspect=(1.0, 1.0)),)
    built = stage(c)
    (batch,) = batches(built, 0, 3, 4)
    source = config_sets.train_set("config.train", c.train.to_dict(), c.size).sources[0]
    for row, number in enumerate(batch["index"]):
        with Image.open(pathlib.Path(photos) / "train" / source.files[number]) as image:
            side = min(image.size)
            left, top = ((length - side) // 2 for length in image.size)
            window = image.crop((left, top, left + side, top + side))
        expected = np.asarray(window.resize((32, 32), Image.Resampling.BILINEAR))
        # One grey level, as the crop is decoded and resized by other code.
        assert np.abs(batch["image"][row] * 255 - expected).max() <= 1.01


def test_crops_differ_between_rows_steps_and_seeds(photos):
    built = stage(config(photos, crop="host"))
    read = built.feed.pipelines["train"].read
    drawn = {}
    for step, seed, row in itertools.product((0, 1), (0, 1), (0, 1)):
        rng = read.generator(seed, step, row)
        drawn[step, seed, row] = rng.integers(2**60)
    assert len(set(drawn.values())) == 8


def test_config_fix_gives_all_seeds_the_crops_or_the_order_of_one_seed(photos):
    plain = stage(config(photos, crop="host")).feed.pipelines["train"].read
    c = config(photos, crop="host")
    c.fix = dict(augment=7)
    cut = stage(c).feed.pipelines["train"].read
    c.fix = dict(order=7)
    ordered = stage(c).feed.pipelines["train"].read
    drawn = lambda read, seed: read.generator(seed, 1, 2).integers(2**60)
    assert drawn(cut, 0) == drawn(cut, 1) == drawn(plain, 7) != drawn(ordered, 1)
    rows = lambda read, seed: read(1, seed, slice(0, 9))["index"].tolist()
    assert rows(ordered, 0) == rows(ordered, 1) == rows(plain, 7) != rows(cut, 1)


def test_streamed_batches_have_the_shares_of_several_sets(photos):
    also = (dict(data="folder", root=photos, split="valid"),)
    for cut in CUTS:
        c = config(photos, also=also, shares=(0.5, 0.5), **cut)
        built = stage(c)
        for batch in batches(built, 0, 0, 7):
            assert batch["domain"].tolist() == [0, 1] * 8
            assert ((batch["index"] >= 69) == (batch["domain"] == 1)).all()


def test_a_second_set_is_streamed_by_its_own_options(photos):
    other = dict(data="folder", root=photos, split="valid", crop="host")
    other["inputs"] = (dict(name="random_resized_crop"),)
    built = stage(config(photos, crop="device", window=32, other=other))
    shared, rows = built.feed.shared(3), built.feed.batch(1, 3)
    assert set(rows["other"]) == {"image", "index"} and not shared["other"]
    assert rows["train"].shape == (16,)
    built.feed.close()


@cases.each(
    ("entries", "message"),
    [
        (dict(crop="hots"), r"config.train.crop: must be host, device"),
        (dict(window=32), r"config.train.window: needs crop='device'"),
        (dict(crop="host", canvas=32), r"config.train.canvas: needs crop='device'"),
        (dict(crop="device", canvas=1.5), r"config.train.canvas: must be a whole"),
        (
            dict(crop="device", canvas=31),
            r"config.train.canvas: .* at least 32, got 31",
        ),
        (
            dict(crop="device", window=15),
            r"config.train.window: .* at least 16, got 15",
        ),
        (
            dict(crop="host", data="shapes", n=64),
            r"config.train.crop: must be left out",
        ),
    ],
)
def test_wrong_options_of_streaming_are_refused(photos, tmp_path, entries, message):
    c = config(photos)
    with c.unlocked():
        if entries.get("data") == "shapes":
            c.train = dict(split="train", batch=16)
        c.train.update(entries)
    with pytest.raises(ValueError, match=message):
        train.run(c, tmp_path / "run")


@cases.each("crop", ["host", "device"])
@cases.each(
    ("options", "message"),
    [
        (dict(areas=1), r"config.inputs\[0\]: unknown option 'areas'"),
        (dict(area=(0.5, 0.1)), "random_resized_crop: area must be a range"),
        (dict(aspect=(0, 1)), "random_resized_crop: aspect must be a range"),
    ],
)
def test_options_of_the_crop_are_checked_on_host_and_device(
    photos, tmp_path, crop, options, message
):
    c = config(photos, crop=crop)
    c.inputs = (dict(name="random_resized_crop", **options),)
    with pytest.raises(ValueError, match=message):
        train.run(c, tmp_path / "run")


@cuts
def test_the_sizes_of_the_set_and_of_the_crop_are_used(photos, cut):
    c = config(photos, size=36, **cut)
    assert batches(stage(c), 0, 0, 1)[0]["image"].shape[1] == cut.get("canvas", 36)
    c.inputs = (dict(name="random_resized_crop", size=24),)
    assert batches(stage(c), 0, 0, 1)[0]["image"].shape[1] == cut.get("canvas", 24)
    c.inputs = ()
    with c.unlocked():
        if "canvas" in c.train:
            del c.train["canvas"]
    assert batches(stage(c), 0, 0, 1)[0]["image"].shape[1] == 36


def test_sets_of_two_sizes_are_refused(photos, tmp_path):
    also = (dict(data="folder", root=photos, split="train", size=40),)
    with pytest.raises(ValueError, match="config.train.size: all sets must have"):
        train.run(config(photos, crop="host", also=also), tmp_path / "run")


@cases.each("key", ["window", "canvas", "shares", "batch"])
def test_options_of_training_sets_are_refused_for_validation(photos, tmp_path, key):
    c = config(photos)
    with c.unlocked():
        c.valid[key] = 7
    with pytest.raises(ValueError, match=f"config.valid: .*got '{key}'"):
        train.run(c, tmp_path / "run")


def test_a_canvas_needs_a_crop(photos, tmp_path):
    c = config(photos, crop="device", canvas=40)
    c.inputs = (dict(name="flip"),)
    with pytest.raises(ValueError, match="config.train.canvas: needs a random_resized"):
        train.run(c, tmp_path / "run")


def test_a_crop_on_the_host_must_be_the_first_transform(photos, tmp_path):
    c = config(photos, crop="host")
    c.inputs = (dict(name="views"), dict(name="random_resized_crop"))
    with pytest.raises(ValueError, match="got it after views; take crop='device'"):
        train.run(c, tmp_path / "run")


def test_a_random_crop_of_the_validation_set_is_refused(photos, tmp_path):
    c = config(photos)
    with c.unlocked():
        c.valid.crop = "host"
    with pytest.raises(ValueError, match="config.valid.crop: must be True or False"):
        train.run(c, tmp_path / "run")


def test_images_that_fit_into_memory_are_decoded_once(photos, tmp_path, monkeypatch):
    """Three evaluations decode each image once; without memory for them, three times."""
    decoded, image = collections.Counter(), sources.EncodedSource.image

    def count(self, index, *crop):
        decoded[self.name.rpartition("/")[2]] += 1
        return image(self, index, *crop)

    monkeypatch.setattr(sources.EncodedSource, "image", count)
    for gib, evaluations in ((1.0, 1), (0.0, 3)):
        c = config(photos, crop="host")
        c.run.loading.gib = gib
        decoded.clear()
        train.run(c, tmp_path / str(gib))
        assert decoded["valid"] == evaluations * len(CLASSES) * COUNT
    log = (tmp_path / "1.0" / "log.txt").read_text()
    assert "1 of 1 test sets are decoded once and kept" in log


@pytest.mark.slow
def test_sets_that_are_read_from_files_give_the_records_of_sets_in_memory(
    photos, tmp_path
):
    c = config(photos, crop="host")
    c.epochs = 0.5
    train.run(c, tmp_path / "memory")
    c.run.loading.gib = 0.0
    train.run(c, tmp_path / "files")
    assert "read from its files" in (tmp_path / "files" / "log.txt").read_text()
    assert smoke_runs.records(tmp_path / "memory") == smoke_runs.records(
        tmp_path / "files"
    )
    provenance = json.loads((tmp_path / "files" / "provenance.json").read_text())
    assert "streamed: " in str(provenance["data"]["train/0"]["preprocessing"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "cut",
    [CUTS[0], pytest.param(CUTS[1], marks=pytest.mark.slow)],
    ids=["host", "device"],
)
def test_killed_and_resumed_with_other_workers_ends_the_same(photos, tmp_path, cut):
    c = config(photos, **cut)
    c.update(save_every="3 steps", eval_every="1 epoch")
    finish(c, tmp_path / "unbroken")
    process = smoke_runs.start(c, tmp_path / "run", "step", "8")
    output, _ = process.communicate(timeout=600)
    assert process.returncode == -signal.SIGKILL, output
    c.run.loading.update(threads=1, workers=2)
    assert "resuming" in finish(c, tmp_path / "run")
    assert_same_end(tmp_path / "unbroken", tmp_path / "run")


@pytest.mark.slow
@pytest.mark.quick("host")
@cuts
def test_the_steps_before_a_damaged_image_are_saved(photos, tmp_path, cut):
    root = tmp_path / "photos"
    for split, name in itertools.product(("train", "valid"), CLASSES):
        (root / split / name).mkdir(parents=True)
        for path in (pathlib.Path(photos) / split / name).iterdir():
            (root / split / name / path.name).write_bytes(path.read_bytes())
    c = config(str(root), **cut)
    c.run.steps_per_dispatch = 1
    built = stage(c)
    early = [b["index"] for s in (0, 1) for b in batches(built, s, 0, 2)]
    late = min(set(range(69)) - set(np.concatenate(early).tolist()))
    source = config_sets.train_set("config.train", c.train.to_dict(), c.size).sources[0]
    bad = root / "train" / source.files[late]
    bad.write_bytes(bad.read_bytes()[:200])
    with pytest.raises(ValueError, match=bad.name):
        train.run(c, tmp_path / "run")
    steps = [int(p.name) for p in (tmp_path / "run" / "checkpoints").glob("[0-9]*")]
    assert max(steps) >= 1


@cases.each("steps", [2, 100])
@cases.each("devices", [1, 4])
@cases.each("num_processes", [2, 3])
def test_parts_of_processes_partition_batches_and_windows(
    num_processes, devices, steps
):
    """No image is missing or repeated, also if the processes do not divide the window."""
    order = samplers.make_sampler(69, 12, steps, "order")
    for window in range(3 if steps == 2 else 1):
        window_pieces = [
            input_pipeline.WindowPieces(
                lambda m: {"index": m}, order, process, num_processes, devices
            )
            for process in range(num_processes)
        ]
        assert all(
            pieces_of_process.share % devices == 0
            for pieces_of_process in window_pieces
        )
        members = [
            pieces_of_process(window * pieces_of_process.pieces_per_window + i)["index"]
            for pieces_of_process in window_pieces
            for i in range(pieces_of_process.pieces_per_window)
        ]
        np.testing.assert_array_equal(np.concatenate(members), order.members(window))
    batch_parts = [
        input_pipeline.BatchPieces(
            lambda *a: {"rows": a}, (5, 6), 12, process, num_processes
        )
        for process in range(num_processes)
    ]
    rows = [
        pieces_of_process(pieces_of_process.number(4, 6) + i)["rows"]
        for pieces_of_process in batch_parts
        for i in range(pieces_of_process.pieces_per_batch)
    ]
    assert {(step, seed) for step, seed, _ in rows} == {(4, 6)}
    covered = [i for _, _, piece in rows for i in range(piece.start, piece.stop)]
    assert covered == list(range(12))


def test_a_stream_stops_when_it_is_closed():
    numbers = []

    def read(number):
        numbers.append(number)
        return {"number": np.array(number)}

    stream = loader.prefetch(read, 0, 10**9, 2)
    assert [int(next(stream)["number"]) for _ in range(5)] == [0, 1, 2, 3, 4]
    stream.close()
    assert len(numbers) < 64


@pytest.mark.slow
def test_the_shares_of_two_processes_are_the_batches_of_one(photos, tmp_path):
    also = (dict(data="folder", root=photos, split="valid"),)
    both = dict(also=also, shares=(0.25, 0.75))
    cuts = {
        "host": CUTS[0],
        "device": CUTS[1],
        "shares": {**CUTS[1], **both},
        "one_window": dict(crop="device", window=1000),
    }
    for name, cut in cuts.items():
        text = json.dumps(config(photos, **cut).to_dict())
        (tmp_path / f"{name}.json").write_text(text)
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    command = [sys.executable, "-m", "tests.two_processes", str(tmp_path), port]
    env = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    started = [
        subprocess.Popen(
            [*command, n], cwd=smoke_runs.ROOT, env=env, stderr=subprocess.PIPE
        )
        for n in ("0", "1")
    ]
    for process in started:
        _, stderr = process.communicate(timeout=300)
        assert process.returncode == 0, stderr.decode()[-2000:]
    for name, cut in cuts.items():
        shares = [np.load(tmp_path / f"{name}-{n}.npz") for n in (0, 1)]
        built = stage(config(photos, **cut))
        for step in range(5):
            shared, batch = (
                built.feed.shared(step)["train"],
                built.feed.batch(1, step)["train"],
            )
            rows = batch if cut["crop"] == "host" else shared
            for key, column in rows.items():
                column = (
                    column.rows
                    if isinstance(column, input_pipeline.FlatImages)
                    else column
                )
                first, second = (share[f"{step}/{key}"] for share in shares)
                if cut["crop"] == "device":  # Each process has the whole window.
                    np.testing.assert_array_equal(first, second)
                    np.testing.assert_array_equal(first, column)
                else:
                    whole = np.concatenate([first, second])
                    np.testing.assert_array_equal(whole, column)
        built.feed.close()


@pytest.mark.slow
def test_workers_end_with_a_killed_parent(photos, tmp_path):
    """No worker process is left after the parent was killed."""
    c = config(photos, crop="host")
    c.run.loading.update(threads=1, workers=2)
    c.epochs = 500.0
    mark = f"JBIAS_TEST_MARK={tmp_path}"
    name, value = mark.split("=")
    process = smoke_runs.start(c, tmp_path / "run", "step", "3", **{name: value})
    # Worker processes inherit the mark.
    while not _marked(mark) - {process.pid}:
        assert process.poll() is None
        time.sleep(0.05)
    # Not `communicate`, which would also wait for the workers, as they share the pipe.
    assert process.wait(timeout=120) == -signal.SIGKILL
    process.stdout.close()
    for _ in range(100):
        if not _marked(mark):
            return
        time.sleep(0.1)
    raise AssertionError(f"processes {_marked(mark)} are left")


def _marked(mark: str) -> set[int]:
    """Return the ids of processes that were started with this mark in their environment."""
    process_ids = set()
    for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark.encode() in path.read_bytes():
                process_ids.add(int(path.parent.name))
    return process_ids
