"""The preprocessing that models describe is read, applied and reported."""

import functools
import types

import numpy as np
import pytest

from jbias.evals import described_preprocessing, predictors
from tests import cases

HALF = (0.5, 0.5, 0.5)
TIMM = {
    "input_size": (3, 288, 288),
    "crop_pct": 0.95,
    "interpolation": "bicubic",
    "mean": HALF,
    "std": (0.25, 0.5, 0.125),
}


class Resize:
    def __init__(self, size):
        self.size, self.interpolation = size, types.SimpleNamespace(value="bicubic")


class CenterCrop:
    def __init__(self, size):
        self.size = size


class Normalize:
    def __init__(self, mean, std):
        self.mean, self.std = mean, std


class Sharpen:
    """An unknown step."""


class ImageClassification:
    """A stand-in for the transforms of torchvision's weights."""

    def __init__(self, crop_size, resize_size=256):
        self.crop_size, self.resize_size = [crop_size], [resize_size]
        self.mean, self.std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
        self.interpolation = types.SimpleNamespace(value="bilinear")


def compose(*steps):
    return types.SimpleNamespace(transforms=[*steps])


PROCESSOR = types.SimpleNamespace(
    image_mean=[0.48, 0.45, 0.4],
    image_std=[0.27, 0.26, 0.28],
    size={"shortest_edge": 256},
    crop_size={"height": 224, "width": 224},
    resample=3,
    do_normalize=True,
    do_rescale=True,
    rescale_factor=1 / 255,
)


@cases.each(
    "case",
    {
        "timm": (TIMM, HALF, 288, 0.95, "bicubic"),
        "timm's object": (types.SimpleNamespace(**TIMM), HALF, 288, 0.95, "bicubic"),
        "torchvision": (
            functools.partial(ImageClassification, crop_size=224),
            (0.485, 0.456, 0.406),
            224,
            0.875,
            "bilinear",
        ),
        "weights": (
            types.SimpleNamespace(
                transforms=functools.partial(ImageClassification, 232)
            ),
            (0.485, 0.456, 0.406),
            232,
            0.9062,
            "bilinear",
        ),
        "transformers": (PROCESSOR, (0.48, 0.45, 0.4), 224, 0.875, "bicubic"),
        "steps": (
            compose(Resize(256), CenterCrop((224, 224)), Normalize(HALF, HALF)),
            HALF,
            224,
            0.875,
            "bicubic",
        ),
    }.values(),
)
def test_every_form_of_a_description_is_read(case):
    source, mean, size, crop, interpolation = case
    values = described_preprocessing.parse(source).values
    assert (values["mean"], values["size"]) == (mean, size)
    assert (values["crop"], values["interpolation"]) == (crop, interpolation)


def test_constants_for_bytes_are_converted_to_images_in_0_to_1():
    """Bytes x become x * factor - mean: the mean of x / 255 is mean / (255 factor)."""
    source = {"image_mean": 127.5, "image_std": 51, "rescale_factor": 1.0}
    values = described_preprocessing.parse(source).values
    assert values["mean"] == HALF and values["std"] == pytest.approx((0.2,) * 3)
    unnormalized = described_preprocessing.parse(
        {"image_mean": 0.5, "image_std": 0.5, "do_normalize": False}
    )
    assert (unnormalized.values["mean"], unnormalized.values["std"]) == (
        (0, 0, 0),
        (1, 1, 1),
    )


def test_a_step_that_is_not_applied_is_named():
    parsed = described_preprocessing.parse(compose(Sharpen(), Normalize(HALF, HALF)))
    assert parsed.notes == ("preprocess= has Sharpen, which is not applied",)


def test_the_description_of_a_wrapped_module_is_read():
    inner = types.SimpleNamespace(pretrained_cfg=TIMM)
    for wrapped in (
        inner,
        types.SimpleNamespace(module=inner),
        types.SimpleNamespace(_orig_mod=types.SimpleNamespace(module=inner)),
    ):
        read = described_preprocessing.read(wrapped)
        assert read.values["std"] == TIMM["std"]
        assert read.origins["std"] == "pretrained_cfg"
    empty = types.SimpleNamespace(pretrained_cfg={}, default_cfg=TIMM)
    assert described_preprocessing.read(empty).origins["mean"] == "default_cfg"
    assert described_preprocessing.read(object()).values == {}


def test_attributes_of_other_types_are_no_descriptions():
    class Model:
        processor = types.SimpleNamespace(size="large")

        def preprocess(self, image):
            return image

    read = described_preprocessing.read(Model())
    assert read.values == {} and "attribute processor is not read" in read.notes[0]


def test_invalid_constants_in_a_description_are_refused():
    for invalid in ({"mean": (1, 2)}, {"std": 0.0}, {"mean": "x"}, {"std": np.nan}):
        with pytest.raises(ValueError, match="must be three numbers, or one"):
            described_preprocessing.read(
                types.SimpleNamespace(pretrained_cfg={**TIMM, **invalid})
            )


def test_arguments_override_the_model_and_the_model_overrides_defaults():
    of_model = described_preprocessing.parse(TIMM, "pretrained_cfg")
    defaults = {"mean": 0.1, "std": 0.2}
    resolved = described_preprocessing.resolve(
        of_model, {"mean": 0.3, "std": None}, defaults
    )
    assert (
        resolved.values["mean"] == (0.3, 0.3, 0.3)
        and resolved.values["std"] == TIMM["std"]
    )
    assert (
        resolved.origins["mean"] == "mean="
        and resolved.origins["std"] == "pretrained_cfg"
    )
    assert resolved.notes == ("mean=0.3 was given, while pretrained_cfg says 0.5",)
    resolved_same = described_preprocessing.resolve(of_model, {"mean": 0.5}, defaults)
    assert resolved_same.notes == ()
    resolved_silent = described_preprocessing.resolve(
        described_preprocessing.Preprocessing(), {}, defaults
    )
    assert resolved_silent.values["std"] == (0.2, 0.2, 0.2)
    assert resolved_silent.origins["std"] == "by default: the model says nothing"


def test_a_line_lists_applied_and_ignored_settings():
    resolved = described_preprocessing.resolve(
        described_preprocessing.parse(TIMM, "pretrained_cfg"), {}, {}
    )
    line = described_preprocessing.describe(resolved, 224, ["short side 256"])
    assert line == (
        "images of 224 pixels (the suite's: short side 256); not applied, as the suite's "
        "sets decide: 288 pixels (pretrained_cfg), crop fraction 0.95 (pretrained_cfg), "
        "bicubic (pretrained_cfg); mean 0.5 (pretrained_cfg); "
        "std 0.25 0.5 0.125 (pretrained_cfg)"
    )


def test_a_predictor_applies_its_description_and_reports_it():
    lines, images_seen = [], []

    def model(images):
        images_seen.append(images)
        return images.mean((1, 2))

    predictor = predictors.Predictor(model, list("abc"), preprocess=TIMM)
    network = predictors.open_predictor(predictor, 32, lines.append)
    expected = (predictors.trial_images(32) / 255 - HALF) / TIMM["std"]
    np.testing.assert_allclose(images_seen[0], expected, rtol=1e-5, atol=1e-5)
    assert network.preprocessing["mean"] == [0.5] * 3
    assert (
        "mean 0.5 (preprocess=)" in lines[1]
        and "mean 0.5" in network.about["preprocessing"]
    )
    plain = predictors.Predictor(model, list("abc"))
    predictors.open_predictor(plain, 32, lines.append)
    assert "in [0, 1], nothing taken off (by default for a function)" in lines[3]
    np.testing.assert_array_equal(
        images_seen[1], predictors.trial_images(32) / np.float32(255)
    )
    with pytest.raises(ValueError, match="preprocess: must be left out"):
        predictors.Predictor(model, images="uint8", preprocess=TIMM)


class Compose:
    def __init__(self, *steps):
        self.transforms = [*steps]


class Lambda:
    def __init__(self, lambd):
        self.lambd = lambd


class ToTensor:
    """A stand-in: converts bytes to numbers in [0, 1]."""


class ToImage:
    """A stand-in: keeps bytes."""


class ToDtype:
    def __init__(self, scale):
        self.scale = scale


def make_processor(**fields):
    return types.SimpleNamespace(**{**vars(PROCESSOR), **fields})


MEAN, STD = np.array([0.48, 0.45, 0.4]), np.array([0.27, 0.26, 0.28])


@cases.each(
    ("fields", "applied"),
    [
        ({}, lambda x: (x / 255 - MEAN) / STD),
        (
            {"do_rescale": False, "image_mean": 255 * MEAN, "image_std": 255 * STD},
            lambda x: (x - 255 * MEAN) / (255 * STD),
        ),
        # Constants below 1 imply images that are already in [0, 1].
        ({"do_rescale": False}, lambda x: (x / 255 - MEAN) / STD),
        ({"include_top": True}, lambda x: (x / 255 - MEAN) / STD / STD),
        (
            {"rescale_factor": 1 / 127.5, "rescale_offset": True},
            lambda x: (x / 127.5 - 1 - MEAN) / STD,
        ),
        (
            {"rescale_factor": 1 / 127.5, "offset": True, "do_normalize": False},
            lambda x: x / 127.5 - 1,
        ),
        (
            {"image_mean": None, "image_std": None, "do_normalize": None},
            lambda x: x / 255,
        ),
    ],
)
def test_rescaling_and_normalization_of_a_processor_become_one_mean_and_deviation(
    fields, applied
):
    pixels = np.random.default_rng(0).integers(0, 256, (5, 3)).astype(float)
    values = described_preprocessing.parse(make_processor(**fields)).values
    expected = (pixels / 255 - values["mean"]) / values["std"]
    np.testing.assert_allclose(expected, applied(pixels), rtol=1e-5, atol=1e-5)


@cases.each(
    ("fields", "message"),
    [
        ({"do_flip_channel_order": True}, "got do_flip_channel_order=True, which is"),
        (
            {"do_rescale": False, "do_normalize": False},
            "got do_rescale=False with mean",
        ),
        ({"rescale_factor": 0}, "rescale_factor: must be three numbers, or one, above"),
        ({"image_mean": None}, "image_mean: must be three numbers, or one, got None"),
        ({"rescale_factor": None, "image_mean": 123.7}, "mean: must be of images in"),
    ],
)
def test_a_processor_that_does_more_than_a_normalisation_is_refused_by_its_field(
    fields, message
):
    with pytest.raises(ValueError, match=message):
        described_preprocessing.parse(make_processor(**fields))
    read = described_preprocessing.read(
        types.SimpleNamespace(processor=make_processor(**fields))
    )
    assert read.values == {} and "attribute processor is not read" in read.notes[0]


@cases.each(
    ("steps", "applied"),
    [
        ([ToTensor(), Normalize(HALF, 0.25)], lambda x: (x / 255 - 0.5) / 0.25),
        (
            [ToTensor(), Normalize(HALF, HALF), Normalize(MEAN, STD)],
            lambda x: ((x / 255 - 0.5) / 0.5 - MEAN) / STD,
        ),
        (
            [ToImage(), ToDtype(scale=False), Normalize(100, 50)],
            lambda x: (x - 100) / 50,
        ),
        ([ToImage(), ToDtype(scale=True), Normalize(0.5, 1)], lambda x: x / 255 - 0.5),
        ([ToImage()], lambda x: x),
        ([Resize(256), ToTensor()], lambda x: x / 255),
        (
            [Compose(Resize(256)), Compose(ToTensor(), Normalize(0.5, 2))],
            lambda x: (x / 255 - 0.5) / 2,
        ),
    ],
)
def test_steps_are_applied_in_their_order(steps, applied):
    pixels = np.random.default_rng(0).integers(0, 256, (5, 3)).astype(float)
    for source in (steps, tuple(steps), Compose(*steps)):
        parsed = described_preprocessing.parse(source)
        values, notes = parsed.values, parsed.notes
        expected = (pixels / 255 - values["mean"]) / values["std"]
        np.testing.assert_allclose(expected, applied(pixels), rtol=1e-5, atol=1e-4)
        assert notes == ()


def test_functions_among_steps_are_named_unless_they_convert_to_rgb():
    def _convert_to_rgb(image):
        return image

    def to_bgr(image):
        return image[::-1]

    steps = [_convert_to_rgb, Lambda(_convert_to_rgb), to_bgr, Lambda(to_bgr)]
    parsed = described_preprocessing.parse([*steps, ToTensor(), Normalize(HALF, HALF)])
    assert [note.removesuffix(", which is not applied") for note in parsed.notes] == [
        "preprocess= has function to_bgr",
        "preprocess= has Lambda",
    ]
    with pytest.raises(ValueError, match=r"mean: must be of images in \[0, 1\]"):
        described_preprocessing.parse(
            [ToTensor(), Lambda(to_bgr), Normalize(103.5, 57)]
        )


@cases.each(
    ("source", "message"),
    [
        (lambda image: image - 0.5, "got function <lambda>"),
        (functools.partial(min, 1), "got partial"),
        ("imagenet", "got 'imagenet'"),
        ({"normalize": {"mean": 0.5}}, "got a dict of normalize"),
        ({}, "got a dict of nothing"),
        ([0.5, 0.5], "got list"),
        (Normalize, "got type Normalize"),
        (0.5, "got float"),
        (compose(Sharpen()), "got SimpleNamespace"),
    ],
)
def test_a_source_that_describes_nothing_is_refused(source, message):
    with pytest.raises(ValueError, match=message) as error_info:
        predictors.Predictor(lambda images: images, preprocess=source)
    assert "preprocess=: must describe mean and std" in str(error_info.value)
    assert "\n" not in str(error_info.value)


def test_an_attribute_of_a_module_that_is_a_function_is_named():
    read = described_preprocessing.read(
        types.SimpleNamespace(preprocess=lambda image: image)
    )
    assert read.notes == ("attribute preprocess is not read (it is function <lambda>)",)


def test_the_image_processor_of_an_image_and_text_processor_is_read():
    image_and_text = types.SimpleNamespace(
        image_processor=PROCESSOR, tokenizer=object()
    )
    expected = described_preprocessing.parse(PROCESSOR).values
    assert described_preprocessing.parse(image_and_text).values == expected
    assert (
        described_preprocessing.parse({"image_processor": PROCESSOR}).values == expected
    )


@cases.each(
    ("sides", "size"),
    [
        ({"height": 200, "width": 224}, 224),
        ({"shortest_edge": 224, "longest_edge": 512}, 224),
        ({"longest_edge": 384}, 384),
    ],
)
def test_sides_may_be_entries_or_attributes_and_none_is_no_side(sides, size):
    names = ("height", "width", "shortest_edge", "longest_edge", "max_height")
    all_sides = {**dict.fromkeys(names), **sides}
    for form in (sides, all_sides, types.SimpleNamespace(**all_sides)):
        parsed = described_preprocessing.parse(
            {"image_mean": 0.5, "image_std": 0.5, "size": form}
        )
        assert parsed.values["size"] == size
    size = types.SimpleNamespace(**all_sides)
    if sides.get("shortest_edge"):
        assert (
            described_preprocessing.parse(make_processor(size=size)).values["crop"] == 1
        )


class Sequential:
    """A stand-in for PyTorch's Sequential, with its layers."""

    def __init__(self, *layers):
        self._modules = {str(i): layer for i, layer in enumerate(layers)}


def test_layers_of_a_module_that_normalise_are_named_and_not_applied_again():
    for layer in (Normalize(HALF, HALF), Sequential(ToTensor(), Normalize(HALF, HALF))):
        model = types.SimpleNamespace(preprocess=layer, named_modules=None)
        read = described_preprocessing.read(model)
        assert read.values == {} and "own layer preprocess" in read.notes[0]
    layer_alone = described_preprocessing.parse(
        Sequential(ToTensor(), Normalize(HALF, 0.25))
    )
    assert layer_alone.values == {"mean": HALF, "std": (0.25,) * 3}
