"""Distortion: from jbias evaluate to the report, for networks with known answers.

A network decides whether the mean brightness of 16 pixels, at rows and columns 0, 8, 16 and
24, is above a bound: all layers pass on one channel, and strides select every eighth pixel.
If the mean is above the bound, the Grad-CAM map is the brightness of every fourth pixel;
otherwise it is 0.
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
from jbias.evals import decision_files
from jbias.papers import distortion as report
from jbias.runs import results

K = 16
ABOVE, BELOW = 3, 5  # The classes it answers.
SET_OPTIONS = dict(correlation=0.99, n=240, size=32)
SUITE = "--suite=configs/suites/distortion.py:smoke,images=240"
BOUNDS = (0.45, 0.55)  # Brightness by seed; `find_bound` moves it away from all images.


@functools.cache
def brightness(split: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the brightness, in [0, 1], of a split's images (n, h, w), and the labels."""
    source = data.load("shapes", split, **SET_OPTIONS)
    images = np.stack([source[i]["image"] for i in range(len(source))])
    return images.astype(np.float64).mean(3) / 255, np.asarray(source.columns["label"])


def sampled_brightness(brightness: np.ndarray) -> np.ndarray:
    return brightness[:, ::8, ::8].mean((1, 2))


def find_bound(near: float) -> float:
    """Return the middle of the widest gap between images within 0.05 of a brightness."""
    values = np.sort(
        np.concatenate(
            [sampled_brightness(brightness(s)[0]) for s in ("test", "train")]
        )
    )
    values = values[abs(values - near) < 0.05]
    widest = np.diff(values).argmax()
    return float(values[widest : widest + 2].mean())


def save_run(workdir, seed: int):
    """Write the workdir of a trained run with the network; return its bound."""
    options = dict(width=4, mean=(0.0,) * 3, std=(1.0,) * 3)
    net = models.MODELS["preact_resnet18"](K, **options)
    shapes = jax.eval_shape(net.init, jax.random.key(0), jnp.zeros((1, 32, 32, 3)))
    ones = {"scale": np.float32(1 + 1e-5) ** 0.5, "var": np.float32(1)}
    variables = jax.tree_util.tree_map_with_path(
        lambda path, x: np.full(x.shape, ones.get(path[-1].key, 0), np.float32), shapes
    )
    params, fc = variables["params"], variables["params"]["fc"]
    params["stem"]["conv1"]["kernel"][1, 1, :, 0] = 1 / 3
    for stage in ("stage2", "stage3", "stage4"):
        params[stage]["block0"]["proj"]["kernel"][0, 0, 0, 0] = 1
    fc["kernel"][0, [ABOVE, BELOW]] = 1, -1
    fc["bias"][:] = -9
    limit = find_bound(BOUNDS[seed])
    fc["bias"][[ABOVE, BELOW]] = -limit, limit
    models.save_run(workdir, net, variables)
    config = jc.to_dict(training.get_config("method=basic,smoke,seeds=1"))
    config |= dict(seeds=[seed], model=dict(name="preact_resnet18", **options))
    (workdir / "config.json").write_text(json.dumps(config))
    source = data.load("shapes", "train", **SET_OPTIONS)
    train_description = {"names": list(source.classes), "space": source.space}
    (workdir / "provenance.json").write_text(
        json.dumps({"data": {"train/0": train_description}})
    )
    return limit


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Evaluate both networks; return their bounds and folders."""
    folder = tmp_path_factory.mktemp("known")
    limits = [save_run(folder / f"runs/{seed}", seed) for seed in range(2)]
    measures = "accuracy,grid_shuffle,cut_occlusion,occlusion_other"
    fill_options = ["--suite.measures.occlusion_other.fill=black"]
    fill_options += ["--suite.measures.cut_occlusion.fills=('black','mean')"]
    args = [f"--runs={folder}/runs/*", f"--only={measures}", SUITE, *fill_options]
    assert evaluate.main([*args, f"--out={folder / 'out'}"]) == 0
    folders = sorted((folder / "out").iterdir())
    assert len(folders) == 2
    return limits, folders


def expected_answers(limit: float, brightness: np.ndarray) -> np.ndarray:
    return np.where(sampled_brightness(brightness) > limit, ABOVE, BELOW)


def without_the_most_salient(limit: float, brightness: np.ndarray) -> np.ndarray:
    """Return the brightness of images whose 308 most salient pixels of 1024 are black."""
    images = []
    for image, answer in zip(
        brightness, expected_answers(limit, brightness), strict=True
    ):
        coarse = image[::4, ::4] if answer == ABOVE else np.zeros((8, 8))
        fine = cv2.resize(coarse.astype(np.float32), (32, 32))
        order = np.argsort(-fine.ravel(), kind="stable")[:308]
        images.append(image.copy())
        images[-1].ravel()[order] = 0
    return np.stack(images)


def read_decisions(folder, split: str, measure: str):
    return decision_files.read_conditions(
        folder / f"decisions/{split}/{measure}.parquet"
    )


def index_by_class(clean, distorted, label) -> np.ndarray:
    """Return the increase of each class's share of the errors, i of the formula."""
    shares = [
        np.bincount(decided[decided != label], minlength=K) / (decided != label).sum()
        for decided in (clean, distorted)
    ]
    return np.maximum(shares[1] - shares[0], 0) * K / 100


@pytest.mark.slow
@pytest.mark.parametrize("split", ["test", "train"])
def test_unchanged_images_have_the_expected_answers(measured, split):
    limits, folders = measured
    for limit, folder in zip(limits, folders, strict=True):
        pixels, label = brightness(split)
        decided = read_decisions(folder, split, "accuracy")[""]
        np.testing.assert_array_equal(
            decided.prediction, expected_answers(limit, pixels)
        )
        np.testing.assert_array_equal(decided.columns["label"], label)
        assert {*decided.prediction} == {ABOVE, BELOW}


@pytest.mark.slow
def test_large_tiles_change_no_answer(measured):
    _, folders = measured
    for folder in folders:
        decided = read_decisions(folder, "test", "grid_shuffle")
        for tiles in ("2x2", "4x4"):
            np.testing.assert_array_equal(
                decided[tiles].prediction, decided[""].prediction
            )
        assert (decided["8x8"].prediction != decided[""].prediction).any()


@pytest.mark.slow
def test_black_boxes_only_darken_images(measured):
    _, folders = measured
    for folder in folders:
        decided = read_decisions(folder, "test", "cut_occlusion")
        clean_answers, answers_with_box = (
            decided[""].prediction,
            decided["black"].prediction,
        )
        assert (answers_with_box[clean_answers == BELOW] == BELOW).all()
        assert (answers_with_box[clean_answers == ABOVE] == BELOW).mean() > 0.2


@pytest.mark.slow
@pytest.mark.parametrize("split", ["test", "train"])
def test_the_most_salient_pixels_are_the_brightest(measured, split):
    limits, folders = measured
    for limit, folder in zip(limits, folders, strict=True):
        pixels, _ = brightness(split)
        hidden = without_the_most_salient(limit, pixels)
        decided = read_decisions(folder, split, "occlusion_other")
        occluded_answers = decided["grad_cam most 0.3"].prediction
        # Rounding may change the order of equal pixels.
        is_clear = abs(sampled_brightness(hidden) - limit) > 1e-3
        is_expected = occluded_answers == expected_answers(limit, hidden)
        assert (
            is_expected[is_clear].mean() > 0.98
            and (occluded_answers != decided[""].prediction).mean() > 0.1
        )


@pytest.mark.slow
def test_records_and_report_have_the_numbers_of_the_answers(measured, tmp_path):
    """The index follows the formula, and the accuracies those of the expected answers."""
    limits, folders = measured
    args = ["--measured", *map(str, folders), f"--out={tmp_path}"]
    assert report.main(args) == 0
    pixels, label = brightness("test")
    accuracies = [(expected_answers(limit, pixels) == label).mean() for limit in limits]
    (group,) = table(tmp_path, "groups")
    assert (group["method"], group["data"], group["n"]) == ("basic", "shapes", "2")
    assert float(group["accuracy"]) == pytest.approx(100 * np.mean(accuracies))

    increases = []
    for folder in folders:
        decided = read_decisions(folder, "test", "cut_occlusion")
        increases.append(
            index_by_class(decided[""].prediction, decided["black"].prediction, label)
        )
        # Only the errors of one class grow, so its share of the growth is 1.
        assert increases[-1][BELOW] == increases[-1].sum() > 0
        records = results.read(folder)
        records = records.set_index(["dataset", "condition", "metric"])["value"]
        recorded_index = records["test", "cut_occlusion/black", "di_index"]
        assert recorded_index == pytest.approx(100 * increases[-1][BELOW])
    (black,) = own_rows(tmp_path, "table3_cut_occlusion")
    assert float(black["mean"]) == pytest.approx(100 * np.mean(increases, 0)[BELOW])
    assert black["dominant"] == data.load("shapes", "test", n=48).classes[BELOW]
    (tiles,) = own_rows(tmp_path, "table1_grid_shuffle")
    assert float(tiles["mean"]) == 0

    for row in table(tmp_path, "gaps"):
        if (row["masking"], row["hidden"]) != ("grad_cam most", "0.3"):
            continue
        for split in ("test", "train"):
            label = brightness(split)[1]
            decided = [
                read_decisions(folder, split, "occlusion_other") for folder in folders
            ]
            accuracies = [
                occluded["grad_cam most 0.3"].prediction == label
                for occluded in decided
            ]
            assert float(row[split]) == pytest.approx(np.mean(accuracies))
        return
    raise AssertionError("no accuracies with the most salient pixels hidden")


def table(folder, name) -> list[dict[str, str]]:
    with open(folder / f"tables/{name}.csv", newline="") as file:
        return list(csv.DictReader(file))


def own_rows(folder, name) -> list[dict[str, str]]:
    return [row for row in table(folder, name) if row["source"] != "paper"]
