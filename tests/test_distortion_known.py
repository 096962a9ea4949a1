"""From evaluate to the report with networks whose answers are known in closed form.

Each tells whether the mean brightness of 16 pixels, at rows and columns 0, 8, 16 and 24,
is above a bound: all its layers pass one channel on, and its strides take every eighth
pixel. Its Grad-CAM map is the brightness of every fourth pixel where it is above, and
without evidence where it is below.
"""

import csv
import functools
import json

import cv2
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias import config as jc
from jbias import data, evaluate, models
from jbias.configs import distortion as training
from jbias.evals import decisions
from jbias.papers import distortion as report
from jbias.runs import results

K = 16
ABOVE, BELOW = 3, 5  # The classes it answers.
SHOWN = dict(correlation=0.99, n=240, size=32)
SUITE = "--suite=configs/suites/distortion.py:smoke,images=240"
BOUNDS = (0.45, 0.55)  # Of brightness, by seed; moved to where no image is near.


@functools.cache
def brightness(split: str) -> tuple[np.ndarray, np.ndarray]:
    """Of each pixel of a split's images in [0, 1], and their labels."""
    source = data.load("shapes", split, **SHOWN)
    images = np.stack([source[i]["image"] for i in range(len(source))])
    return images.astype(np.float64).mean(3) / 255, np.asarray(source.columns["label"])


def seen(brightness: np.ndarray) -> np.ndarray:
    return brightness[:, ::8, ::8].mean((1, 2))


def bound(near: float) -> float:
    """The middle of the widest gap between the images near it."""
    values = np.sort(
        np.concatenate([seen(brightness(s)[0]) for s in ("test", "train")])
    )
    values = values[abs(values - near) < 0.05]
    widest = np.diff(values).argmax()
    return float(values[widest : widest + 2].mean())


def saved(workdir, seed: int):
    """A run's workdir with the network, as training leaves it."""
    options = dict(width=4, mean=(0.0,) * 3, std=(1.0,) * 3)
    net = models.MODELS["preact_resnet18"](K, **options)
    shapes = jax.eval_shape(net.init, jax.random.key(0), jnp.zeros((1, 32, 32, 3)))
    ones = {"scale": np.float32(1 + 1e-5) ** 0.5, "var": np.float32(1)}
    found = jax.tree_util.tree_map_with_path(
        lambda path, x: np.full(x.shape, ones.get(path[-1].key, 0), np.float32), shapes
    )
    params, fc = found["params"], found["params"]["fc"]
    params["stem"]["conv1"]["kernel"][1, 1, :, 0] = 1 / 3
    for stage in ("stage2", "stage3", "stage4"):
        params[stage]["block0"]["proj"]["kernel"][0, 0, 0, 0] = 1
    fc["kernel"][0, [ABOVE, BELOW]] = 1, -1
    fc["bias"][:] = -9
    limit = bound(BOUNDS[seed])
    fc["bias"][[ABOVE, BELOW]] = -limit, limit
    models.save_run(workdir, net, found)
    config = jc.to_dict(training.get_config("method=basic,smoke,seeds=1"))
    config |= dict(seeds=[seed], model=dict(name="preact_resnet18", **options))
    (workdir / "config.json").write_text(json.dumps(config))
    source = data.load("shapes", "train", **SHOWN)
    told = {"names": list(source.classes), "space": source.space}
    (workdir / "provenance.json").write_text(json.dumps({"data": {"train/0": told}}))
    return limit


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Bounds and folders of both networks, measured."""
    folder = tmp_path_factory.mktemp("known")
    limits = [saved(folder / f"runs/{seed}", seed) for seed in range(2)]
    only = "accuracy,grid_shuffle,cut_occlusion,occlusion_other"
    hidden = ["--suite.measures.occlusion_other.fill=black"]
    hidden += ["--suite.measures.cut_occlusion.fills=('black','mean')"]
    args = [f"--runs={folder}/runs/*", f"--only={only}", SUITE, *hidden]
    assert evaluate.main([*args, f"--out={folder / 'out'}"]) == 0
    folders = sorted((folder / "out").iterdir())
    assert len(folders) == 2
    return limits, folders


def answers(limit: float, brightness: np.ndarray) -> np.ndarray:
    return np.where(seen(brightness) > limit, ABOVE, BELOW)


def without_the_most_salient(limit: float, brightness: np.ndarray) -> np.ndarray:
    """Images whose 308 most salient pixels of 1024 are black."""
    found = []
    for one, answer in zip(brightness, answers(limit, brightness), strict=True):
        coarse = one[::4, ::4] if answer == ABOVE else np.zeros((8, 8))
        fine = cv2.resize(coarse.astype(np.float32), (32, 32))
        order = np.argsort(-fine.ravel(), kind="stable")[:308]
        found.append(one.copy())
        found[-1].ravel()[order] = 0
    return np.stack(found)


def kept(folder, split: str, measure: str):
    return decisions.read_conditions(folder / f"decisions/{split}/{measure}.parquet")


def index(clean, distorted, label) -> np.ndarray:
    """i of the formula: how much each class's share of the errors grows."""
    shares = [
        np.bincount(one[one != label], minlength=K) / (one != label).sum()
        for one in (clean, distorted)
    ]
    return np.maximum(shares[1] - shares[0], 0) * K / 100


@pytest.mark.slow
@pytest.mark.parametrize("split", ["test", "train"])
def test_images_as_they_are(measured, split):
    for limit, folder in zip(*measured, strict=True):
        shown, label = brightness(split)
        found = kept(folder, split, "accuracy")[""]
        np.testing.assert_array_equal(found.prediction, answers(limit, shown))
        np.testing.assert_array_equal(found.columns["label"], label)
        assert {*found.prediction} == {ABOVE, BELOW}


@pytest.mark.slow
def test_tiles_whose_corners_are_the_pixels_change_nothing(measured):
    for _, folder in zip(*measured, strict=True):
        by = kept(folder, "test", "grid_shuffle")
        for tiles in ("2x2", "4x4"):
            np.testing.assert_array_equal(by[tiles].prediction, by[""].prediction)
        assert (by["8x8"].prediction != by[""].prediction).any()


@pytest.mark.slow
def test_black_boxes_make_nothing_brighter(measured):
    for _, folder in zip(*measured, strict=True):
        by = kept(folder, "test", "cut_occlusion")
        before, after = by[""].prediction, by["black"].prediction
        assert (after[before == BELOW] == BELOW).all()
        assert (after[before == ABOVE] == BELOW).mean() > 0.2


@pytest.mark.slow
@pytest.mark.parametrize("split", ["test", "train"])
def test_the_most_salient_pixels_are_the_brightest(measured, split):
    for limit, folder in zip(*measured, strict=True):
        shown, _ = brightness(split)
        hidden = without_the_most_salient(limit, shown)
        by = kept(folder, split, "occlusion_other")
        found = by["grad_cam most 0.3"].prediction
        # Equal pixels go in an order that rounding may change.
        clear = abs(seen(hidden) - limit) > 1e-3
        same = found == answers(limit, hidden)
        assert same[clear].mean() > 0.98 and (found != by[""].prediction).mean() > 0.1


@pytest.mark.slow
def test_records_and_report_have_what_follows(measured, tmp_path):
    """By the formula of the index, and accuracies of the answers that were computed."""
    limits, folders = measured
    args = ["--measured", *map(str, folders), f"--out={tmp_path}"]
    assert report.main(args) == 0
    shown, label = brightness("test")
    right = [(answers(limit, shown) == label).mean() for limit in limits]
    (group,) = table(tmp_path, "groups")
    assert (group["method"], group["data"], group["n"]) == ("basic", "shapes", "2")
    assert float(group["accuracy"]) == pytest.approx(100 * np.mean(right))

    grown = []
    for folder in folders:
        by = kept(folder, "test", "cut_occlusion")
        grown.append(index(by[""].prediction, by["black"].prediction, label))
        # Errors grow for one class alone: its share of the growth is 1.
        assert grown[-1][BELOW] == grown[-1].sum() > 0
        found = results.read(folder)
        found = found.set_index(["dataset", "condition", "metric"])["value"]
        told = found["test", "cut_occlusion/black", "di_index"]
        assert told == pytest.approx(100 * grown[-1][BELOW])
    (black,) = ours(tmp_path, "table3_cut_occlusion")
    assert float(black["mean"]) == pytest.approx(100 * np.mean(grown, 0)[BELOW])
    assert black["dominant"] == data.load("shapes", "test", n=48).classes[BELOW]
    (tiles,) = ours(tmp_path, "table1_grid_shuffle")
    assert float(tiles["mean"]) == 0

    for row in table(tmp_path, "gaps"):
        if (row["way"], row["hidden"]) != ("grad_cam most", "0.3"):
            continue
        for split in ("test", "train"):
            label = brightness(split)[1]
            by = [kept(folder, split, "occlusion_other") for folder in folders]
            right = [one["grad_cam most 0.3"].prediction == label for one in by]
            assert float(row[split]) == pytest.approx(np.mean(right))
        return
    raise AssertionError("no accuracies with the most salient pixels hidden")


def table(folder, name) -> list[dict[str, str]]:
    with open(folder / f"tables/{name}.csv", newline="") as file:
        return list(csv.DictReader(file))


def ours(folder, name) -> list[dict[str, str]]:
    return [row for row in table(folder, name) if row["source"] != "paper"]
