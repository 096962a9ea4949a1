"""The preset of ERM++ has the authors' recipe, as far as its docstring says."""

import pytest

from jbias import algos
from jbias import config as jc
from jbias.configs import erm, erm_plusplus
from jbias.data import config_sets

PACS = "data=pacs,root=DIR,held_out=sketch"


def config(arg: str) -> dict:
    return jc.to_dict(erm_plusplus.get_config(arg))


def test_a_warm_start_of_the_linear_layer_comes_first():
    """500 of 60,000 steps, by the same Adam, without an average."""
    warm_start, main = jc.stage_configs(config(f"{PACS},init=runs/x"))
    assert [stage["algo"]["name"] for stage in (warm_start, main)] == [
        "linear_probe",
        "erm",
    ]
    assert warm_start["epochs"] == pytest.approx(main["epochs"] * 500 / 60_000)
    assert warm_start["optim"] == {**main["optim"], "average": 0.0}
    optim = main["optim"]
    assert (optim["name"], optim["rate"], optim["decay"]) == ("adam", 5e-5, 0.0)
    assert optim["schedule"] == {"name": "constant"} and not optim["warmup"]
    assert optim["average"] == {"name": "uniform", "first": "100 steps"}
    (update,) = algos.ALGOS["linear_probe"](None).updates
    assert update.trains(("net", "fc", "kernel"))
    assert not update.trains(("net", "stem", "kernel"))


def test_training_takes_four_times_the_epochs_unless_the_user_says_how_many():
    plain = jc.to_dict(erm.get_config(PACS))
    assert config(PACS)["epochs"] == 4 * plain["epochs"]
    assert config(f"{PACS},epochs=7")["epochs"] == 7
    smoke = erm.get_config("smoke")
    assert config("smoke")["epochs"] == smoke.epochs
    assert config(PACS)["train"] == plain["train"]


def test_without_a_network_to_start_from_the_rate_is_larger():
    assert config(PACS)["optim"]["rate"] == 1e-3


def test_full_trains_on_all_images_of_the_training_domains():
    part, full = config(PACS), config(f"{PACS},epochs=7,full")
    sets = [full["train"], *full["train"]["also"]]
    assert [options["split"] for options in sets] == [
        "photo",
        "art_painting",
        "cartoon",
    ]
    assert part["train"]["split"] == "photo[:90%]"
    assert config_sets.is_trained_on(full) and not config_sets.is_trained_on(part)
    assert full["valid"] == part["valid"]
    assert full["train"]["batch"] == part["train"]["batch"] == 3 * 32
    assert (part["variant"], full["variant"]) == ("erm_plusplus", "erm_plusplus+full")


def test_photographs_have_the_authors_augmentation_and_other_inputs_stay():
    names = [
        transform["name"] for transform in config(f"{PACS},inputs=mixup")["inputs"]
    ]
    crop = config(PACS)["inputs"][0]
    expected = ["random_resized_crop", "flip", "colour_jitter", "grayscale"]
    assert names == [*expected, "mixup"] and crop["area"] == [0.7, 1.0]
    assert config("")["inputs"] == jc.to_dict(erm.get_config(""))["inputs"]
