"""Published files are imported by name and by shape, from any wrapper, and exported."""

import json
import pathlib
import runpy

import jax
import numpy as np
import pytest

from jbias import models
from jbias.models import importing, registry, safetensors, state_dicts, weight_names
from tests import cases
from tests.models import hostile

ORACLES = pathlib.Path(__file__).parents[1] / "oracles"
DRAW = runpy.run_path(str(ORACLES / "resnet_weights.py"))["draw"]
LISTED = json.loads((ORACLES / "state_dicts.json").read_text())
SMALL = dict(stem="small", width=2)
TINY_VIT = dict(width=8, heads=2, depth=4)


def expected(model, classes=5, **options):
    """Return the entries of a file of that network: {published name: entry}."""
    draw_state = registry.shapes(model, {"classes": classes, **options})
    return weight_names.entries(draw_state, registry.dialects(model)[0])


def draw_state(entries, draw=DRAW):
    return {name: draw(name, entry.shape) for name, entry in entries.items()}


@pytest.fixture(scope="module")
def state():
    """Return the state dict of a small ResNet-18 with torchvision's names."""
    return draw_state(expected("resnet18", **SMALL))


@pytest.fixture
def save_state(tmp_path):
    """Write a state dict; return the path."""

    def save(state, name="x.safetensors", **metadata):
        arrays = {k: np.asarray(v, np.float32) for k, v in state.items()}
        safetensors.write(tmp_path / name, arrays, metadata)
        return tmp_path / name

    return save


def equals_state(variables, state):
    """Return True if the variables, in our layout, equal the drawn state dict."""
    p, s = variables["params"], variables["stats"]
    pairs = [
        (p["conv1"]["kernel"].transpose(3, 2, 0, 1), "conv1.weight"),
        (p["bn1"]["scale"], "bn1.weight"),
        (p["fc"]["kernel"].T, "fc.weight"),
        (p["fc"]["bias"], "fc.bias"),
        (s["stage2_block1"]["bn2"]["var"], "layer2.1.bn2.running_var"),
        (s["stage3_block0"]["bn_proj"]["mean"], "layer3.0.downsample.1.running_mean"),
        (
            p["stage4_block0"]["proj"]["kernel"].transpose(3, 2, 0, 1),
            "layer4.0.downsample.0.weight",
        ),
        (
            p["stage4_block1"]["conv1"]["kernel"].transpose(3, 2, 0, 1),
            "layer4.1.conv1.weight",
        ),
    ]
    return all(np.array_equal(value, state[name]) for value, name in pairs)


@pytest.mark.slow
@cases.each(
    ("model", "listed"),
    [
        ("resnet50", "torchvision_resnet50"),
        ("vit_base16", "timm_vit_base_patch16_224"),
    ],
)
def test_names_and_shapes_are_the_published_ones(model, listed):
    shapes = {name: list(e.shape) for name, e in expected(model, 1000).items()}
    published = {k: v for k, v in LISTED[listed].items() if "num_batches" not in k}
    assert shapes == published


@pytest.mark.slow
@cases.each("model", [None, "resnet18"], quick=("None",))
@cases.each("form", ["published.pth.tar", "published_robust.pt"])
def test_a_training_checkpoint_of_pytorch_is_read(form, model, state):
    """Reads files with optimisers and counters, under DataParallel or an attacker."""
    net, variables = models.load(ORACLES / form, model)
    assert (net.classes, net.stem, net.width) == (5, "small", 2)
    assert equals_state(variables, state)
    robust = "robust" in form
    assert net.mean == ((0.4, 0.5, 0.6) if robust else models.backbone.IMAGENET_MEAN)
    assert net.std == ((0.2, 0.3, 0.25) if robust else models.backbone.IMAGENET_STD)


def test_arguments_take_precedence_over_the_files_metadata():
    path = ORACLES / "published_robust.pt"
    net, _ = models.load(path, "resnet18", mean=(0, 0, 0), dropout=0.5)
    assert (net.mean, net.std, net.dropout) == ((0, 0, 0), (0.2, 0.3, 0.25), 0.5)


@pytest.mark.slow
@cases.each(
    "prefix",
    [
        *("", "module.", "model.", "module.model.", "backbone.", "net."),
        *("module.encoder_q.", "encoder.", "module.backbone.net.", "_orig_mod.module."),
    ],
)
def test_prefixes_are_recognised(prefix, state, save_state):
    path = save_state({f"{prefix}{key}": value for key, value in state.items()})
    assert equals_state(models.load(path, "resnet18")[1], state)


def test_training_only_entries_are_left_out(state, save_state):
    wrapped = {f"module.encoder_q.{key}": value for key, value in state.items()}
    wrapped |= {f"module.encoder_k.{key}": value + 1 for key, value in state.items()}
    wrapped |= {"module.queue": np.ones((4, 9)), "module.queue_ptr": np.ones(1)}
    wrapped |= {"module.projection_head.0.weight": np.ones((4, 16))}
    assert equals_state(models.load(save_state(wrapped), "resnet18")[1], state)


@pytest.mark.slow
@cases.each("name", ["linear.", "fc.", "module.linear.", "head."])
def test_a_separate_head_is_imported(name, state, save_state):
    """SwAV, MoCo, SimCLR and DINO publish the linear layer in a separate file."""
    body = {k: v for k, v in state.items() if not k.startswith("fc.")}
    body |= {"fc.0.weight": np.ones((16, 16)), "fc.0.bias": np.ones(16)}
    end = {f"{name}{k[3:]}": v for k, v in state.items() if k.startswith("fc.")}
    path, head = save_state(body), save_state(end, "head.safetensors")
    net, variables = models.load(path, "resnet18", head=head)
    assert net.classes == 5 and equals_state(variables, state)
    with pytest.raises(ValueError, match=r"fc.weight 1000x16"):
        models.load(path, "resnet18")


@pytest.mark.slow
def test_a_missing_head_is_an_error_that_suggests_the_option_head(state, save_state):
    body = {k: v for k, v in state.items() if not k.startswith("fc.")}
    with pytest.raises(ValueError, match=r"that file by head=\.\.\."):
        models.load(save_state(body), "resnet18")


@pytest.mark.slow
def test_errors_list_missing_spare_and_misshapen_entries(state, save_state):
    changed_state = dict(state)
    del changed_state["bn1.bias"], changed_state["layer1.0.conv1.weight"]
    changed_state["extra.weight"] = np.ones((2, 3))
    changed_state["layer2.0.conv1.weight"] = np.ones((4, 2, 1, 1))
    with pytest.raises(ValueError) as refusal:
        models.load(save_state(changed_state), "resnet18")
    lines = str(refusal.value).splitlines()
    assert "does not fit resnet18, 99 of 102 entries do" in lines[0]
    assert lines[1].split("  ")[1] == "missing (2)" and "spare (1)" in lines[1]
    assert "of another shape (1)" in lines[1]
    assert "bn1.bias 2" in lines[2] and "extra.weight 2x3" in lines[2]
    assert "layer2.0.conv1.weight needs 4x2x3x3, has 4x2x1x1" in lines[2]
    assert "layer1.0.conv1.weight 2x2x3x3" in lines[3] and len(lines) == 4


@pytest.mark.slow
def test_long_lists_are_cut(state, save_state):
    partial_state = {k: v for k, v in state.items() if not k.startswith("layer3")}
    with pytest.raises(ValueError, match=r"missing \(25\)") as refusal:
        models.load(save_state(partial_state), "resnet18")
    lines = str(refusal.value).splitlines()
    assert len(lines) == 13 and lines[-1].strip() == "and 15 more"


def test_several_state_dicts_are_refused_unless_one_is_named(monkeypatch, tmp_path):
    inner = hostile.state(hostile.tensor())[2:-1]
    pickled = (
        hostile.PROTO
        + b"}("
        + b"".join(hostile.text(key) + inner for key in ("student", "teacher"))
        + b"u."
    )
    path = tmp_path / "x.pth"
    path.write_bytes(hostile.archive(pickled))
    with pytest.raises(ValueError, match=r"'teacher', 'student'; name one by entry"):
        state_dicts.read(path)
    assert list(state_dicts.read(path, "teacher").arrays) == ["x0.weight"]
    with pytest.raises(ValueError, match=r"has no entry 'ema'; it has 'student'"):
        state_dicts.read(path, "ema")


@pytest.mark.slow
def test_names_of_simclr_are_imported(state, save_state):
    """Reads the names of SimCLR's conversion from TensorFlow."""
    names = registry.dialects("resnet18")[1]
    shapes = registry.shapes("resnet18", {"classes": 5, **SMALL})
    name_by_path = {
        e.path + (e.collection,): k for k, e in expected("resnet18", **SMALL).items()
    }
    simclr_state = {
        name: state[name_by_path[e.path + (e.collection,)]]
        for name, e in weight_names.entries(shapes, names).items()
    }
    assert "net.2.blocks.0.projection.shortcut.weight" in simclr_state
    assert "net.1.blocks.1.net.3.0.running_var" in simclr_state
    net, variables, origins = importing.read(save_state(simclr_state), "resnet18")
    assert equals_state(variables, state)
    assert (net.mean, net.std) == ((0, 0, 0), (1, 1, 1))  # It takes nothing off.
    assert origins["mean"] == "SimCLRv2's, whose names the file has"
    net, _, origins = importing.read(
        save_state(simclr_state), "resnet18", mean=(0.5,) * 3
    )
    assert net.mean == (0.5,) * 3 and [*origins] == ["std"]


@pytest.mark.slow
@cases.each("names", ["published", "own"])
def test_an_export_comes_back_to_the_bit(names, tmp_path):
    net, variables = models.load(ORACLES / "published_robust.pt", "resnet18")
    path = tmp_path / "x.safetensors"
    models.save_safetensors(path, net, variables, names)
    # The file's metadata name the network.
    loaded_net, loaded_variables = models.load(path)
    assert loaded_net == net
    jax.tree.map(np.testing.assert_array_equal, loaded_variables, variables)
    arrays, metadata = safetensors.read(path)
    assert json.loads(metadata["jbias"])["options"]["mean"] == [0.4, 0.5, 0.6]
    assert ("fc.weight" if names == "published" else "params/fc/kernel") in arrays


def test_other_float_types_are_read(state, tmp_path):
    """Half precision, bfloat16 and double become float32."""
    kinds = {"F16": "<f2", "BF16": None, "F64": "<f8"}
    x = np.array([1.5, -2.25, 0.0, 1024.0], np.float32)
    for kind, dtype in kinds.items():
        data = (
            (x.view("<u4") >> 16).astype("<u2").tobytes()
            if dtype is None
            else x.astype(dtype).tobytes()
        )
        entry = {"dtype": kind, "shape": [2, 2], "data_offsets": [0, len(data)]}
        header = json.dumps({"a": entry}).encode()
        path = tmp_path / f"{kind}.safetensors"
        path.write_bytes(len(header).to_bytes(8, "little") + header + data)
        np.testing.assert_array_equal(safetensors.read(path)[0]["a"], x.reshape(2, 2))


@pytest.mark.slow
def test_augreg_files(tmp_path):
    """Reads Flax arrays, whose heads have an axis and whose kernels are transposed."""
    rng = np.random.default_rng(0)

    def normal(*shape):
        return rng.standard_normal(shape).astype(np.float32)

    w, heads, k = 8, 2, 3
    flax = {
        "cls": normal(1, 1, w),
        "Transformer/posembed_input/pos_embedding": normal(1, 5, w),
        "embedding/kernel": normal(16, 16, 3, w),
        "embedding/bias": normal(w),
        "Transformer/encoder_norm/scale": normal(w),
        "Transformer/encoder_norm/bias": normal(w),
        "head/kernel": normal(w, k),
        "head/bias": normal(k),
    }
    for i in range(4):
        block = f"Transformer/encoderblock_{i}/"
        attention = f"{block}MultiHeadDotProductAttention_1/"
        for norm in ("LayerNorm_0", "LayerNorm_2"):
            flax |= {f"{block}{norm}/{end}": normal(w) for end in ("scale", "bias")}
        for name in ("query", "key", "value"):
            flax[f"{attention}{name}/kernel"] = normal(w, heads, w // heads)
            flax[f"{attention}{name}/bias"] = normal(heads, w // heads)
        flax[f"{attention}out/kernel"] = normal(heads, w // heads, w)
        flax[f"{attention}out/bias"] = normal(w)
        flax[f"{block}MlpBlock_3/Dense_0/kernel"] = normal(w, 4 * w)
        flax[f"{block}MlpBlock_3/Dense_0/bias"] = normal(4 * w)
        flax[f"{block}MlpBlock_3/Dense_1/kernel"] = normal(4 * w, w)
        flax[f"{block}MlpBlock_3/Dense_1/bias"] = normal(w)
    np.savez(tmp_path / "x.npz", **flax)
    net, variables = models.load(tmp_path / "x.npz", "vit_small16", **TINY_VIT)
    assert (net.classes, net.patch, net.grid, net.pool) == (3, 16, 2, "token")
    p = variables["params"]
    np.testing.assert_array_equal(p["embed"]["kernel"], flax["embedding/kernel"])
    np.testing.assert_array_equal(p["fc"]["kernel"], flax["head/kernel"])
    attention = "Transformer/encoderblock_1/MultiHeadDotProductAttention_1/"
    qkv = p["blocks_1"]["qkv"]["kernel"].reshape(w, 3, heads, w // heads)
    for i, name in enumerate(("query", "key", "value")):
        np.testing.assert_array_equal(qkv[:, i], flax[f"{attention}{name}/kernel"])
    out = flax[f"{attention}out/kernel"].reshape(w, w)
    np.testing.assert_array_equal(p["blocks_1"]["proj"]["kernel"], out)


@pytest.mark.slow
def test_sizes_of_transformers_are_inferred(save_state):
    vit_state = draw_state(expected("vit_small32", grid=3, pool="avg", **TINY_VIT))
    net, _ = models.load(save_state(vit_state), "vit_small32", **TINY_VIT)
    assert (net.classes, net.patch, net.grid, net.pool) == (5, 32, 3, "avg")
    with pytest.raises(ValueError, match=r"patch_embed.proj.weight needs 8x3x16x16"):
        models.load(save_state(vit_state), "vit_small16", **TINY_VIT)


@pytest.mark.slow
@cases.each(
    ("options", "match"),
    [
        ({"model": "resnet51"}, "model must be one of cnn"),
        ({"model": "resnet18", "colour": 3}, "has no option 'colour'"),
        ({"model": "cnn"}, "has no entry of cnn"),
        ({"model": "vit_small16"}, "has no entry of vit_small16"),
    ],
)
def test_bad_options_are_refused(options, match):
    with pytest.raises(ValueError, match=match):
        models.load(ORACLES / "published.pth.tar", **options)


def test_the_error_of_an_unknown_file_lists_its_names_and_expected_names(save_state):
    unknown_state = {f"tower.{i}.mixer": np.zeros((2, 2), np.float32) for i in range(9)}
    unknown_state["features.first.weight"] = np.zeros((3, 3), np.float32)
    with pytest.raises(ValueError) as refusal:
        models.load(save_state(unknown_state))
    error_text = str(refusal.value)
    assert (
        "it has tower.0.mixer, tower.1.mixer, " in error_text
        and "(10 in all)" in error_text
    )
    assert "the nearest by names, " in error_text and "has classifier." in error_text
    assert "rename its entries" in error_text and "\n" not in error_text
    with pytest.raises(ValueError, match="; resnet18 has bn1.bias, bn1.weight, "):
        models.load(save_state(unknown_state), "resnet18")


@pytest.mark.slow
@cases.each("model", ["vit_base16", "resnet34", "alexnet"])
def test_the_error_of_a_wrong_model_names_the_right_one(model, state, save_state):
    """The error names the model that fits, for any options and any number of matches."""
    options = {"patch": 8} if model == "vit_base16" else {}
    with pytest.raises(ValueError) as refusal:
        models.load(save_state(state), model, **options)
    first = str(refusal.value).splitlines()[0]
    assert first.endswith("; it fits resnet18: give that model, or none")
    less = {key: value for key, value in state.items() if key != "bn1.bias"}
    with pytest.raises(ValueError) as refusal:
        models.load(save_state(less), model, **options)
    assert "it fits" not in str(refusal.value)


@pytest.mark.slow
@cases.each("names", ["published", "own"])
def test_an_export_of_another_model_is_refused_by_name(names, tmp_path):
    net, variables = models.load(ORACLES / "published_robust.pt", "resnet18")
    path = tmp_path / "x.safetensors"
    models.save_safetensors(path, net, variables, names)
    with pytest.raises(
        ValueError, match=r"it fits resnet18|holds the model 'resnet18'"
    ):
        models.load(path, "resnet50")


def test_folders_and_missing_files_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such checkpoint"):
        models.load(tmp_path / "x.pth")
    (tmp_path / "x.onnx").write_bytes(b"x")
    with pytest.raises(ValueError, match=r"file that ends with \.pth"):
        models.load(tmp_path / "x.onnx")


def test_metadata_of_ours_are_checked(state, save_state):
    for metadata in ("[]", "{", '{"model": "resnet51", "names": "own", "options": {}}'):
        with pytest.raises(ValueError, match="metadata under 'jbias' must say"):
            models.load(save_state(state, jbias=metadata))


def test_names_of_augreg_that_are_unknown_stay():
    assert list(state_dicts.from_augreg({"pre_logits/kernel": np.ones((2, 2))})) == [
        "pre_logits/kernel"
    ]


def renamed(state, name):
    """Return the state dict with its last layer under another name."""
    return {
        k.replace("fc.", name) if k[:3] == "fc." else k: v for k, v in state.items()
    }


@cases.each(
    "name",
    ["fc.1.", "head.", "classifier.", "linear.", "heads.head.", "model.classifier.6."],
    quick=("head.", "model.classifier.6."),
)
def test_a_head_under_another_name_is_the_head(name, state, save_state):
    """The head has any of the names, with or without prefixes, or a separate file."""
    renamed_state = renamed(state, name)
    for prefix in ("", "module.", "_orig_mod.module."):
        wrapped = {f"{prefix}{key}": value for key, value in renamed_state.items()}
        net, variables = models.load(save_state(wrapped), "resnet18")
        assert net.classes == 5 and equals_state(variables, state)
    other = {"fc.weight": np.ones((7, 16)), "fc.bias": np.zeros(7)}
    head = save_state(other, "head.safetensors")
    net, variables = models.load(save_state(renamed_state), "resnet18", head=head)
    assert net.classes == 7 and (variables["params"]["fc"]["kernel"] == 1).all()


def linear(classes, features):
    return {"weight": np.ones((classes, features)), "bias": np.ones(classes)}


@cases.each(
    ("layers", "name"),
    [
        ({"a": linear(16, 16), "clf.fc": linear(5, 16)}, "clf.fc"),
        (
            {"net2.a": linear(16, 16), "linear_probe.head": linear(5, 16)},
            "linear_probe.head",
        ),
        (
            {"mlp.linear": linear(64, 16), "a": linear(16, 64), "fc": linear(5, 16)},
            "fc",
        ),
    ],
)
def test_a_head_inside_another_module_is_read_from_its_file(layers, name, save_state):
    path = save_state(
        {f"{n}.{k}": x for n, layer in layers.items() for k, x in layer.items()}
    )
    weight, bias = state_dicts.read_head(path)
    expected = layers[name]
    assert weight.shape == expected["weight"].shape and bias.shape == (5,)


@cases.each(
    ("layers", "message"),
    [
        # Of the same numbers: which is the last cannot be told.
        ({"a.fc": linear(5, 16), "b.fc": linear(7, 16)}, "got a.fc, b.fc;"),
        ({"fc": linear(7, 16), "probe.head": linear(5, 16)}, "got fc, probe.head;"),
        # Hidden layers, whose numbers another one takes.
        ({"a.fc": linear(16, 16), "a.out2": linear(5, 16)}, "got a.fc, a.out2;"),
    ],
)
def test_a_layer_from_inside_a_network_is_no_head_file(layers, message, save_state):
    flat = {f"{n}.{k}": x for n, layer in layers.items() for k, x in layer.items()}
    with pytest.raises(ValueError, match=message):
        state_dicts.read_head(save_state(flat))


@pytest.mark.slow
def test_an_ambiguous_layer_is_never_taken_as_the_head(state, save_state):
    """Errors for two layers, projections and other widths have a remedy."""
    body = {k: v for k, v in state.items() if k[:3] != "fc."}
    square = {"weight": np.ones((16, 16)), "bias": np.ones(16)}
    narrow = {"weight": np.ones((5, 8)), "bias": np.ones(5)}
    correct = {"weight": np.ones((5, 16)), "bias": np.ones(5)}
    cases = {
        "any of the layers fc.1, fc.3": {"fc.1": square, "fc.3": correct},
        "any of the layers head, aux": {"head": correct, "aux": correct},
        "the layer fc.0, of shape 16x16 where resnet18 needs (classes)x16": {
            "fc.0": square
        },
        "the layer head, of shape 5x8": {"head": narrow},
        "and a bias: if it is, rename": {"head": {"weight": correct["weight"]}},
        "is named as a head; it has embedding beside": {"embedding": correct},
        "it has clf.fc, clf.a beside resnet18's: if one is the head, rename its": {
            "clf.fc": correct,
            "clf.a": correct,
        },
        "lies elsewhere: give that file by head=": {},
    }
    for message, layers in cases.items():
        flat = {f"{n}.{k}": x for n, layer in layers.items() for k, x in layer.items()}
        with pytest.raises(ValueError) as refused:
            models.load(save_state({**body, **flat}), "resnet18")
        assert message in str(refused.value), message


def test_losses_and_metrics_of_a_training_are_left_out(state, save_state):
    training_state = {
        f"model.{key}": value for key, value in renamed(state, "head.").items()
    }
    training_state |= {"criterion.weight": np.ones(5), "val_metrics.total": np.ones(1)}
    assert equals_state(models.load(save_state(training_state), "resnet18")[1], state)
