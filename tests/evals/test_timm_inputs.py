"""Values read from timm's configurations prepare photographs as timm itself does."""

import numpy as np
import pytest
from PIL import Image

from jbias.data import decoding
from jbias.evals import described_preprocessing, model_inputs, predictors

# They differ in crop, interpolation, mean, deviation, crop mode or size.
ARCHITECTURES = (
    "resnet50.a1_in1k",
    "resnet18.tv_in1k",
    "vit_base_patch16_224.augreg2_in21k_ft_in1k",
    "inception_v3.tf_in1k",
    "efficientnet_b3.ra2_in1k",
    "convnext_tiny.fb_in22k_ft_in1k_384",
    "deit3_small_patch16_384.fb_in1k",
    "beitv2_base_patch16_224.in1k_ft_in22k_in1k",
    "vit_base_patch16_clip_224.openai_ft_in1k",
    "eva02_base_patch14_448.mim_in22k_ft_in1k",
    "mixnet_s.ft_in1k",
    "nf_regnet_b1.ra2_in1k",
    "tf_efficientnet_l2.ns_jft_in1k",
)


def _photographs(unpacked):
    root = unpacked("imagenet-sample", "imagenet-sample/original")
    return sorted(root.rglob("*.JPEG"))[::17][:5]


def _largest_difference(config, paths) -> float:
    """Return how far our inputs are from timm's, in units of its normalised images."""
    import timm.data

    resolved = timm.data.resolve_data_config(pretrained_cfg=config)
    transform = timm.data.create_transform(**resolved, is_training=False)
    description = described_preprocessing.parse(config, "pretrained_cfg")
    inputs = model_inputs.choose(description, size=None, default=224)
    prepare = decoding.preprocess(inputs.size, **inputs.options)
    network = predictors.Predictor(lambda images: images, preprocess=description)
    mean, std = (np.float32(network.resolve().values[key]) for key in ("mean", "std"))
    differences = []
    for path in paths:
        ours = decoding.read(str(path), prepare).astype(np.float32) / 255
        with Image.open(path) as image:
            theirs = transform(image.convert("RGB")).numpy().transpose(1, 2, 0)
        differences.append(float(np.abs((ours - mean) / std - theirs).max()))
    return max(differences)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["", "center", "squash", "border"])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_inputs_equal_timms_transform(unpacked, name, mode):
    """The only difference is rounding in the normalisation, in float32."""
    timm = pytest.importorskip("timm")
    paths = _photographs(unpacked)
    assert len(paths) == 5
    config = timm.models.get_pretrained_cfg(name).to_dict()
    if mode:
        config["crop_mode"] = mode
    difference = _largest_difference(config, paths)
    keys = ("input_size", "crop_pct", "interpolation", "crop_mode", "mean", "std")
    print(name, mode, difference, {key: config.get(key) for key in keys})
    assert difference < 1e-6


def test_a_crop_fraction_keeps_its_meaning_at_another_size():
    description = described_preprocessing.parse(
        {"input_size": (3, 224, 224), "crop_pct": 0.95}
    )
    at_own_size = model_inputs.choose(description, size=None, default=32)
    larger = model_inputs.choose(description, size=288, default=32)
    assert (at_own_size.size, at_own_size.options) == (224, {"resize": 235})
    assert (larger.size, larger.options) == (288, {"resize": 303})


def test_stimuli_of_one_size_are_shown_whole_and_photographs_cropped():
    description = described_preprocessing.parse(
        {"input_size": (3, 224, 224), "crop_pct": 0.9, "interpolation": "bicubic"}
    )
    inputs = model_inputs.choose(description, size=None, default=32)
    sets = {
        "cue-conflict": {"data": "geirhos", "split": "cue-conflict", "root": "a"},
        "photos": {"data": "folder", "split": "test", "root": "b"},
        "shapes": {"data": "shapes", "split": "test"},
    }
    prepared = model_inputs.prepare(sets, inputs)
    assert prepared["cue-conflict"] == {
        "interpolation": "bicubic",
        **sets["cue-conflict"],
    }
    assert prepared["photos"] == {
        "interpolation": "bicubic",
        "resize": 248,
        **sets["photos"],
    }
    assert prepared["shapes"] == sets["shapes"]


def test_an_unknown_interpolation_is_refused_by_name():
    description = described_preprocessing.parse(
        {"input_size": (3, 8, 8), "interpolation": "cubic"}
    )
    with pytest.raises(ValueError, match="interpolation must be one of .*'cubic'"):
        model_inputs.choose(description, size=None, default=8)
