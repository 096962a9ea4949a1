"""jbias measure: each kind of model, on the images that are there, with answers known."""

import inspect
import itertools
import shutil
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from PIL import Image

import jbias
from jbias import models as jbias_models
from jbias import timm_networks
from jbias.cards import folders
from jbias.data import class_maps
from jbias.evals import measured, networks, predictors
from jbias.measuring import arguments, cli, run, sets

CLASSES = tuple(class_maps.geirhos16())
SIZE = 32


def save(path, shape, texture=0):
    """Save an image whose red says one class and whose green says another."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.zeros((SIZE, SIZE, 3), np.uint8)
    pixels[..., 0], pixels[..., 1] = 16 * shape, 16 * texture
    Image.fromarray(pixels).save(path)


@pytest.fixture(scope="module")
def stimuli(tmp_path_factory):
    """Return two cue conflicts and an agreeing image for each of the 16 shapes."""
    root = tmp_path_factory.mktemp("stimuli")
    for shape, step in itertools.product(range(16), (0, 1, 5)):
        texture = (shape + step) % 16
        name = f"{CLASSES[shape]}1-{CLASSES[texture]}2.png"
        save(root / CLASSES[shape] / name, shape, texture)
    return root


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Three classes in a split for training and two for tests."""
    root = tmp_path_factory.mktemp("photos")
    for split, number in itertools.product(("train", "test", "sketches"), range(3)):
        for copy in range(2):
            save(root / split / "abc"[number] / f"{copy}.png", number)
    return root


def by_channel(channel, count=16):
    """Return a function of images that decides by the level of a channel."""

    def predict(images):
        levels = images[:, 0, 0, channel] * 255 / 16
        chosen = np.rint(levels).astype(int)
        return 20.0 * np.eye(count)[np.minimum(chosen, count - 1)]

    return predict


def test_shape_bias_needs_stimuli_alone(stimuli, tmp_path, capfd):
    """A function that answers by shape has shape bias 1, one by texture 0."""
    for name, channel, bias in (("shape", 0, 1.0), ("texture", 1, 0.0)):
        measurement = jbias.measure(
            by_channel(channel), stimuli=stimuli, size=SIZE, name=name, out=tmp_path
        )
        assert measurement.shape_bias == bias and measurement.shape_bias.n == 32
        assert measurement.accuracy_shape.n == 48
        # Each third image agrees, and counts for both.
        assert measurement.accuracy_shape == pytest.approx((1 + 2 * bias) / 3)
        assert measurement.accuracy_texture == pytest.approx((3 - 2 * bias) / 3)
        lower, upper = measurement.shape_bias.lower, measurement.shape_bias.upper
        assert lower <= bias <= upper and upper - lower < 0.2
        people, photographs = measurement.left_out
        assert people.startswith("consistency with people: give --humans=DIR")
        assert (
            "--imagenet=DIR or --data=DIR (in Python: imagenet=, data=)" in photographs
        )
    printed = capfd.readouterr().err
    assert "taken for Geirhos' 16, in alphabetical order" in printed
    assert "accuracy on photographs" in printed and "--imagenet=DIR" in printed
    with pytest.raises(AttributeError, match="accuracy: was not measured; there are"):
        _ = measurement.accuracy
    text = repr(measurement)
    assert len(text.splitlines()) == 6 and "95 %" in text
    assert "n = 32 decisions for either cue" in text
    assert text.count("n = 48 images, also those whose cues agree") == 2
    assert text.count("  not measured: ") == 2


def test_a_network_that_guesses_has_a_warning_next_to_its_shape_bias(stimuli, tmp_path):
    """A constant answer decides for either cue as often as guessing."""
    options = dict(stimuli=stimuli, size=SIZE, out=tmp_path)
    one_class = np.eye(16)[3]
    measurement = jbias.measure(
        lambda images: np.tile(one_class, (len(images), 1)), name="constant", **options
    )
    line, constant = measurement.doubts()
    assert line.startswith("decisions for either cue on cue-conflict are no more than")
    assert (
        "2 of 16 classes" in line
        and f"  doubt: {line}" in repr(measurement).splitlines()
    )
    assert constant.startswith("every image of cue-conflict is called ")
    measurement = jbias.measure(by_channel(1), name="texture", **options)
    assert measurement.accuracy_shape < 0.5 and measurement.doubts() == []


def test_one_answer_to_all_corrupted_images_is_no_doubt(tmp_path):
    """The warning about constant answers is only for unchanged images."""
    (tmp_path / "suite.py").write_text(
        "import ml_collections\n"
        "def get_config(text=''):\n"
        "    common = dict(data='shapes', split='edge', n=48, correlation=0.99)\n"
        "    low = dict(probe='corruptions', names=('contrast',), severities=(5,))\n"
        "    return ml_collections.ConfigDict(dict(\n"
        "        size=32, run=dict(batch=16), sets=dict(edge=common),\n"
        "        measures=dict(accuracy=dict(probe='plain', sets=('edge',)),\n"
        "                      low=dict(**low, side=32, sets=('edge',)))))\n"
    )

    def predict(images):
        """Answer by the brightest row if there is contrast, else the first class."""
        has_contrast = images.std((1, 2, 3)) > 0.1
        rows = images.reshape(len(images), 16, -1).mean(-1)
        return np.where(has_contrast[:, None], rows, np.eye(16)[0])

    classes = jbias.data.load("shapes", "edge", size=32, n=48).classes
    measurement = jbias.measure(
        predict, f"{tmp_path}/suite.py", classes=classes, out=tmp_path / "out"
    )
    assert not measurement.left_out and measurement.doubts() == []


def test_accuracy_at_chance_on_labelled_images_is_a_doubt_of_shape_bias():
    """The bound is the interval's lower end, and the first labelled set decides."""

    def doubts(count):
        rows = [
            ("test", "", "accuracy", count / 100, count, 100),
            ("cue-conflict", "", "accuracy", 0.0, 0, 100),
            ("cue-conflict", "shape_bias", "shape_bias", 0.0, 0, 90),
            ("cue-conflict", "shape_bias", "fraction_neither", 0.1, 10, 100),
        ]
        columns = ["dataset", "condition", "metric", "value", "count", "n"]
        classes = {("accuracy", "test"): 4, ("shape_bias", "cue-conflict"): 16}
        numbers = pd.DataFrame(rows, columns=columns)
        return measured.Measured(None, numbers, (), ("test",), classes).doubts()

    (line,) = doubts(33)  # Wilson's interval: 0.246 to 0.427.
    assert line.startswith("accuracy on test is no better than chance (1 of 4 classes)")
    assert doubts(34) == []  # 0.255 to 0.437.


def test_accuracy_on_edges_is_not_the_accuracy_of_a_model():
    rows = [
        ("edge", "", "accuracy", 0.5, 50, 100),
        ("cue-conflict", "shape_bias", "shape_bias", 0.2, 18, 90),
    ]
    columns = ["dataset", "condition", "metric", "value", "count", "n"]
    measurement = measured.Measured(None, pd.DataFrame(rows, columns=columns))
    with pytest.raises(AttributeError, match="there are shape_bias, and all numbers"):
        _ = measurement.accuracy


@pytest.mark.parametrize("folder", ["stimuli", "imagenet", "data", "humans"])
def test_folders_beside_a_suite_are_refused(folder):
    with pytest.raises(ValueError, match=f"{folder}: says nothing with a suite"):
        jbias.measure(by_channel(0), "suite.py", **{folder: "/data"})


def test_the_same_call_resumes(stimuli, tmp_path, capfd):
    options = dict(stimuli=stimuli, size=SIZE, name="net", out=tmp_path)
    first = jbias.measure(by_channel(0), **options)
    capfd.readouterr()
    resumed = jbias.measure(by_channel(0), **options)
    assert "2 measures are there already" in capfd.readouterr().err
    pd.testing.assert_frame_equal(first.numbers, resumed.numbers)


def test_another_network_of_the_same_name_is_refused_with_both_ways_out(
    stimuli, tmp_path, monkeypatch, capfd
):
    monkeypatch.chdir(tmp_path)
    code = "import numpy as np\ndef predict(images):\n    return np.eye(16)[{}]\n"
    arguments_given = ["mine.py", f"--stimuli={stimuli}", f"--size={SIZE}"]
    for chosen, name, exit_code in (
        ("[0] * len(images)", "", 0),
        ("[1] * len(images)", "", 2),
        ("[1] * len(images)", "second", 0),
    ):
        (tmp_path / "mine.py").write_text(code.format(chosen))
        names = [f"--name={name}"] if name else []
        assert cli.main([*arguments_given, *names]) == exit_code
        printed = capfd.readouterr().err
        is_refused = "holds measures of another network" in printed
        assert is_refused == (exit_code == 2)
        for words in ("--out", "out= in Python", "--name=NAME", "name= in Python"):
            assert words in printed or not is_refused
    assert (tmp_path / "measured" / "second" / "evals").is_dir()


def test_outputs_that_mean_no_class_of_the_stimuli_are_named(stimuli, tmp_path, capfd):
    """CIFAR-10's names: airplane, bird, cat and dog are classes of Geirhos; six are not."""
    names = [
        "airplane",
        "automobile",
        "bird",
        "cat",
        "deer",
        "dog",
        "frog",
        "horse",
        "ship",
        "Trucks",
    ]
    options = dict(stimuli=stimuli, size=SIZE, only=("shape_bias",), out=tmp_path)
    jbias.measure(by_channel(0, 10), classes=names, name="list", **options)
    (line,) = [x for x in capfd.readouterr().err.splitlines() if "answer no class" in x]
    assert (
        "list: 6 of its 10 outputs answer no class of cue-conflict: 'automobile' ("
        in line
    )
    for words in ("(near 'car')", "'ship' (near 'boat')", "'Trucks' (near 'truck')"):
        assert words in line
    assert ", such as automobile,car and ship,boat and Trucks,truck" in line
    assert (
        "'deer', 'frog', 'horse'," in line and "no output answers bear, bicycle" in line
    )
    class_mapping = {name: "" for name in names}
    class_mapping |= {"dog": "dog", "automobile": "car", "ship": "boat"}
    jbias.measure(
        by_channel(0, 10), classes=class_mapping, name="dictionary", **options
    )
    assert "answer no class" not in capfd.readouterr().err


def test_images_of_classes_that_the_model_lacks_are_named_with_the_measures(
    stimuli, tmp_path, capfd
):
    """Accuracy leaves these images out, shape bias counts them; one line per measure."""
    jbias.measure(
        by_channel(0, 4),
        classes=["car", "cat", "dog", "fish"],
        stimuli=stimuli,
        size=SIZE,
        only=("accuracy", "shape_bias"),
        name="few",
        out=tmp_path,
    )
    lines = [x for x in capfd.readouterr().err.splitlines() if "has none of" in x]
    for words in (
        "39 of 48 images left out of accuracy, the model has none of airplane, bear",
        "39 of 48 images shown and never right in shape_bias, the model has none of",
    ):
        assert [words in line for line in lines].count(True) == 1, lines
    assert len(lines) == 2


def test_own_images_give_accuracy_on_all_splits_but_train(photos, tmp_path, capfd):
    measurement = jbias.measure(
        by_channel(0, count=3),
        data=photos,
        size=SIZE,
        only=("accuracy",),
        out=tmp_path,
        name="net",
    )
    assert measurement.accuracy == 1 and measurement.accuracy.n == 6
    assert [x.dataset for _, x in measurement.headlines()] == ["test", "sketches"]
    printed = capfd.readouterr().err
    assert "taken for the folders of --data, in alphabetical order" in printed


def test_classes_of_imagenet_on_other_images_are_refused_with_flags_of_measure(
    photos, tmp_path, monkeypatch, capfd
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.py").write_text(
        "import numpy as np\n"
        "def predict(images):\n"
        "    return np.eye(1000)[np.arange(len(images))]\n"
    )
    options = [f"--data={photos}", f"--size={SIZE}", "--only=accuracy"]
    assert cli.main(["my.py", *options]) == 2
    (line,) = {x for x in capfd.readouterr().err.splitlines() if "while" in x}
    assert "--suite" not in line and "--imagenet=DIR" in line
    assert "--classes=FILE.csv with lines train_class,test_class" in line
    rows = [f"output {i}," for i in range(1000)]
    rows[:3] = ["output 0,a", "output 1,b", "output 2,c"]
    table = tmp_path / "map.csv"
    table.write_text("\n".join(["train_class,test_class", *rows]))
    assert cli.main(["my.py", *options, f"--classes={table}"]) == 0


def test_a_csv_file_of_classes_maps_the_outputs_of_a_file_of_weights(
    photos, tmp_path, capfd
):
    """All three outputs mean b, the only class that is left: its images are right."""
    net = jbias_models.MODELS["cnn"](3, width=4)
    variables = net.init(jax.random.key(0), jnp.zeros((1, SIZE, SIZE, 3)))
    path, table = tmp_path / "net.safetensors", tmp_path / "map.csv"
    jbias_models.save_safetensors(path, net, variables, names="own")
    table.write_text("train_class,test_class\nx,b\ny,b\nz,b\n")
    options = [f"--data={photos}", f"--size={SIZE}", "--only=accuracy", "--model=cnn"]
    options += [f"--out={tmp_path}/out", f"--classes={table}"]
    assert cli.main([str(path), *options]) == 0
    (accuracy,) = [
        x.split()[2]
        for x in capfd.readouterr().out.splitlines()
        if x.strip().startswith("accuracy") and " test " in x
    ]
    assert accuracy == "1.000"
    table.write_text("train_class,test_class\nx,a\ny,a\nz,a\n")
    assert cli.main([str(path), *options]) != 0
    assert "holds measures of another network" in capfd.readouterr().err


def test_a_file_of_classes_must_list_all_outputs(photos, tmp_path):
    table, names = tmp_path / "map.csv", tmp_path / "names.txt"
    table.write_text("train_class,test_class\nx,a\ny,b\n")
    names.write_text("a\nb\n")
    options = dict(data=photos, size=SIZE, only=("accuracy",), out=tmp_path / "out")
    for classes, listed, remedy in (
        (str(table), f"{table} has 2 rows", "an empty test_class for those without"),
        (str(names), f"{names} has 2 rows", "a name or WordNet id a line, for all"),
        (["a", "b"], "2 classes are listed", "list all outputs in order"),
        ({"x": "a", "y": "b"}, "2 classes are listed", "list all outputs in order"),
    ):
        with pytest.raises(ValueError, match="the model has 1,000 outputs") as error:
            jbias.measure(by_channel(0, 1000), classes=classes, name="net", **options)
        message = str(error.value)
        assert f"--classes: {listed}, the model has 1,000 outputs; " in message
        assert remedy in message and "trial images" not in message


def test_messages_and_help_have_the_same_list_of_classes(capsys):
    for read in (class_maps.resolve_outputs, networks.list_classes):
        with pytest.raises(ValueError, match="got 'cifar10'") as error:
            read("cifar10")
        for word in ("imagenet", "geirhos16", "folders", "train_class"):
            assert word in str(error.value) and word in cli.parser().format_help()
        assert tuple(read("geirhos16")) == CLASSES
    own_classes = networks.read_classes("geirhos16", 16)
    assert own_classes == class_maps.of_outputs(CLASSES)


def test_a_csv_file_of_classes_names_each_output_once(tmp_path):
    table = tmp_path / "map.csv"
    table.write_text("train_class,test_class\ncrane,a\ncrane,\n")
    with pytest.raises(
        ValueError, match="once, got 'crane' twice, again in .*:3; tell"
    ):
        class_maps.of_outputs(str(table), "--classes")


def test_a_folder_of_classes_is_a_set(photos):
    test_set = sets.find_images(str(photos / "test"))
    assert test_set == sets.OwnImages(str(photos), ("test",), ("a", "b", "c"))
    split = sets.find_images(str(photos))
    assert split == sets.OwnImages(str(photos), ("sketches", "test"), ("a", "b", "c"))


def test_outputs_with_two_readings_are_refused_with_both(stimuli, tmp_path):
    for number in range(16):
        save(tmp_path / "own" / f"class{number}" / "0.png", number)
    options = dict(stimuli=stimuli, data=tmp_path / "own", size=SIZE, out=tmp_path)
    with pytest.raises(ValueError, match="--classes=folders.*--classes=geirhos16"):
        jbias.measure(by_channel(0), **options)
    measurement = jbias.measure(
        by_channel(0), classes="geirhos16", only=("shape_bias",), **options
    )
    assert measurement.shape_bias == 1


def test_outputs_without_a_reading_are_refused(stimuli, tmp_path):
    with pytest.raises(ValueError, match="what its 5 outputs are; give --classes=FILE"):
        jbias.measure(by_channel(0, count=5), stimuli=stimuli, size=SIZE, out=tmp_path)


def test_a_file_of_python_and_a_table_of_decisions_are_models(
    stimuli, tmp_path, monkeypatch, capfd
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "import numpy as np\n"
        "def predict(images):\n"
        "    chosen = np.rint(images[:, 0, 0, 1] * 255 / 16).astype(int)\n"
        "    return 20.0 * np.eye(16)[chosen]\n"
    )
    rows = [
        {
            "imagename": f"{path.parent.name}/{path.name}",
            "object_response": path.parent.name,
        }
        for path in sorted(stimuli.rglob("*.png"))
    ]
    pd.DataFrame(rows).assign(subj="table").to_csv(
        tmp_path / "cue-conflict_table.csv", index=False
    )
    common = [f"--stimuli={stimuli}", f"--size={SIZE}", "--out=found"]
    assert cli.main(["mine.py", *common]) == 0
    assert cli.main(["cue-conflict_table.csv", *common]) == 0
    printed = capfd.readouterr().out
    assert "mine: measured in found/mine" in printed
    assert "table: measured in found/table" in printed
    lines = [x.split()[:4] for x in printed.splitlines() if "shape bias" in x]
    assert [x[3] for x in lines] == ["0.000", "1.000"]


def write_decisions(stimuli, path, count=48):
    """Write a table that answers by the shape; return it."""
    rows = [
        {"imagename": x.name, "object_response": x.parent.name}
        for x in sorted(stimuli.rglob("*.png"))[:count]
    ]
    pd.DataFrame(rows).assign(subj="table").to_csv(path, index=False)
    return str(path)


def test_a_table_of_decisions_is_measured_on_the_images_that_it_has(
    stimuli, tmp_path, capfd
):
    """A column `set` is not needed, and the exit code is that of success."""
    table = write_decisions(stimuli, tmp_path / "mine.csv", count=30)
    arguments_given = [
        table,
        f"--stimuli={stimuli}",
        f"--size={SIZE}",
        f"--out={tmp_path}/out",
    ]
    assert cli.main(arguments_given) == 0
    printed = capfd.readouterr()
    assert "18 of the 48 images of cue-conflict have no decision" in printed.err
    assert "n = 30 images" in printed.out and "n = 20 decisions" in printed.out


def test_sets_without_decisions_are_named_and_no_failure(stimuli, tmp_path, capfd):
    folder = tmp_path / "stimuli"
    shutil.copytree(stimuli, folder / "cue-conflict")
    for (number, name), split in itertools.product(
        enumerate(CLASSES), ("edge", "silhouette")
    ):
        save(folder / split / name / f"{name}1.png", number)
    table = write_decisions(stimuli, tmp_path / "mine.csv")
    arguments_given = [table, f"--stimuli={folder}", f"--size={SIZE}"]
    assert cli.main([*arguments_given, f"--out={tmp_path}/out"]) == 0
    line = (
        "accuracy on edge and silhouette: no decisions on these images; add them to the "
        "table"
    )
    printed = capfd.readouterr()
    assert f"not measured: table: {line}" in printed.err and line in printed.out
    measurement = jbias.measure(
        table, stimuli=folder, size=SIZE, out=tmp_path / "python"
    )
    assert measurement.left_out == (line,) and measurement.shape_bias == 1


def test_images_that_are_not_in_the_folder_are_counted(stimuli, tmp_path):
    table = write_decisions(stimuli, tmp_path / "mine.csv")
    folder = tmp_path / "few"
    shutil.copytree(stimuli, folder)
    for name in CLASSES:  # One of the three images of each class remains.
        for path in sorted((folder / name).iterdir())[1:]:
            path.unlink()
    with pytest.raises(ValueError, match="32 of the file's 48 images are not") as error:
        jbias.measure(table, stimuli=folder, size=SIZE, out=tmp_path / "out")
    message = str(error.value)
    assert f"among the 16 of the set cue-conflict ({folder}" in message
    assert "give the folder that has them all, or remove these rows" in message


def test_the_folder_of_one_set_is_refused_with_the_one_above(tmp_path):
    for split, name in itertools.product(("edges", "cue-conflict"), CLASSES):
        (tmp_path / "all" / split / name).mkdir(parents=True)
    above = tmp_path / "all"
    assert sets.find_stimuli(str(above)) == ("edge", "cue-conflict")
    assert sets.find_stimuli(str(above / "cue-conflict")) == ("cue-conflict",)
    with pytest.raises(ValueError, match=f"has the set edge alone.*; give {above}$"):
        sets.find_stimuli(str(above / "edges") + "/")
    with pytest.raises(ValueError, match=f"; give {above}$"):
        sets.find_stimuli(str(above / "edges" / "cat"))
    shutil.rmtree(above / "cue-conflict")
    with pytest.raises(ValueError, match="on these images by --data=.*edges"):
        sets.find_stimuli(str(above / "edges"))


def test_images_that_are_enlarged_are_named(stimuli, tmp_path, capfd):
    """The stimuli have 32 pixels: at 32 no line says so, at 40 one does."""
    lines = {}
    for size in (32, 40):
        jbias.measure(
            by_channel(0), stimuli=stimuli, size=size, name=f"at{size}", out=tmp_path
        )
        printed = capfd.readouterr().err.splitlines()
        lines[size] = [line for line in printed if "enlarged" in line]
    assert lines[32] == [] and len(lines[40]) == 1
    assert "cue-conflict: images of 32 pixels are enlarged to 40" in lines[40][0]
    for size in (32, 40):
        (described,) = folders.read(str(tmp_path / f"at{size}")).stimuli.values()
        is_named = "enlarged from files of 32 pixels" in described["preprocessing"]
        assert is_named == (size == 40)


def test_messages_in_python_name_its_arguments(tmp_path):
    with pytest.raises(
        ValueError, match=r"--stimuli: must be .*\(in Python: stimuli=\)"
    ):
        jbias.measure(by_channel(0), stimuli="nowhere", out=tmp_path)
    with pytest.raises(ValueError, match=r"MODEL: .*\(in Python: model, the first"):
        jbias.measure("nothing.pth", data=tmp_path, out=tmp_path)
    for message, named in {
        "give --data=DIR": "give --data=DIR (in Python: data=)",
        "MODEL: say which, --classes=x": (
            "MODEL: say which, --classes=x (in Python: model, the first argument, classes=)"
        ),
        "--suite.run.batch=8": "--suite.run.batch=8 (in Python: changes=)",
        "--data=DIR (data= in Python)": "--data=DIR (data= in Python)",
        "no flag at all": "no flag at all",
        "--unknown": "--unknown",
    }.items():
        assert arguments.name_arguments(message) == named


def test_every_argument_that_messages_name_is_one_of_measure():
    known = {*inspect.signature(run.measure).parameters, "mean", "std", "name"}
    for name in arguments._ARGUMENTS.values():
        assert name.partition("=")[0].partition(",")[0] in known


def test_a_model_without_images_is_refused_in_one_line(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("def predict(images):\n    return images\n")
    for arguments_given, words in {
        ("mine.py",): "nothing to measure with; give --stimuli=DIR",
        ("mine.py", "--stimuli=nowhere"): "--stimuli: must be a folder, got 'nowhere'",
        ("mine.py", "--stimuli=."): "a folder for each of Geirhos' 16 classes",
        ("absent.pth", "--data=."): "nothing is at 'absent.pth'",
        ("mine.py:other", "--data=."): "other",
        ("mine.py", "--data=.", "--humans=."): "--humans: people are compared",
    }.items():
        assert cli.main([*arguments_given]) == 2, arguments_given
        printed = capfd.readouterr().err
        assert words in printed and len(printed.splitlines()) == 1, arguments_given


def test_measures_that_need_gradients_are_left_out_for_a_function(
    photos, tmp_path, monkeypatch, capfd
):
    """Attacks are named as not measured, and the exit code is that of success."""
    plan = sets.plan(
        sets.Folders(data=str(photos)),
        sets.find_images(str(photos)),
        size=SIZE,
        images=1,
        space="names",
    )
    removed = sets.remove_impossible(plan.config, has_gradients=False, has_sites=False)
    assert removed == "pgd, pgd_l2, fgsm, receptive_field"
    assert not {"pgd", "fgsm", "receptive_field"} & {*plan.config.measures}
    not_removed = sets.remove_impossible(
        plan.config, has_gradients=True, has_sites=True
    )
    assert not_removed == "" and "spectral" in plan.config.measures


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ValueError, match="pip install torch torchvision timm$"):
        timm_networks.make("timm:resnet18", "MODEL", is_random=True)


@pytest.mark.parametrize("kind", ["RuntimeError", "OSError", "ImportError"])
def test_a_broken_package_is_refused_in_one_line(kind, tmp_path, monkeypatch, capfd):
    """For example, torchvision raises such an error if its build does not fit torch."""
    (tmp_path / "timm.py").write_text(f"raise {kind}('operator nms\\nis missing')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    assert cli.main(["timm:resnet18", f"--data={tmp_path}"]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("jbias: MODEL: timm:resnet18 needs the package timm, which")
    assert "operator nms is missing" in line and "torch and torchvision" in line


def test_other_options_of_timm_are_refused_with_the_file_to_write():
    with pytest.raises(ValueError, match="must end with") as error:
        timm_networks.make("timm:resnet18?pretrained=false&num_classes=3", "MODEL")
    line = (
        "write my.py with net = timm.create_model('resnet18', ...), and give my.py:net"
    )
    assert line in str(error.value)


def test_timms_random_weights_are_used_on_request_and_reproducible():
    pytest.importorskip("timm")
    (first, name), (second, _) = (
        timm_networks.make("timm:resnet18?pretrained=false", "MODEL") for _ in range(2)
    )
    assert name == "resnet18-random"
    pairs = zip(first.parameters(), second.parameters(), strict=True)
    assert all(bool((x == y).all()) for x, y in pairs)
    with pytest.raises(ValueError, match="did you mean timm:resnet18"):
        timm_networks.make("timm:resnt18", "MODEL", is_random=True)
    with pytest.raises(ValueError, match="fetch them by `hf download timm/.* or use"):
        timm_networks.make("timm:resnet18.fb_ssl_yfcc100m_ft_in1k", "MODEL")


def test_a_module_is_wrapped_by_itself(stimuli, tmp_path):
    torch = pytest.importorskip("torch")
    from jbias import torch as wrapping

    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.AdaptiveAvgPool2d(2), torch.nn.Flatten(), torch.nn.Linear(12, 16)
    )
    options = dict(stimuli=stimuli, size=SIZE, out=tmp_path)
    unwrapped = jbias.measure(net, name="own", **options)
    wrapped = jbias.measure(
        wrapping.wrap(net, name="wrapped", classes=CLASSES), **options
    )
    pd.testing.assert_series_equal(unwrapped.numbers["value"], wrapped.numbers["value"])


def test_an_estimate_is_a_float_that_says_its_interval():
    estimate = measured.Estimate(0.25, lower=0.2, upper=0.3, n=1200)
    assert estimate * 2 == 0.5 and f"{estimate:.1f}" == "0.2"
    assert repr(estimate) == "0.250 (95 %: 0.200 to 0.300, n = 1,200)"
    assert repr(measured.Estimate(float("nan"), n=0)) == "undefined (n = 0)"


def test_the_number_of_outputs_is_counted():
    counted = predictors.count_outputs(predictors.Predictor(by_channel(0, 7)), SIZE)
    named = predictors.Predictor(lambda images: ["cat"] * len(images))
    assert counted == 7 and predictors.count_outputs(named, SIZE) == 0
