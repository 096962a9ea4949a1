"""Networks of PyTorch: their own bits, gradients and sites, and ours beside them."""

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
from jbias.evals import (
    features,
    grad_cam,
    inference,
    networks,
    predictors,
    receptive_field,
)
from jbias.runtime import mesh

nn, F = torch.nn, torch.nn.functional


class Net(nn.Module):
    """Four sites in a sequence, and maps that are changed in their place."""

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
    """As torchvision's Normalize does it."""
    x = torch.from_numpy(x).permute(0, 3, 1, 2).contiguous()
    mean, std = (torch.tensor(c)[:, None, None] for c in (bridge.MEAN, bridge.STD))
    return (x - mean) / std


def asked(model, x):
    return model.predict(predictors._to_input(model, x))


def test_logits_are_the_modules_own_to_the_bit(net):
    model = bridge.wrap(net, classes=list("abcde"))
    with torch.no_grad():
        own = net(normalised(images())).numpy()
    np.testing.assert_array_equal(asked(model, images()), own)
    found = jax.jit(model.apply)(images())
    np.testing.assert_allclose(found, own, rtol=1e-5, atol=1e-6)


TIMM = {"mean": (0.5, 0.4, 0.3), "std": (0.25, 0.5, 0.125), "crop_pct": 0.95}


def test_images_are_normalised_as_the_module_says_unless_the_caller_says_more():
    """Logits, and the function that attacks differentiate, by timm's configuration."""
    own, x = Net().eval(), images()
    own.pretrained_cfg = {**TIMM, "input_size": (3, 16, 16)}

    def logits(mean, std):
        mean, std = (torch.tensor(c)[:, None, None] for c in (mean, std))
        shown = torch.from_numpy(x).permute(0, 3, 1, 2)
        with torch.no_grad():
            return own((shown - mean) / std).numpy()

    said = logits(TIMM["mean"], TIMM["std"])
    for wrapped in (own, nn.DataParallel(own)):
        model = bridge.wrap(wrapped, classes=list("abcde"))
        np.testing.assert_allclose(asked(model, x), said, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(jax.jit(model.apply)(x), said, rtol=1e-4, atol=1e-5)
    more = bridge.wrap(own, mean=0.0, classes=list("abcde"))
    expected = logits((0.0, 0.0, 0.0), TIMM["std"])
    np.testing.assert_allclose(asked(more, x), expected, rtol=1e-5, atol=1e-6)
    told = more.resolve().notes
    assert told == ("mean=0 was given, while pretrained_cfg says 0.5 0.4 0.3",)
    plain = bridge.wrap(Net()).resolve()
    assert plain.values["mean"] == bridge.MEAN
    assert plain.origins["mean"] == "by default: the model says nothing"


def test_gradients_are_those_of_autograd(net):
    model, x = bridge.wrap(net, classes=list("abcde")), images()

    @jax.jit
    @jax.grad
    def gradient(x):
        return jax.nn.log_softmax(model.apply(x))[:, 1].sum()

    given = torch.from_numpy(x).requires_grad_()
    shaped = given.permute(0, 3, 1, 2)
    mean, std = (torch.tensor(c)[:, None, None] for c in (bridge.MEAN, bridge.STD))
    F.log_softmax(net((shaped - mean) / std), -1)[:, 1].sum().backward()
    np.testing.assert_allclose(gradient(x), given.grad, rtol=1e-4, atol=1e-7)
    assert given.grad.abs().max() > 1e-4


def test_sites_show_what_passes_before_it_is_changed_in_its_place(net):
    model, x = bridge.wrap(net, classes=list("abcde")), images()
    assert model.net.sites(16) == ("stem", "relu", *(f"layers.{i}" for i in range(4)))
    logits, seen = jax.jit(model.net.read)(x)
    with torch.no_grad():
        stem = net.stem(normalised(x))
        second = net.layers[1](net.layers[0](stem.relu()))
    np.testing.assert_allclose(logits, asked(model, x), rtol=1e-5, atol=1e-6)
    for site, own in (("stem", stem), ("layers.1", second)):
        assert (own < 0).any()
        expected = own.permute(0, 2, 3, 1)
        np.testing.assert_allclose(seen[site], expected, rtol=1e-4, atol=1e-5)


def test_what_is_salient_is_what_autograd_says(net):
    model = bridge.wrap(net, classes=list("abcde"), sites={"last": "layers.3"})
    x = images()
    seen, gradient = jax.jit(functools.partial(model.at, site="last"))(x)
    with torch.no_grad():
        own = net.layers(net.stem(normalised(x)).relu())
    own.requires_grad_()
    net.fc(own.mean((2, 3))).max(-1).values.sum().backward()
    np.testing.assert_allclose(seen, own.detach().permute(0, 2, 3, 1), atol=1e-5)
    np.testing.assert_allclose(gradient, own.grad.permute(0, 2, 3, 1), atol=1e-6)
    assert grad_cam.maps(seen, gradient, 16, 16).shape == (3, 16, 16)
    with pytest.raises(ValueError, match="site must be of last, got 'stage3'"):
        model.at(x, "stage3")
    with pytest.raises(ValueError, match="no module 'layers.9'"):
        bridge.wrap(net, sites=["layers.9"])


def test_what_looks_inside_reads_a_module_as_one_of_ours(net):
    """Of features, and receptive fields: a 3 by 3 filter of stride 1 sees 3 by 3."""
    model, held = bridge.wrap(net), (255 * images(4)).astype(np.uint8)
    found = features.read(model.net, {}, held, sites=["stem"], pool=1, batch=4)
    with torch.no_grad():
        own = net.stem(normalised(held / np.float32(255))).mean((2, 3))
    np.testing.assert_allclose(found["stem"], own, rtol=1e-3, atol=1e-4)
    of = dict(sites=["stem", "layers.0"], batch=4)
    fields = receptive_field.fields(model.net, {}, held, **of)
    assert [np.count_nonzero(fields[x]) for x in of["sites"]] == [9, 25]


def test_tokens_and_maps_are_laid_out_as_ours():
    shapes = {
        (2, 16, 7): (2, 4, 4, 7),
        (2, 17, 7): (2, 1, 17, 7),
        (2, 7, 4, 4): (2, 4, 4, 7),
        (2, 4, 4, 7): (2, 4, 4, 7),
        (2, 4, 4, 4): (2, 4, 4, 4),
    }
    for given, expected in shapes.items():
        assert bridge._channels_last(torch.zeros(given)).shape == expected
    cube = torch.arange(8.0).reshape(1, 2, 2, 2)  # Then as PyTorch has it.
    assert (bridge._channels_last(cube) == cube.permute(0, 2, 3, 1)).all()


def test_texts_make_a_classifier_of_an_encoder():
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(48, 6))
    texts, x = torch.randn(3, 6), images(4, 4)
    model = bridge.wrap(bridge.ZeroShot(encoder, texts), classes=["cat", "dog", "car"])
    with torch.no_grad():
        seen = encoder(normalised(x))
    cosines = F.cosine_similarity(seen[:, None], texts[None], dim=-1)
    np.testing.assert_allclose(asked(model, x), 100 * cosines, rtol=1e-4, atol=1e-3)


def test_other_weights_are_another_network(net):
    one = bridge.wrap(net).version
    again = Net()
    again.load_state_dict(net.state_dict())
    assert bridge.wrap(again).version == one != bridge.wrap(Net()).version
    assert not net.training


class Block(nn.Module):
    """A residual block, as torchvision calls its parts."""

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
    """Torchvision's, of random weights."""

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


def test_a_network_that_we_know_decides_the_same_either_way(tmp_path):
    """The same weights, imported, and as a module of torchvision's layout."""
    torch.manual_seed(0)
    net = ResNet18(10)
    torch.save(net.state_dict(), tmp_path / "resnet18.pth")
    classes = tmp_path / "names.txt"
    classes.write_text("\n".join("abcdefghij"))
    ours = networks.from_file(str(tmp_path / "resnet18.pth"), classes=str(classes))
    bound = ours.bind(jnp.float32, mesh.make(1))
    model, x = bridge.wrap(net, classes=list("abcdefghij")), images(32, 64)
    theirs = asked(model, x)
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


def test_attacks_and_what_looks_inside_run_in_a_suite(tmp_path):
    (tmp_path / "suite.py").write_text(SUITE)
    classes = data.load("shapes", "edge", size=32, n=48, correlation=0.99).classes
    model = bridge.wrap(Net(16), size=32, classes=classes, sites=["stem", "layers.3"])
    found = jbias.measure(model, str(tmp_path / "suite.py"), out=tmp_path / "out")
    assert not found.left_out and found.folder.name == "Net"
    assert {"pgd_accuracy", "shape_decoding", "receptive_area"} <= {
        *found.numbers["metric"]
    }


def test_a_plain_function_of_tensors_needs_no_wrapping():
    assert "torch" in sys.modules
    one = predictors.Predictor(lambda x: torch.from_numpy(x).mean((1, 2)), list("abc"))
    kind, logits = predictors.query(one, images(), "abc", "x")
    assert kind == "logits" and logits.shape == (3, 3)


_ON_ONE_CORE = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import jbias, jbias.torch, torch
from jbias import data
parts = torch.nn.Conv2d(3, 16, 3, 2), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
net = jbias.torch.wrap(torch.nn.Sequential(*parts), size=32, name="net",
                       classes=data.load("shapes", "test").classes)
print(jbias.measure(net, "jbias:suites/biases:smoke", only=["decoding"]).left_out)
"""


@pytest.mark.slow
def test_one_core_is_enough(tmp_path):
    """It would wait for ever: for PyTorch, which answers inside a program of jax."""
    command = [sys.executable, "-c", _ON_ONE_CORE]
    env = {key: value for key, value in os.environ.items() if key != "NPROC"}
    how = dict(cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
    done = subprocess.run(command, check=True, **how)
    assert done.stdout.splitlines()[-1] == "()"
