"""Prompts of zero-shot classifiers: each template, and CLIP's ensemble, in closed form."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch import nn
from torch.nn import functional as F

from jbias import torch as bridge
from jbias.evals import predictors
from tests import cases

WORDS = ("cat", "dog", "car")
TEMPLATES = ("{}", "a photo of a {}.", "a drawing of a {}.")
LENGTH = 24


class Encoder(nn.Module):
    """A random encoder of images and of texts into six dimensions, as CLIP has both."""

    def __init__(self):
        super().__init__()
        self.image = nn.Linear(48, 6)
        self.letters = nn.Embedding(128, 6)

    def encode_image(self, images):
        return self.image(images.flatten(1))

    def encode_text(self, texts):
        ids = torch.tensor([[ord(x) for x in text.ljust(LENGTH)] for text in texts])
        places = torch.linspace(0, 1, LENGTH)[None, :, None]
        return (self.letters(ids) * places).sum(1)


@pytest.fixture
def encoder():
    torch.manual_seed(0)
    return Encoder()


def prompts(encoder, **changes):
    """Return the Predictors of all prompts, with some arguments changed."""
    options = dict(classes=WORDS, templates=TEMPLATES, name="own", mean=0.0, std=1.0)
    return bridge.wrap_prompts(
        encoder.encode_image, encoder.encode_text, **{**options, **changes}
    )


def test_a_prompts_logits_are_scaled_cosines(encoder):
    images = np.random.default_rng(0).random((5, 4, 4, 3), np.float32)
    wrapped = prompts(encoder, scale=20.0)
    assert [*wrapped] == [*TEMPLATES, "ensemble"]
    x = torch.from_numpy(images).permute(0, 3, 1, 2)
    with torch.no_grad():
        encoded = encoder.encode_image(x).numpy().astype(np.float64)
        for template in TEMPLATES:
            texts = encoder.encode_text([template.format(word) for word in WORDS])
            texts = texts.numpy().astype(np.float64)
            norms = np.linalg.norm(encoded, axis=1)[:, None] * np.linalg.norm(
                texts, axis=1
            )
            expected = 20 * encoded @ texts.T / norms
            logits = wrapped[template].predict(images)
            np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)


def test_the_ensemble_is_that_of_clips_notebook(encoder):
    """Prompt_Engineering_for_ImageNet.ipynb of openai/CLIP: normalise, mean, normalise."""
    images = torch.rand(5, 3, 4, 4)
    with torch.no_grad():
        weights = []
        for word in WORDS:
            texts = encoder.encode_text([x.format(word) for x in TEMPLATES])
            mean = (texts / texts.norm(dim=-1, keepdim=True)).mean(dim=0)
            weights.append(mean / mean.norm())
        features = encoder.encode_image(images)
        features = features / features.norm(dim=-1, keepdim=True)
        expected = 100.0 * features @ torch.stack(weights, dim=1)
    network = bridge.ZeroShot.of_prompts(
        encoder.encode_image, encoder.encode_text, words=WORDS, templates=TEMPLATES
    )["ensemble"]
    with torch.no_grad():
        torch.testing.assert_close(network(images), expected, rtol=1e-5, atol=1e-4)


def test_one_template_has_no_ensemble_and_words_may_differ_from_classes(encoder):
    wrapped = prompts(
        encoder,
        classes=("0", "1", "2"),
        words=WORDS,
        templates=("{} now",),
        sites={"embedding": "of.image"},
    )
    (predictor,) = wrapped.values()
    assert predictor.classes == ("0", "1", "2") and predictor.name == "own-CLS_now"
    texts = encoder.encode_text([f"{word} now" for word in WORDS])
    (direct,) = bridge.ZeroShot.of_prompts(
        encoder.encode_image, encoder.encode_text, words=WORDS, templates=("{} now",)
    ).values()
    torch.testing.assert_close(direct.texts, F.normalize(texts.detach(), dim=-1))


def test_each_prompt_is_a_network_with_its_prompt_as_factor(encoder, tmp_path):
    root = tmp_path / "images"
    for word in WORDS:
        (root / word).mkdir(parents=True)
        for number in range(2):
            image = np.full((4, 4, 3), 40 * number + 9 * len(word) + ord(word[0]))
            save_image(root / word / f"{number}.png", image.astype(np.uint8))
    import jbias

    for predictor in prompts(encoder, templates=TEMPLATES[:2]).values():
        measured = jbias.measure(
            predictor, data=root, size=4, only=["accuracy"], out=tmp_path / "out"
        )
        assert 0 <= measured.accuracy <= 1
    folders = sorted(x.name for x in (tmp_path / "out").iterdir())
    assert folders == ["own-CLS", "own-a_photo_of_a_CLS", "own-ensemble"]
    factors = {
        name: json.loads((tmp_path / "out" / name / "config.json").read_text())[
            "factors"
        ]
        for name in folders
    }
    assert factors == {
        "own-CLS": {"model": "own", "prompt": "{}"},
        "own-a_photo_of_a_CLS": {"model": "own", "prompt": "a photo of a {}."},
        "own-ensemble": {
            "model": "own",
            "prompt": "ensemble",
            "templates": "{}\na photo of a {}.",
        },
    }


def save_image(path, pixels):
    """Write pixels (h, w, 3) as a PNG file."""
    from PIL import Image

    Image.fromarray(pixels).save(path)


def test_prompts_of_one_folder_name_are_told_apart(encoder):
    wrapped = prompts(encoder, templates=("a {}", "a {}!", "a {}?"))
    names = [predictor.name for predictor in wrapped.values()]
    assert names == ["own-a_CLS", "own-a_CLS-2", "own-a_CLS-3", "own-ensemble"]
    versions = {predictor.version for predictor in wrapped.values()}
    assert len(versions) == 4  # Results of one prompt are never those of another.


@cases.each(
    ("changes", "message"),
    [
        (dict(templates=()), "templates: must be a list of texts"),
        (dict(templates="a {}"), "templates: must be a list of texts"),
        (dict(templates=["a cat"]), 'templates: must have one "{}"'),
        (dict(templates=["{} {}"]), 'templates: must have one "{}"'),
        (dict(templates=["a {}", "a {}"]), "templates: must be different texts"),
        (dict(words=("cat",)), "words: must be 3, one for each class, got 1"),
    ],
)
def test_invalid_prompts_are_refused(changes, message, encoder):
    with pytest.raises(ValueError) as error:
        prompts(encoder, **changes)
    assert str(error.value).startswith(message) and "\n" not in str(error.value)


def test_an_encoder_of_texts_must_return_a_row_for_each_text(encoder):
    with pytest.raises(
        ValueError, match=r"encode_texts: must return embeddings \(3, d\)"
    ):
        bridge.wrap_prompts(
            encoder.encode_image,
            lambda texts: encoder.encode_text(texts)[0],
            classes=WORDS,
            templates=TEMPLATES,
            name="own",
        )


def test_a_function_has_no_factors_unless_it_says_so():
    assert predictors.Predictor(lambda images: images).factors == {}
