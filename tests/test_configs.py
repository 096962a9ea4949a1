"""Every config is understood: what it names exists, and one step of it can be traced."""

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
from jbias.data import loader, splits
from jbias.runtime import mesh
from jbias.training import input_plan, optim, prng, setup, stages
from tests import cases

NAMES = [name.replace("/", ".") for name in jc.preset_names("config")]
ROOT = pathlib.Path(__file__).parents[1]
TIES = {"deepaugment", "biasbed.deepaugment_cae", "biasbed.deepaugment_edsr"}


def config_of(name: str, arg: str) -> dict:
    module = importlib.import_module(f"jbias.configs.{name}")
    if name == "colored_mnist" and "data=" not in arg:
        arg += ",data=shapes"  # Its own has to be got.
    c = module.get_config(arg)
    if name in TIES:  # Their images are made first, by another command.
        c.train.also = tuple(
            dict(data="shapes", split="valid", n=64) for _ in c.train.also
        )
    c.model.width, c.model.name = 4, "resnet18"
    return jc.to_dict(c)


def without_download(config: dict) -> dict:
    """The config with the style network that comes with the package."""
    return json.loads(
        json.dumps(config).replace('{"name": "vgg"}', '{"name": "small"}')
    )


def trace(config: dict) -> None:
    """Builds all stages and traces a step of each seed, without compiling it."""
    spec = run_spec.RunSpec.from_config(config)
    setup.check_names(spec)
    trained = setup.open_train_sets(spec)
    images = {
        key: loader.decode_all(source, workers=1)
        for number, one in enumerate(trained)
        for key, source in one.named(number).items()
    }
    before = None
    plans = input_plan.plan_stages(spec.stages, trained)
    for stage in stages.build_stages(spec, plans, images, mesh.make(1)):
        index = stage.batch(0, stage.first)
        state = jax.eval_shape(stage.program.draw, prng.key(0), before)
        for static in {stage.static(stage.first + step) for step in range(8)}:
            new, metrics = jax.eval_shape(
                lambda state, static=static, stage=stage, index=index: (
                    stage.program.step(
                        state, (prng.key(0), index), stage.shared(stage.first), static
                    )
                ),
                state,
            )
            assert jax.tree.map(lambda x: (x.shape, x.dtype), new) == jax.tree.map(
                lambda x: (x.shape, x.dtype), state
            )
            assert all(value.shape == () for value in metrics.values())
        before = {"params": state.params["net"], "stats": state.stats["net"]}


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
    trace(config_of(name, "smoke,seeds=1"))


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
    """Its algorithm, inputs and optimiser, on small images and batches of our own."""
    config = config_of(name, f"data=imagenet,root={tmp_path},seeds=1")
    config["size"] = 64
    shapes = dict(data="shapes", split="train", n=128)
    beside = {k: v for k, v in config["train"].items() if k in ("other", "shares")}
    also = [dict(shapes, split="valid", n=64) for _ in config["train"].get("also", ())]
    config["train"] = dict(shapes, batch=64, also=also, **beside)
    for part in config["stages"]:
        assert "train" not in part or name == "dfr"
        if "train" in part:
            kept = {k: part["train"][k] for k in ("balance", "portion")}
            part["train"] = dict(shapes, batch=16, **kept)
    trace(without_download(config))


@cases.each("name", NAMES)
def test_a_docstring_says_where_it_is_from_and_how_it_is_called(name):
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
def test_style_transfers_go_by_the_data_or_by_name(name, arg, transfer, renders):
    config = config_of(name, arg)
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
    c = config_of(name, "data=imagenet,root=x")
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
    """LARS's two are MLPerf's reference's, SGD's two Goyal et al.'s."""
    c = config_of("recipe", f"recipe=pod,data=imagenet,root=x{arg}")
    found = c["epochs"], c["train"]["batch"], c["model"]["norm_group"]
    assert found == (epochs, batch, norm_group)
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
    trace(config_of("recipe", f"recipe=pod,optimiser={optimiser},smoke,seeds=1"))


def test_refuses_a_batch_of_a_recipe_whose_rate_does_not_follow():
    with pytest.raises(ValueError, match="'batch' is not used with recipe=a3"):
        config_of("recipe", "recipe=a3,batch=512")


def rates_of(tx, steps: int) -> list[float]:
    """The rate of each step: how far a gradient of 1 moves a weight."""
    w, state, rates = jnp.float32(0), tx.init(jnp.float32(0)), []
    update = jax.jit(tx.update)
    for _ in range(steps):
        move, state = update(jnp.float32(1), state, w)
        rates.append(-float(move))
    return rates


@cases.each("name", [n for n in NAMES if n.startswith("biasbed.")])
def test_the_benchmarks_protocol_has_its_variants(name):
    c = config_of(name, "data=imagenet,root=x")
    assert c["variant"].startswith("biasbed")
    assert c["aggregate"] == "mean_logit"
    assert c["algo"].get("variant", "biasbed") == "biasbed"
    assert not c["optim"]["nesterov"] and not c["stages"]
    assert not c["algo"].get("multi_grid") and not c["algo"].get("dropout")
    assert c["inputs"][0]["aspect"] == [0.8, 1.0]
    short = config_of(name, "data=imagenet,root=x,epochs=2,size=64")
    assert (short["epochs"], short["size"]) == (2, 64)
    assert not config_of(name, "data=imagenet,root=x,inputs=mixup")["stages"]
    small, demo = config_of(name, "small"), config_of(name, "demo")
    assert (small["epochs"], small["train"]["batch"]) == (5, 32)
    assert (demo["epochs"], demo["train"]["batch"]) == (6, 32)


def documented_presets() -> list[tuple[str, ...]]:
    """Cells of the table of presets in docs/configs.md, a row each."""
    text = (ROOT / "docs/configs.md").read_text(encoding="utf-8")
    table = text.partition("| Word |")[2].partition("\n\n")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    return [tuple(cell.strip() for cell in row) for row in rows]


def test_the_page_of_configs_says_what_the_presets_are():
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
        opened = (
            splits.open_test_source(f"config.tests.{name}", test.to_dict(), c.size)
            for name, test in c.tests.items()
        )
        assert {len(source) for source in opened} == {int(tested)}, word


def test_only_one_word_chooses_how_much_is_trained():
    for words in ("demo,small", "small,smoke", "demo,smoke"):
        with pytest.raises(ValueError, match="take one of demo, small and smoke"):
            erm.get_config(words)


def test_inputs_are_added_after_the_recipes():
    config = config_of("mixup", "inputs=flip+smooth_labels,smoke")
    assert [one["name"] for one in config["inputs"]] == [
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
def test_deepaugments_sets_lie_where_the_command_puts_them(arg, split, space):
    config = importlib.import_module("jbias.configs.deepaugment").get_config(arg)
    also = [(one["root"], one["split"], one["space"]) for one in config.train.also]
    assert also == [(f"prepared/{net}", split, space) for net in ("cae", "edsr")]


@cases.each("name", ["infodrop", "simclr", "sin_in"])
def test_epochs_are_those_of_the_first_stage(name):
    config = importlib.import_module(f"jbias.configs.{name}").get_config()
    config.epochs = 2.5
    first, second = jc.stage_configs(jc.to_dict(config))
    assert first["epochs"] == 2.5 != second["epochs"]


@cases.each("data", ["", "data=pacs,root=x,"])
def test_inputs_by_name_have_what_they_need(data):
    config = config_of("erm", f"{data}inputs=stylize+pixmix")
    stylize, pixmix = config["inputs"][-2:]
    assert stylize["transfer"] == {"name": "small" if data else "render"}
    assert bool(data) != config["train"].get("renders", False)
    assert config["train"]["other"]["data"] == "fractals" and pixmix["name"] == "pixmix"


@cases.each("name", ["sagnet", "infodrop", "debiased"])
def test_the_released_variant_is_labelled(name):
    config = config_of(name, "variant=biasbed,smoke")
    assert config["variant"] == config["algo"]["variant"] == "biasbed"
    assert config["aggregate"] == "mean_logit"
    ours = config_of(name, "smoke")
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
    # Presets say how wide a net is that has a width.
    assert not hasattr(net, "width") or net.width == config.model.width


def distortion(arg: str) -> dict:
    return jc.to_dict(
        importlib.import_module("jbias.configs.distortion").get_config(arg)
    )


@cases.each("data", ["cifar10", "cifar100", "fashion_mnist"])
def test_distortions_protocol_is_the_papers(data):
    c = distortion(f"method=cutmix,data={data},root=x")
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
    ("data", "moves"),
    [
        ("cifar10", [("pad_crop", 4), ("flip", None)]),
        ("cifar100", [("pad_crop", 4), ("flip", None)]),
        ("fashion_mnist", [("pad_crop", 4), ("flip", None)]),
        ("mnist", [("pad_crop", 4)]),  # A mirrored digit is none.
        ("tiny_imagenet", [("flip", None)]),
    ],
)
def test_distortions_images_are_moved_as_published(data, moves):
    found = distortion(f"data={data},root=x")["inputs"]
    assert [(one["name"], one.get("pad")) for one in found] == moves


@cases.each(
    ("method", "mix"),
    [
        ("mixup", dict(name="mixup")),
        ("cutmix", dict(name="cutmix", variant="torchbearer")),
        ("fmix", dict(name="fmix", decay=3, spectrum="isotropic")),
        ("rm", dict(name="random_masks", count=3, decay=3, spectrum="isotropic")),
    ],
)
def test_distortions_mix_as_published(method, mix):
    """Shares of Beta(1, 1), partners from the whole batch, labels mixed."""
    *_, found = distortion(f"method={method},data=cifar10,root=x")["inputs"]
    assert found == dict(mix, alpha=1.0, mix_group=128)


@cases.each("method", ["mixup", "cutmix", "fmix", "rm"])
def test_labels_stay_with_images_of_the_same_set_as_partners(method):
    *_, plain = distortion(f"method={method},data=cifar10,root=x")["inputs"]
    *_, same = distortion(f"method={method},data=cifar10,root=x,partner=same")["inputs"]
    assert same == dict(plain, reformulated=True)


@pytest.mark.slow
@cases.each("spectrum", ["isotropic", "released"], quick=("released",))
def test_a_run_of_rm_has_three_masks_of_its_spectrum(spectrum):
    """Released ones have one cosine along a row, which changes twice at most."""
    c = distortion(f"method=rm,spectrum={spectrum},data=cifar10,root=x")
    (mix,) = build.transforms("inputs", c["inputs"][-1:])
    batch = {"target": jnp.eye(128), "once": jax.random.key(2)}
    shade = jnp.arange(128.0)[:, None, None, None] * jnp.ones((1, 16, 16, 3))
    shown = jax.jit(lambda key: mix.apply({**batch, "image": shade}, key)["image"])
    masks = np.array([shown(jax.random.key(i))[7, ..., 0] == 7 for i in range(24)])
    assert len({mask.tobytes() for mask in masks}) == 3
    changes = (masks != np.roll(masks, 1, 2)).sum(2).max()
    assert (changes <= 2) == (spectrum == "released")


def test_fmix_takes_its_spectrum():
    *_, mix = distortion("method=fmix,spectrum=released,data=cifar10,root=x")["inputs"]
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
def test_on_what_distortions_train_validate_and_test(arg, train, valid, test):
    c = distortion(f"data=cifar10,root=x{arg}")
    assert [*c["tests"]] == ["test"]
    for found, expected in zip(
        (c["train"], c["valid"], c["tests"]["test"]), (train, valid, test)
    ):
        assert {key: found.get(key) for key in expected} == expected


@cases.each(
    ("arg", "expected"),
    [
        ("small", (5, 10.0, 16)),
        ("smoke", (2, 2.0, 8)),
        ("small,seeds=3,epochs=4", (3, 4.0, 16)),
    ],
)
def test_distortions_in_small(arg, expected):
    c = distortion(f"data=cifar10,root=x,{arg}")
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
def test_distortions_of_28_pixels_get_a_frame_where_a_network_needs_32(arg, size, pad):
    c = distortion(arg)
    shown = (c["train"], c["valid"], *c["tests"].values())
    assert c["size"] == size and {one.get("pad") for one in shown} == {pad}
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
def test_a_distortions_variant_tells_what_was_trained(arg, variant):
    assert distortion(arg)["variant"] == variant


def test_a_partner_comes_normalised_by_its_own_constants():
    """What the network makes of an image of the second set, by its first layer."""
    c = distortion("method=fmix,data=cifar10,root=x,partner=mnist,partner_root=y")
    assert c["inputs"][-1]["partner"] == "other" and c["inputs"][-1]["reformulated"]
    assert c["train"]["other"]["pad"] == 2
    *_, last = build.transforms("inputs", c["train"]["other"]["inputs"])
    image = jax.random.uniform(jax.random.key(0), (2, 4, 4, 3))
    moved = last.apply({"image": image}, jax.random.key(1))["image"]
    seen = (moved - jnp.array(c["model"]["mean"])[None, None, None]) / jnp.array(
        c["model"]["std"]
    )[None, None, None]
    np.testing.assert_allclose(seen, (image - 0.1307) / 0.3081, atol=1e-5)
    near = distortion("method=fmix,data=cifar10,root=x,partner=cifar100,partner_root=y")
    names = [one["name"] for one in near["train"]["other"]["inputs"]]
    assert names == ["pad_crop", "flip"] and "pad" not in near["train"]["other"]


@pytest.mark.slow
@cases.each("method", ["basic", "fmix", "rm"], quick=("rm",))
def test_on_stacked_images_a_method_mixes_digits_alone(method):
    c = distortion(f"method={method},data=stacked,root=x,digits=y,smoke")
    *halves, last = c["inputs"]
    assert [one["which"] for one in halves[:2]] == ["bottom", "bottom"]
    assert last["which"] == "top" and {*c["tests"]} == {
        "stacked_cifar",
        "stacked_mnist",
    }
    image = jax.random.uniform(jax.random.key(0), (128, 16, 8, 3))
    target = jax.nn.one_hot(jnp.arange(128) % 10, 10)
    batch = {"image": image, "target": target, "once": jax.random.key(2)}
    batch["other"] = {"image": jnp.zeros((128, 8, 8, 3))}
    if method == "basic":
        for one in build.transforms("inputs", c["inputs"]):
            batch = one.apply(batch, jax.random.key(1))
        assert not batch["image"][:, :8].any() and batch["image"][:, 8:].any()
        return
    (mix,) = build.transforms("inputs", [last])
    found = mix.apply(batch, jax.random.key(1))
    np.testing.assert_array_equal(found["target"], target)
    np.testing.assert_array_equal(found["image"][:, 8:], image[:, 8:])
    assert (found["image"][:, :8] != image[:, :8]).any()


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
def test_distortions_that_mean_nothing_are_refused(arg, message):
    with pytest.raises(ValueError, match=f"^config argument: .*{message}"):
        distortion(arg)


def test_a_shift_makes_four_parts_of_the_whole_split():
    c = config_of("erm", "data=colored_mnist,root=x,shift=C6,images=600,shift_seed=3")
    parts = {"train": c["train"], "valid": c["valid"], **c["tests"]}
    assert {name: one["shift"]["part"] for name, one in parts.items()} == {
        name: name for name in ("train", "valid", "id", "ood")
    }
    for one in parts.values():
        assert one["split"] == "train"
        assert one["form"] == "uniform"
        assert one["shift"]["level"] == "C6"
        assert (one["shift"]["images"], one["shift"]["seed"]) == (600, 3)
    assert "batch" not in c["valid"]
    single = config_of("erm", "data=colored_mnist,root=x,shift=only-red")
    assert {*single["tests"]} == {"id", "ood-yellow", "ood-green", "ood-blue"}


def test_attributes_of_faces_and_tables_are_chosen():
    faces = config_of("erm", "data=celeba,root=x,label=Male,attribute=Bald+Bangs")
    parts = [faces["train"], faces["valid"], faces["tests"]["test"]]
    assert [one["split"] for one in parts] == ["train", "valid", "test"]
    assert {(one["label"], one["attribute"]) for one in parts} == {
        ("Male", "Bald+Bangs")
    }
    assert faces["size"] == 64
    plain = config_of("erm", "data=celeba,root=x")["train"]
    assert not {"label", "attribute"} & {*plain}
    mine = config_of("erm", "data=attributed,root=x,label=kind,attribute=sky,tests=b+c")
    assert {*mine["tests"]} == {"b", "c"}
    parts = [mine["train"], mine["valid"], *mine["tests"].values()]
    assert {(one["data"], one["label"], one["attribute"]) for one in parts} == {
        ("attributed", "kind", "sky")
    }
    # Recipes under shifts of several attributes differ in nothing else.
    for of in ("attributed", "celeba"):
        one, other = (
            config_of("erm", f"data={of},root=x,label=kind,attribute={name},shift=C6")
            for name in ("sky", "sea")
        )
        assert one["train"]["shift"].pop("attribute") == "sky"
        assert other["train"]["shift"].pop("attribute") == "sea"
        assert one["train"] == other["train"] and one["train"]["label"] == "kind"
        assert "attribute" not in one["train"]
    hair = config_of("erm", "data=celeba,root=x,attribute=Bald+Bangs,shift=C6")["train"]
    assert hair["attribute"] == hair["shift"]["attribute"] == "Bald+Bangs"


def test_factors_of_shapes_are_had_where_one_is_shifted():
    c = config_of("erm", "shift=C6,attribute=background")
    assert c["train"]["factors"] and c["tests"]["ood"]["factors"]
    assert c["train"]["shift"]["attribute"] == "background"
    assert c["train"]["correlation"] == 0.99
    assert "factors" not in config_of("erm", "shift=C6")["train"]
    single = config_of("erm", "shift=only-dark,attribute=background")
    assert {*single["tests"]} == {"id", "ood-light"}


def test_columns_of_a_file_are_those_of_the_training_split():
    c = config_of("erm", "data=pacs,root=x,columns=a.csv")
    assert c["train"]["columns"] == c["valid"]["columns"] == "a.csv"
    assert not any("columns" in one for one in c["tests"].values())
    assert "columns" not in config_of("erm", "columns=a.csv")["valid"]
    faces = "data=celeba,root=x,columns=a.csv,attribute=cluster,shift=only-D1"
    c = config_of("erm", faces)
    assert "attribute" not in c["train"]
    for part in (c["train"], c["valid"], *c["tests"].values()):
        assert part["columns"] == "a.csv" and part["shift"]["attribute"] == "cluster"
    assert {*c["tests"]} == {"id", "ood"}  # There is no such file to tell more.


@cases.each(
    ("arg", "message"),
    [
        ("data=colored_mnist,root=x,form=irm,shift=C6", "shift needs form=uniform"),
        ("images=600", "'images' is used only with shift"),
        ("attribute=background", "'attribute' is used only with shift"),
        ("shift=C6,attribute=backgrund", "did you mean 'background'"),
    ],
)
def test_arguments_of_no_use_to_a_shift_are_refused(arg, message):
    with pytest.raises(ValueError, match=message):
        config_of("erm", arg)
