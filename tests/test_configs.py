"""All presets are valid: the names exist and a step can be traced."""

import importlib
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias import build, models, run_spec
from jbias import config as jc
from jbias.algos import base
from jbias.configs import erm
from jbias.data import config_sets, loader
from jbias.runtime import mesh
from jbias.training import input_plan, optim, prng, setup, stages
from tests import cases

NAMES = [name.replace("/", ".") for name in jc.preset_names("config")]
ROOT = pathlib.Path(__file__).parents[1]
TIES = {"deepaugment", "biasbed.deepaugment_cae", "biasbed.deepaugment_edsr"}


def make_config(name: str, arg: str) -> dict:
    module = importlib.import_module(f"jbias.configs.{name}")
    if name == "colored_mnist" and "data=" not in arg:
        arg += ",data=shapes"  # Colored MNIST must be downloaded.
    c = module.get_config(arg)
    if name in TIES:  # Another command makes the images of these presets first.
        c.train.also = tuple(
            dict(data="shapes", split="valid", n=64) for _ in c.train.also
        )
    c.model.width, c.model.name = 4, "resnet18"
    return jc.to_dict(c)


def without_download(config: dict) -> dict:
    """Return the config with the style network that is part of the package."""
    return json.loads(
        json.dumps(config).replace('{"name": "vgg"}', '{"name": "small"}')
    )


def trace(config: dict) -> None:
    """Build all stages and trace a step of each seed without compilation."""
    spec = run_spec.RunSpec.from_config(config)
    setup.check_names(spec)
    trained = setup.open_train_sets(spec)
    images = {
        key: loader.decode_all(source, workers=1)
        for number, train_set in enumerate(trained)
        for key, source in train_set.named(number).items()
    }
    previous_nets = None
    plans = input_plan.plan_stages(spec.stages, trained)
    for stage in stages.build_stages(spec, plans, images, mesh.make(1)):
        index = stage.feed.batch(0, stage.first)
        state = jax.eval_shape(stage.program.draw, prng.key(0), previous_nets)
        for static in {stage.static(stage.first + step) for step in range(8)}:
            new_state, metrics = jax.eval_shape(
                lambda state, static=static, stage=stage, index=index: (
                    stage.program.step(
                        state,
                        (prng.key(0), index),
                        stage.feed.shared(stage.first),
                        static,
                    )
                ),
                state,
            )
            assert jax.tree.map(
                lambda x: (x.shape, x.dtype), new_state
            ) == jax.tree.map(lambda x: (x.shape, x.dtype), state)
            assert all(value.shape == () for value in metrics.values())
        previous_nets = {"params": state.params["net"], "stats": state.stats["net"]}


@pytest.mark.slow
@cases.each(
    "name",
    NAMES,
    quick=(
        "erm",
        "frozen_filters",
        "efdmix",
    ),
)
def test_a_step_of_the_embedded_recipe_can_be_traced(name):
    trace(make_config(name, "smoke,seeds=1"))


@pytest.mark.slow
@cases.each(
    "name",
    [
        name
        if name in ("erm", "sagnet", "simclr", "recipe", "deepaugment")
        else pytest.param(name, marks=pytest.mark.slow)
        for name in NAMES
    ],
    quick=("deepaugment",),
)
def test_a_step_of_the_recipe_for_imagenet_can_be_traced(name, tmp_path):
    """The algorithm, inputs and optimiser are those of the preset; images are small."""
    config = make_config(name, f"data=imagenet,root={tmp_path},seeds=1")
    config["size"] = 64
    shapes = dict(data="shapes", split="train", n=128)
    other_entries = {
        k: v for k, v in config["train"].items() if k in ("other", "shares")
    }
    also = [dict(shapes, split="valid", n=64) for _ in config["train"].get("also", ())]
    config["train"] = dict(shapes, batch=64, also=also, **other_entries)
    for stage in config["stages"]:
        assert "train" not in stage or name == "dfr"
        if "train" in stage:
            stage_entries = {k: stage["train"][k] for k in ("balance", "portion")}
            stage["train"] = dict(shapes, batch=16, **stage_entries)
    trace(without_download(config))


@cases.each("name", NAMES)
def test_a_docstring_names_the_file_the_paper_and_the_cost(name):
    text = importlib.import_module(f"jbias.configs.{name}").__doc__
    assert f"configs/{name.replace('.', '/')}.py" in text
    if "biasbed" not in name:
        assert "arXiv:" in text or "Empirical" in text
        assert "ost: " in text


@cases.each("name", ["debiased", "sin_in", "stylized_erm"])
@cases.each(
    ("arg", "transfer", "renders"),
    [
        ("", {"name": "render"}, True),
        ("transfer=render", {"name": "render"}, True),
        ("transfer=small", {"name": "small"}, False),
        ("data=pacs,root=x", {"name": "vgg"}, False),
        ("data=pacs,root=x,weights=y", {"name": "vgg", "weights": "y"}, False),
    ],
)
def test_style_transfers_depend_on_the_data_and_the_argument(
    name, arg, transfer, renders
):
    config = make_config(name, arg)
    options = config["algo"] if name == "debiased" else config["inputs"][-1]
    assert options["transfer"] == transfer
    assert config["train"].get("renders", False) == renders
    assert ("small" in config["variant"]) == (transfer["name"] == "small")


IMAGENET = {  # Epochs, batch, rate, and the share of the epochs at its first drop.
    "erm": (90, 256, 0.1, 1 / 3),
    "augmix": (90, 256, 0.1, 1 / 3),
    "cutmix": (300, 256, 0.1, 1 / 4),
    "debiased": (100, 512, 0.2, 0.3),
    "deepaugment": (30, 1024, 0.1, None),
    "fmix": (90, 256, 0.4, 1 / 3),
    "padain": (300, 256, 0.1, 1 / 4),
    "pgd": (90, 512, 0.1, 1 / 3),
    "pixmix": (90, 256, 0.01, None),
    "recipe": (300, 2048, 5e-3, None),
    "simclr": (100, 1024, 2.4, None),
    "stylized_erm": (60, 256, 0.1, 1 / 3),
    "biasbed.erm": (100, 128, 1e-4, 0.3),
    "biasbed.sagnet": (100, 128, 1e-4, 0.3),
    "biasbed.debiased": (100, 128, 0.2, 0.3),
    "biasbed.infodrop": (100, 128, 0.2, 0.3),
    "biasbed.padain": (100, 128, 0.2, 0.3),
}


@pytest.mark.slow
@cases.each(
    "name",
    IMAGENET,
    quick=(
        "padain",
        "erm",
        "deepaugment",
    ),
)
def test_the_recipes_are_the_published_ones(name):
    epochs, batch, rate, drop = IMAGENET[name]
    c = make_config(name, "data=imagenet,root=x")
    assert (c["epochs"], c["train"]["batch"]) == (epochs, batch)
    plain = {"decay": 0.0, "momentum": 0.0, "nesterov": False}
    options = {key: plain.get(key, value) for key, value in c["optim"].items()}
    tx = optim.from_options(options, base.Update("class"), 10 * epochs, 10)
    rates = rates_of(tx, 10 * epochs)
    assert max(rates) == pytest.approx(rate, rel=1e-4)
    if drop:
        first = next(i for i in range(1, len(rates)) if rates[i] < rates[i - 1])
        assert first == round(10 * epochs * drop)
        assert rates[first] == pytest.approx(rate / 10, rel=1e-5)
    else:
        assert rates[-1] < 0.01 * rate


@cases.each(
    ("arg", "epochs", "batch", "rate", "norm_group"),
    [
        ("", 44, 8192, 17.0, 64),
        (",batch=2048", 44, 2048, 8.5, 64),
        (",optimiser=sgd", 90, 8192, 3.2, 32),
        (",optimiser=sgd,batch=256", 90, 256, 0.1, 32),
    ],
    quick=("",),
)
def test_the_rate_of_a_pods_recipe_follows_its_batch(
    arg, epochs, batch, rate, norm_group
):
    """The rates of LARS are MLPerf's, those of SGD are Goyal et al.'s."""
    c = make_config("recipe", f"recipe=pod,data=imagenet,root=x{arg}")
    settings = c["epochs"], c["train"]["batch"], c["model"]["norm_group"]
    assert settings == (epochs, batch, norm_group)
    plain = {"decay": 0.0, "momentum": 0.0, "nesterov": False}
    options = {key: plain.get(key, value) for key, value in c["optim"].items()}
    tx = optim.from_options(options, base.Update("class"), 10 * epochs, 10)
    rates = rates_of(tx, 10 * epochs)
    assert rates[0] == 0 and rates[25] == pytest.approx(rate / 2, rel=1e-5)
    assert rates[50] == max(rates) == pytest.approx(rate, rel=1e-5)
    assert rates[-1] < 0.0011 * rate


@pytest.mark.slow
@cases.each("optimiser", ["lars", "sgd"])
def test_a_step_of_a_pods_recipe_can_be_traced(optimiser):
    trace(make_config("recipe", f"recipe=pod,optimiser={optimiser},smoke,seeds=1"))


def test_a_batch_is_refused_for_a_recipe_with_a_fixed_rate():
    with pytest.raises(ValueError, match="'batch' is not used with recipe=a3"):
        make_config("recipe", "recipe=a3,batch=512")


def rates_of(tx, steps: int) -> list[float]:
    """Return the rate of each step: the change of a weight by a gradient of 1."""
    w, state, rates = jnp.float32(0), tx.init(jnp.float32(0)), []
    update = jax.jit(tx.update)
    for _ in range(steps):
        move, state = update(jnp.float32(1), state, w)
        rates.append(-float(move))
    return rates


@cases.each("name", [n for n in NAMES if n.startswith("biasbed.")])
def test_the_benchmarks_protocol_has_its_variants(name):
    c = make_config(name, "data=imagenet,root=x")
    assert c["variant"].startswith("biasbed")
    assert c["aggregate"] == "mean_logit"
    assert c["algo"].get("variant", "biasbed") == "biasbed"
    assert not c["optim"]["nesterov"] and not c["stages"]
    assert not c["algo"].get("multi_grid") and not c["algo"].get("dropout")
    assert c["inputs"][0]["aspect"] == [0.8, 1.0]
    short = make_config(name, "data=imagenet,root=x,epochs=2,size=64")
    assert (short["epochs"], short["size"]) == (2, 64)
    assert not make_config(name, "data=imagenet,root=x,inputs=mixup")["stages"]
    small, demo = make_config(name, "small"), make_config(name, "demo")
    assert (small["epochs"], small["train"]["batch"]) == (5, 32)
    assert (demo["epochs"], demo["train"]["batch"]) == (6, 32)


def documented_presets() -> list[tuple[str, ...]]:
    """Return the cells of the table of presets in docs/configs.md, by row."""
    text = (ROOT / "docs/configs.md").read_text(encoding="utf-8")
    table = text.partition("| Word |")[2].partition("\n\n")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    return [tuple(cell.strip() for cell in row) for row in rows]


def test_the_page_of_configs_describes_the_presets():
    rows = documented_presets()
    assert [row[0] for row in rows] == ["`smoke`", "`demo`", "`small`", "none"]
    for word, images, width, epochs, batch, rate, cadence, tested, _ in rows:
        c = erm.get_config("" if word == "none" else word.strip("`"))
        assert c.size == 32, word
        assert f"{c.train.n:,}" == images, word
        assert (c.model.name, str(c.model.width)) == ("resnet18", width), word
        assert (f"{c.epochs:g}", str(c.train.batch)) == (epochs, batch), word
        assert f"{c.optim.rate:g}" == rate, word
        every = (
            "1 epoch" if cadence == "every epoch" else cadence.removeprefix("every ")
        )
        assert c.eval_every == every, word
        test_sources = (
            config_sets.open_test_source(f"config.tests.{name}", test.to_dict(), c.size)
            for name, test in c.tests.items()
        )
        assert {len(source) for source in test_sources} == {int(tested)}, word


def test_presets_of_size_exclude_each_other():
    for words in ("demo,small", "small,smoke", "demo,smoke"):
        with pytest.raises(ValueError, match="take one of demo, small and smoke"):
            erm.get_config(words)


def test_inputs_are_added_after_the_recipes():
    config = make_config("mixup", "inputs=flip+smooth_labels,smoke")
    assert [input_config["name"] for input_config in config["inputs"]] == [
        "mixup",
        "flip",
        "smooth_labels",
    ]


@cases.each(
    ("arg", "split", "space"),
    [
        ("", "train", "names"),
        ("data=imagenet,root=x", "train", "wnid"),
        ("data=tiny_imagenet,root=x", "train", "wnid"),
        ("data=pacs,root=x,style=sketch", "sketch", "names"),
        ("data=folder,root=x,train=mine", "mine", "names"),
    ],
)
def test_deepaugments_sets_are_in_the_folders_of_the_prepare_command(arg, split, space):
    config = importlib.import_module("jbias.configs.deepaugment").get_config(arg)
    also = [
        (set_config["root"], set_config["split"], set_config["space"])
        for set_config in config.train.also
    ]
    assert also == [(f"prepared/{net}", split, space) for net in ("cae", "edsr")]


def test_deepaugment_adds_images_of_each_domain_in_equal_shares():
    arg = "data=pacs,root=x,held_out=sketch,nets=cae"
    config = importlib.import_module("jbias.configs.deepaugment").get_config(arg)
    clean = ["photo[:90%]", "art_painting[:90%]", "cartoon[:90%]"]
    damaged = ["photo", "art_painting", "cartoon"]
    splits = [entry["split"] for entry in (config.train, *config.train.also)]
    assert splits == [*clean, *damaged]
    assert config.train.shares == (1 / 6,) * 6 and config.train.batch == 96


@cases.each("name", ["infodrop", "simclr", "sin_in"])
def test_epochs_apply_to_the_first_stage(name):
    config = importlib.import_module(f"jbias.configs.{name}").get_config()
    config.epochs = 2.5
    first, second = jc.stage_configs(jc.to_dict(config))
    assert first["epochs"] == 2.5 != second["epochs"]


@cases.each("data", ["", "data=pacs,root=x,"])
def test_inputs_by_name_have_their_transfers_and_sets(data):
    config = make_config("erm", f"{data}inputs=stylize+pixmix")
    stylize, pixmix = config["inputs"][-2:]
    assert stylize["transfer"] == {"name": "small" if data else "render"}
    assert bool(data) != config["train"].get("renders", False)
    assert config["train"]["other"]["data"] == "fractals" and pixmix["name"] == "pixmix"


@cases.each("name", ["sagnet", "infodrop", "debiased"])
def test_the_released_variant_is_labelled(name):
    config = make_config(name, "variant=biasbed,smoke")
    assert config["variant"] == config["algo"]["variant"] == "biasbed"
    assert config["aggregate"] == "mean_logit"
    ours = make_config(name, "smoke")
    assert (ours["variant"], ours["algo"]["variant"]) == ("", "")
    assert ours["aggregate"] == "mean_prob"


@cases.each("name", models.MODELS)
@cases.each("data", ["shapes", "mnist,root=/data"])
def test_takes_any_network_by_name(name, data):
    config = importlib.import_module("jbias.configs.erm").get_config(
        f"data={data},model={name}"
    )
    net = build.network(config.to_dict(), 5)
    assert net.classes == 5
    # Presets set the width of networks that have one.
    assert not hasattr(net, "width") or net.width == config.model.width


def make_distortion(arg: str) -> dict:
    return jc.to_dict(
        importlib.import_module("jbias.configs.distortion").get_config(arg)
    )


@cases.each("data", ["cifar10", "cifar100", "fashion_mnist"])
def test_the_distortion_protocol_is_the_papers(data):
    c = make_distortion(f"method=cutmix,data={data},root=x")
    assert (c["epochs"], c["train"]["batch"], c["seeds"]) == (200, 128, [*range(5)])
    assert c["optim"]["decay"] == 1e-4 and c["optim"]["momentum"] == 0.9
    assert c["model"]["name"] == "preact_resnet18" and c["model"]["width"] == 64
    assert c["model"]["mean"][0] == (0.1307 if data == "fashion_mnist" else 0.4914)
    tx = optim.from_options(
        {**c["optim"], "momentum": 0.0, "decay": 0.0}, base.Update("class"), 200, 1
    )
    rates = rates_of(tx, 200)
    expected = np.repeat([0.1, 0.01, 0.001], [100, 50, 50])
    np.testing.assert_allclose(rates, expected, rtol=1e-5)


@cases.each(
    ("data", "expected"),
    [
        ("cifar10", [("pad_crop", 4), ("flip", None)]),
        ("cifar100", [("pad_crop", 4), ("flip", None)]),
        ("fashion_mnist", [("pad_crop", 4), ("flip", None)]),
        ("mnist", [("pad_crop", 4)]),  # A mirrored digit is no digit.
        ("tiny_imagenet", [("flip", None)]),
    ],
)
def test_distortion_images_are_augmented_as_published(data, expected):
    inputs = make_distortion(f"data={data},root=x")["inputs"]
    assert [
        (input_config["name"], input_config.get("pad")) for input_config in inputs
    ] == expected


@cases.each(
    ("method", "mix"),
    [
        ("mixup", dict(name="mixup")),
        ("cutmix", dict(name="cutmix", variant="torchbearer")),
        ("fmix", dict(name="fmix", decay=3, spectrum="isotropic")),
        ("rm", dict(name="random_masks", count=3, decay=3, spectrum="isotropic")),
    ],
)
def test_distortion_methods_mix_as_published(method, mix):
    """Shares have the distribution Beta(1, 1), partners the whole batch; labels are mixed."""
    *_, mix_config = make_distortion(f"method={method},data=cifar10,root=x")["inputs"]
    assert mix_config == dict(mix, alpha=1.0, mix_group=128)


@cases.each("method", ["mixup", "cutmix", "fmix", "rm"])
def test_labels_are_not_mixed_with_partners_of_the_same_set(method):
    *_, plain = make_distortion(f"method={method},data=cifar10,root=x")["inputs"]
    *_, partner_of_same_set = make_distortion(
        f"method={method},data=cifar10,root=x,partner=same"
    )["inputs"]
    assert partner_of_same_set == dict(plain, reformulated=True)


@pytest.mark.slow
@cases.each("spectrum", ["isotropic", "released"], quick=("released",))
def test_a_run_of_rm_has_three_masks_of_its_spectrum(spectrum):
    """Released masks have one cosine along a row, so at most two changes."""
    c = make_distortion(f"method=rm,spectrum={spectrum},data=cifar10,root=x")
    (mix,) = build.transforms("inputs", c["inputs"][-1:])
    batch = {"target": jnp.eye(128), "once": jax.random.key(2)}
    shade = jnp.arange(128.0)[:, None, None, None] * jnp.ones((1, 16, 16, 3))
    mix_images = jax.jit(lambda key: mix.apply({**batch, "image": shade}, key)["image"])
    masks = np.array([mix_images(jax.random.key(i))[7, ..., 0] == 7 for i in range(24)])
    assert len({mask.tobytes() for mask in masks}) == 3
    changes = (masks != np.roll(masks, 1, 2)).sum(2).max()
    assert (changes <= 2) == (spectrum == "released")


def test_fmix_takes_its_spectrum():
    *_, mix = make_distortion("method=fmix,spectrum=released,data=cifar10,root=x")[
        "inputs"
    ]
    assert mix["spectrum"] == "released"


@cases.each(
    ("arg", "train", "valid", "test"),
    [
        ("", {"split": "train[:98%]"}, {"split": "train[98%:]"}, {"split": "test"}),
        (
            ",small",
            {"split": "train[:10%]"},
            {"split": "train[98%:]"},
            {"split": "test"},
        ),
        (",drop=truck", *[{"drop": "truck"}] * 3),
        (",keep=y.npy", *[{"keep": "y.npy"}] * 2, {"keep": None}),
    ],
)
def test_sets_of_distortion_are_parts_of_the_data_set(arg, train, valid, test):
    c = make_distortion(f"data=cifar10,root=x{arg}")
    assert [*c["tests"]] == ["test"]
    for set_config, expected in zip(
        (c["train"], c["valid"], c["tests"]["test"]), (train, valid, test)
    ):
        assert {key: set_config.get(key) for key in expected} == expected


@cases.each(
    ("arg", "expected"),
    [
        ("small", (5, 10.0, 16)),
        ("smoke", (2, 2.0, 8)),
        ("small,seeds=3,epochs=4", (3, 4.0, 16)),
    ],
)
def test_small_and_smoke_shrink_distortion(arg, expected):
    c = make_distortion(f"data=cifar10,root=x,{arg}")
    assert (len(c["seeds"]), c["epochs"], c["model"]["width"]) == expected


@cases.each(
    ("arg", "size", "pad"),
    [
        ("data=fashion_mnist,root=x,model=vgg16_bn", 32, 2),
        ("data=fashion_mnist,root=x,size=32", 32, 2),
        ("data=fashion_mnist,root=x", 28, None),
        ("data=cifar10,root=x,model=vgg16_bn", 32, None),
    ],
)
def test_images_of_28_pixels_are_padded_for_networks_that_need_32(arg, size, pad):
    c = make_distortion(arg)
    sets = (c["train"], c["valid"], *c["tests"].values())
    assert c["size"] == size and {set_config.get("pad") for set_config in sets} == {pad}
    if c["model"]["name"] == "vgg16_bn":
        net = build.network(c, 10)
        shapes = jax.eval_shape(
            net.init, jax.random.key(0), jnp.ones((1, size, size, 3))
        )
        assert net.batch_norm and not net.dropout
        dense = [key for key in shapes["params"] if key.startswith("fc")]
        assert dense == ["fc"] and shapes["params"]["fc"]["kernel"].shape == (512, 10)


@cases.each(
    ("arg", "variant"),
    [
        ("data=cifar10,root=x", "basic"),
        ("method=rm,data=cifar10,root=x", "rm"),
        ("method=mixup,data=cifar10,root=x,partner=same", "mixup-with-same"),
        (
            "method=mixup,data=cifar10,root=x,partner=fashion_mnist,partner_root=y",
            "mixup-with-fashion_mnist",
        ),
        ("method=fmix,data=cifar10,root=x,drop=truck", "fmix-without-truck"),
        ("data=cifar100,root=x,keep=y/tail.npy", "basic-kept-tail"),
        ("method=fmix,spectrum=released,data=cifar10,root=x", "fmix-released"),
    ],
)
def test_the_variant_of_distortion_names_the_method_and_the_data(arg, variant):
    assert make_distortion(arg)["variant"] == variant


def test_a_partner_is_normalised_by_its_own_constants():
    """The network's normalisation of an image of the second set uses that set's constants."""
    c = make_distortion("method=fmix,data=cifar10,root=x,partner=mnist,partner_root=y")
    assert c["inputs"][-1]["partner"] == "other" and c["inputs"][-1]["reformulated"]
    assert c["train"]["other"]["pad"] == 2
    *_, last = build.transforms("inputs", c["train"]["other"]["inputs"])
    image = jax.random.uniform(jax.random.key(0), (2, 4, 4, 3))
    image_of_partner = last.apply({"image": image}, jax.random.key(1))["image"]
    normalized = (
        image_of_partner - jnp.array(c["model"]["mean"])[None, None, None]
    ) / jnp.array(c["model"]["std"])[None, None, None]
    np.testing.assert_allclose(normalized, (image - 0.1307) / 0.3081, atol=1e-5)
    similar_partner = make_distortion(
        "method=fmix,data=cifar10,root=x,partner=cifar100,partner_root=y"
    )
    names = [
        input_config["name"]
        for input_config in similar_partner["train"]["other"]["inputs"]
    ]
    assert (
        names == ["pad_crop", "flip"] and "pad" not in similar_partner["train"]["other"]
    )


@pytest.mark.slow
@cases.each("method", ["basic", "fmix", "rm"], quick=("rm",))
def test_methods_mix_only_the_digits_of_stacked_images(method):
    c = make_distortion(f"method={method},data=stacked,root=x,digits=y,smoke")
    *halves, last = c["inputs"]
    assert [transform["which"] for transform in halves[:2]] == ["bottom", "bottom"]
    assert last["which"] == "top" and {*c["tests"]} == {
        "stacked_cifar",
        "stacked_mnist",
    }
    image = jax.random.uniform(jax.random.key(0), (128, 16, 8, 3))
    target = jax.nn.one_hot(jnp.arange(128) % 10, 10)
    batch = {"image": image, "target": target, "once": jax.random.key(2)}
    batch["other"] = {"image": jnp.zeros((128, 8, 8, 3))}
    if method == "basic":
        for transform in build.transforms("inputs", c["inputs"]):
            batch = transform.apply(batch, jax.random.key(1))
        assert not batch["image"][:, :8].any() and batch["image"][:, 8:].any()
        return
    (mix,) = build.transforms("inputs", [last])
    mixed = mix.apply(batch, jax.random.key(1))
    np.testing.assert_array_equal(mixed["target"], target)
    np.testing.assert_array_equal(mixed["image"][:, 8:], image[:, 8:])
    assert (mixed["image"][:, :8] != image[:, :8]).any()


@cases.each(
    ("arg", "message"),
    [
        ("method=mix", "unknown method 'mix'"),
        ("partner=same", "partner needs a method that mixes"),
        ("method=fmix,partner=cifar10,data=cifar10,root=x", "is the training set"),
        ("method=fmix,partner=mnist,data=cifar10,root=x", "needs partner_root="),
        (
            "method=fmix,partner=same,partner_root=y,data=cifar10,root=x",
            "partner_root is used only with",
        ),
        (
            "method=fmix,partner=mnist,partner_root=y,data=tiny_imagenet,root=x",
            "needs data=cifar10 or cifar100",
        ),
        ("small", "small needs data=one of"),
        ("small,smoke,data=cifar10,root=x", "and no smoke"),
        ("drop=truck,data=stacked,root=x,digits=y", "drop is not used"),
        ("data=stacked,root=x", "needs digits="),
    ],
)
def test_invalid_arguments_of_distortion_are_refused(arg, message):
    with pytest.raises(ValueError, match=f"^config argument: .*{message}"):
        make_distortion(arg)


def test_a_shift_makes_four_parts_of_the_whole_split():
    c = make_config("erm", "data=colored_mnist,root=x,shift=C6,images=600,shift_seed=3")
    set_configs = {"train": c["train"], "valid": c["valid"], **c["tests"]}
    assert {
        name: part_config["shift"]["part"] for name, part_config in set_configs.items()
    } == {name: name for name in ("train", "valid", "id", "ood")}
    for part_config in set_configs.values():
        assert part_config["split"] == "train"
        assert part_config["form"] == "uniform"
        assert part_config["shift"]["level"] == "C6"
        assert (part_config["shift"]["images"], part_config["shift"]["seed"]) == (
            600,
            3,
        )
    assert "batch" not in c["valid"]
    single = make_config("erm", "data=colored_mnist,root=x,shift=only-red")
    assert {*single["tests"]} == {"id", "ood-yellow", "ood-green", "ood-blue"}


def test_attributes_of_faces_and_tables_are_chosen():
    faces = make_config("erm", "data=celeba,root=x,label=Male,attribute=Bald+Bangs")
    set_configs = [faces["train"], faces["valid"], faces["tests"]["test"]]
    assert [first["split"] for first in set_configs] == ["train", "valid", "test"]
    assert {(first["label"], first["attribute"]) for first in set_configs} == {
        ("Male", "Bald+Bangs")
    }
    assert faces["size"] == 64
    plain = make_config("erm", "data=celeba,root=x")["train"]
    assert not {"label", "attribute"} & {*plain}
    table = make_config(
        "erm", "data=attributed,root=x,label=kind,attribute=sky,tests=b+c"
    )
    assert {*table["tests"]} == {"b", "c"}
    set_configs = [table["train"], table["valid"], *table["tests"].values()]
    assert {
        (first["data"], first["label"], first["attribute"]) for first in set_configs
    } == {("attributed", "kind", "sky")}
    # Recipes under shifts of different attributes are otherwise equal.
    for dataset in ("attributed", "celeba"):
        first, second = (
            make_config(
                "erm", f"data={dataset},root=x,label=kind,attribute={name},shift=C6"
            )
            for name in ("sky", "sea")
        )
        assert first["train"]["shift"].pop("attribute") == "sky"
        assert second["train"]["shift"].pop("attribute") == "sea"
        assert first["train"] == second["train"] and first["train"]["label"] == "kind"
        assert "attribute" not in first["train"]
    hair = make_config("erm", "data=celeba,root=x,attribute=Bald+Bangs,shift=C6")[
        "train"
    ]
    assert hair["attribute"] == hair["shift"]["attribute"] == "Bald+Bangs"


def test_shapes_have_factors_if_an_attribute_is_shifted():
    c = make_config("erm", "shift=C6,attribute=background")
    assert c["train"]["factors"] and c["tests"]["ood"]["factors"]
    assert c["train"]["shift"]["attribute"] == "background"
    assert c["train"]["correlation"] == 0.99
    assert "factors" not in make_config("erm", "shift=C6")["train"]
    single = make_config("erm", "shift=only-dark,attribute=background")
    assert {*single["tests"]} == {"id", "ood-light"}


def test_columns_of_a_file_are_used_for_training_and_validation():
    c = make_config("erm", "data=pacs,root=x,columns=a.csv")
    assert c["train"]["columns"] == c["valid"]["columns"] == "a.csv"
    assert not any("columns" in test_set for test_set in c["tests"].values())
    assert "columns" not in make_config("erm", "columns=a.csv")["valid"]
    faces = "data=celeba,root=x,columns=a.csv,attribute=cluster,shift=only-D1"
    c = make_config("erm", faces)
    assert "attribute" not in c["train"]
    for part in (c["train"], c["valid"], *c["tests"].values()):
        assert part["columns"] == "a.csv" and part["shift"]["attribute"] == "cluster"
    assert {*c["tests"]} == {"id", "ood"}  # The file that lists the values is absent.


@cases.each(
    ("arg", "message"),
    [
        ("data=colored_mnist,root=x,form=irm,shift=C6", "shift needs form=uniform"),
        ("images=600", "'images' is used only with shift"),
        ("attribute=background", "'attribute' is used only with shift"),
        ("shift=C6,attribute=backgrund", "did you mean 'background'"),
    ],
)
def test_arguments_without_effect_on_a_shift_are_refused(arg, message):
    with pytest.raises(ValueError, match=message):
        make_config("erm", arg)
