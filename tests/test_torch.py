"""PyTorch networks: logits, gradients and sites equal those that PyTorch itself gives."""

import functools
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import jbias
import jbias.torch as bridge
from jbias import data
from jbias.evals import inference, networks, predictors
from jbias.evals.activations import features, receptive_field
from jbias.runtime import mesh
from jbias.stimuli import grad_cam

nn, F = torch.nn, torch.nn.functional


class Net(nn.Module):
    """A network with sites in a sequence and with operations that modify maps in place."""

    def __init__(self, classes=5):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.relu = nn.ReLU(inplace=True)
        self.layers = nn.Sequential(
            nn.Conv2d(8, 8, 3, 2, 1),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.Conv2d(8, 12, 3, 2, 1),
        )
        self.drop, self.fc = nn.Dropout(0.5), nn.Linear(12, classes)

    def forward(self, x):
        return self.fc(self.drop(self.layers(self.relu(self.stem(x))).mean((2, 3))))


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    return Net()


def images(n=3, side=16):
    return np.random.default_rng(0).uniform(size=(n, side, side, 3)).astype(np.float32)


def normalised(x):
    """Normalise images as torchvision's Normalize does."""
    x = torch.from_numpy(x).permute(0, 3, 1, 2).contiguous()
    mean, std = (torch.tensor(c)[:, None, None] for c in (bridge.MEAN, bridge.STD))
    return (x - mean) / std


def predict_logits(model, x):
    return model.predict(predictors._to_input(model, x))


def test_logits_equal_the_modules_bit_for_bit(net):
    model = bridge.wrap(net, classes=list("abcde"))
    with torch.no_grad():
        expected = net(normalised(images())).numpy()
    np.testing.assert_array_equal(predict_logits(model, images()), expected)
    jitted = jax.jit(model.apply)(images())
    np.testing.assert_allclose(jitted, expected, rtol=1e-5, atol=1e-6)


TIMM = {"mean": (0.5, 0.4, 0.3), "std": (0.25, 0.5, 0.125), "crop_pct": 0.95}


def test_arguments_override_the_normalisation_of_the_module():
    """Logits, and the function that attacks differentiate, by timm's configuration."""
    net, x = Net().eval(), images()
    net.pretrained_cfg = {**TIMM, "input_size": (3, 16, 16)}

    def logits(mean, std):
        mean, std = (torch.tensor(c)[:, None, None] for c in (mean, std))
        channels_first = torch.from_numpy(x).permute(0, 3, 1, 2)
        with torch.no_grad():
            return net((channels_first - mean) / std).numpy()

    expected = logits(TIMM["mean"], TIMM["std"])
    for wrapped in (net, nn.DataParallel(net)):
        model = bridge.wrap(wrapped, classes=list("abcde"))
        np.testing.assert_allclose(
            predict_logits(model, x), expected, rtol=1e-5, atol=1e-6
        )
        np.testing.assert_allclose(
            jax.jit(model.apply)(x), expected, rtol=1e-4, atol=1e-5
        )
    overridden = bridge.wrap(net, mean=0.0, classes=list("abcde"))
    expected_overridden = logits((0.0, 0.0, 0.0), TIMM["std"])
    np.testing.assert_allclose(
        predict_logits(overridden, x), expected_overridden, rtol=1e-5, atol=1e-6
    )
    notes = overridden.resolve().notes
    assert notes == ("mean=0 was given, while pretrained_cfg says 0.5 0.4 0.3",)
    plain = bridge.wrap(Net()).resolve()
    assert plain.values["mean"] == bridge.MEAN
    assert plain.origins["mean"] == "by default: the model says nothing"


def test_gradients_equal_autograds(net):
    model, x = bridge.wrap(net, classes=list("abcde")), images()

    @jax.jit
    @jax.grad
    def gradient(x):
        return jax.nn.log_softmax(model.apply(x))[:, 1].sum()

    leaf = torch.from_numpy(x).requires_grad_()
    channels_first = leaf.permute(0, 3, 1, 2)
    mean, std = (torch.tensor(c)[:, None, None] for c in (bridge.MEAN, bridge.STD))
    F.log_softmax(net((channels_first - mean) / std), -1)[:, 1].sum().backward()
    np.testing.assert_allclose(gradient(x), leaf.grad, rtol=1e-4, atol=1e-7)
    assert leaf.grad.abs().max() > 1e-4


def test_sites_return_activations_before_in_place_operations(net):
    model, x = bridge.wrap(net, classes=list("abcde")), images()
    assert model.net.sites(16) == ("stem", "relu", *(f"layers.{i}" for i in range(4)))
    logits, features_by_site = jax.jit(model.net.read)(x)
    with torch.no_grad():
        stem = net.stem(normalised(x))
        second = net.layers[1](net.layers[0](stem.relu()))
    np.testing.assert_allclose(logits, predict_logits(model, x), rtol=1e-5, atol=1e-6)
    for site, activations in (("stem", stem), ("layers.1", second)):
        assert (activations < 0).any()
        expected = activations.permute(0, 2, 3, 1)
        np.testing.assert_allclose(
            features_by_site[site], expected, rtol=1e-4, atol=1e-5
        )


def test_activations_and_gradients_at_a_site_equal_autograds(net):
    model = bridge.wrap(net, classes=list("abcde"), sites={"last": "layers.3"})
    x = images()
    activations, gradient = jax.jit(functools.partial(model.at, site="last"))(x)
    with torch.no_grad():
        leaf = net.layers(net.stem(normalised(x)).relu())
    leaf.requires_grad_()
    net.fc(leaf.mean((2, 3))).max(-1).values.sum().backward()
    np.testing.assert_allclose(
        activations, leaf.detach().permute(0, 2, 3, 1), atol=1e-5
    )
    np.testing.assert_allclose(gradient, leaf.grad.permute(0, 2, 3, 1), atol=1e-6)
    assert grad_cam.maps(activations, gradient, 16, 16).shape == (3, 16, 16)
    with pytest.raises(ValueError, match="site must be of last, got 'stage3'"):
        model.at(x, "stage3")
    with pytest.raises(ValueError, match="no module 'layers.9'"):
        bridge.wrap(net, sites=["layers.9"])


def test_features_and_receptive_fields_of_a_module(net):
    """Features are means over positions; a 3 by 3 filter has a receptive field of 3 by 3."""
    model, stimuli = bridge.wrap(net), (255 * images(4)).astype(np.uint8)
    site_features = features.read(
        model.net, {}, stimuli, sites=["stem"], pool=1, batch=4
    )
    with torch.no_grad():
        expected = net.stem(normalised(stimuli / np.float32(255))).mean((2, 3))
    np.testing.assert_allclose(site_features["stem"], expected, rtol=1e-3, atol=1e-4)
    sites = ["stem", "layers.0"]
    fields = receptive_field.fields(model.net, {}, stimuli, sites=sites, batch=4)
    assert [np.count_nonzero(fields[site]) for site in sites] == [9, 25]


def test_tokens_and_maps_are_converted_to_channels_last():
    shapes = {
        (2, 16, 7): (2, 4, 4, 7),
        (2, 17, 7): (2, 1, 17, 7),
        (2, 7, 4, 4): (2, 4, 4, 7),
        (2, 4, 4, 7): (2, 4, 4, 7),
        (2, 4, 4, 4): (2, 4, 4, 4),
    }
    for shape, expected in shapes.items():
        assert bridge._channels_last(torch.zeros(shape)).shape == expected
    cube = torch.arange(8.0).reshape(1, 2, 2, 2)  # Ambiguous: read as channels first.
    assert (bridge._channels_last(cube) == cube.permute(0, 2, 3, 1)).all()


def test_texts_make_a_classifier_of_an_encoder():
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(48, 6))
    texts, x = torch.randn(3, 6), images(4, 4)
    model = bridge.wrap(bridge.ZeroShot(encoder, texts), classes=["cat", "dog", "car"])
    with torch.no_grad():
        embeddings = encoder(normalised(x))
    cosines = F.cosine_similarity(embeddings[:, None], texts[None], dim=-1)
    np.testing.assert_allclose(
        predict_logits(model, x), 100 * cosines, rtol=1e-4, atol=1e-3
    )


def test_the_version_depends_on_the_weights(net):
    version = bridge.wrap(net).version
    reloaded = Net()
    reloaded.load_state_dict(net.state_dict())
    assert bridge.wrap(reloaded).version == version != bridge.wrap(Net()).version
    assert not net.training


class Block(nn.Module):
    """A residual block with the module names of torchvision."""

    def __init__(self, fan_in, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(fan_in, width, 3, stride, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.downsample = None
        if stride > 1:
            skip = nn.Conv2d(fan_in, width, 1, stride, bias=False)
            self.downsample = nn.Sequential(skip, nn.BatchNorm2d(width))

    def forward(self, x):
        inner = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        return (inner + (self.downsample(x) if self.downsample else x)).relu()


class ResNet18(nn.Module):
    """A ResNet-18 with the module names of torchvision and random weights."""

    def __init__(self, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1, self.pool = nn.BatchNorm2d(64), nn.MaxPool2d(3, 2, 1)
        width = 64
        for i, c in enumerate((64, 128, 256, 512)):
            blocks = Block(width, c, 2 if i else 1), Block(c, c, 1)
            setattr(self, f"layer{i + 1}", nn.Sequential(*blocks))
            width = c
        self.fc = nn.Linear(512, classes)

    def forward(self, x):
        x = self.pool(self.bn1(self.conv1(x)).relu())
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


def test_imported_weights_and_a_wrapped_module_agree(tmp_path):
    """Imported weights and a wrapped module with the same weights give the same logits."""
    torch.manual_seed(0)
    net = ResNet18(10)
    torch.save(net.state_dict(), tmp_path / "resnet18.pth")
    classes = tmp_path / "names.txt"
    classes.write_text("\n".join("abcdefghij"))
    ours = networks.from_file(str(tmp_path / "resnet18.pth"), classes=str(classes))
    bound = ours.bind(jnp.float32, mesh.make(1))
    model, x = bridge.wrap(net, classes=list("abcdefghij")), images(32, 64)
    theirs = predict_logits(model, x)
    logits = np.asarray(
        bound.predict(x, inference.StimulusOrigin("x", "", np.arange(32)))
    )
    np.testing.assert_allclose(theirs, logits, rtol=1e-3, atol=1e-4)
    top = np.sort(theirs, 1)
    clear = top[:, -1] - top[:, -2] > 1e-3
    assert (logits.argmax(1) == theirs.argmax(1))[clear].all() and clear.sum() > 16
    assert ours.preprocessing["mean"] == pytest.approx(bridge.MEAN)


SUITE = """
import ml_collections

def get_config(text=""):
    c = ml_collections.ConfigDict(dict(size=32, run=dict(batch=16)))
    c.sets = dict(
        edge=dict(data="shapes", split="edge", n=48, correlation=0.99),
        cue=dict(data="shapes", split="cue_conflict", n=240, correlation=0.99),
    )
    c.measures = dict(
        pgd=dict(sets=("edge",), steps=2, eps=8 / 255),
        decoding=dict(sets=("cue",), folds=3, strengths=(1e-2,), width=16),
        receptive_field=dict(sets=("edge",), images=4, sites=("stem",)),
    )
    return c
"""


def test_attacks_decoding_and_receptive_fields_run_in_a_suite(tmp_path):
    (tmp_path / "suite.py").write_text(SUITE)
    classes = data.load("shapes", "edge", size=32, n=48, correlation=0.99).classes
    model = bridge.wrap(Net(16), size=32, classes=classes, sites=["stem", "layers.3"])
    result = jbias.measure(model, str(tmp_path / "suite.py"), out=tmp_path / "out")
    assert not result.left_out and result.folder.name == "Net"
    assert {"pgd_accuracy", "shape_decoding", "receptive_area"} <= {
        *result.numbers["metric"]
    }


def test_a_plain_function_of_tensors_needs_no_wrapping():
    assert "torch" in sys.modules
    predictor = predictors.Predictor(
        lambda x: torch.from_numpy(x).mean((1, 2)), list("abc")
    )
    kind, logits = predictors.query(predictor, images(), "abc", "x")
    assert kind == "logits" and logits.shape == (3, 3)


_ON_ONE_CORE = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import jbias, jbias.torch, torch
from jbias import data
layers = torch.nn.Conv2d(3, 16, 3, 2), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
net = jbias.torch.wrap(torch.nn.Sequential(*layers), size=32, name="net",
                       classes=data.load("shapes", "test").classes)
print(jbias.measure(net, "jbias:suites/biases:smoke", only=["decoding"]).left_out)
"""


@pytest.mark.slow
def test_one_core_is_enough(tmp_path):
    """PyTorch, called from inside a jax program, does not deadlock on a single core."""
    command = [sys.executable, "-c", _ON_ONE_CORE]
    env = {key: value for key, value in os.environ.items() if key != "NPROC"}
    completed = subprocess.run(
        command,
        check=True,
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert completed.stdout.splitlines()[-1] == "()"
