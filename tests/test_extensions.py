"""Parts added by users in files or packages: they are loaded, and errors name their line."""

import contextlib
import importlib
import importlib.metadata
import pathlib
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import serialization

from jbias import build, data, evals, extensions, run_spec
from jbias import config as jc
from jbias.algos import erm
from jbias.evals import networks, suites
from jbias.measures import decisions
from jbias.models import taps
from jbias.runtime import mesh, messages
from tests import cases, smoke_runs

ROOT = pathlib.Path(__file__).parents[1]
OWN_PARTS = ROOT / "examples" / "own_parts.py"
HEAD = "import numpy as np\nfrom jbias import data\nfrom flax import linen as nn\n"
SHAPES = {"image": jnp.zeros((2, 8, 8, 3))}


def run_measure(name):
    decided = decisions.Decisions(np.zeros(4, int), {"label": np.arange(4)})
    return evals.find_measure(name)(decided)


def run_transform(name):
    (transform,) = build.transforms("config.inputs", [{"name": name}])
    return transform.apply(SHAPES, jax.random.key(0))


def init_network(name):
    config = {"model": {"name": name}, "precision": "float32"}
    net = build.network(config, 2)
    with extensions.naming_files(config):
        return jax.eval_shape(net.init, jax.random.key(0), SHAPES["image"])


def run_probe(name):
    measure = suites.read_measure("mine", {"probe": name, "sets": ["a"]}, {"a": {}})
    return suites.build_probe(measure, {}).numbers({})


USES = {
    "data": lambda name: data.load(name, "train"),
    "measure": run_measure,
    "network": init_network,
    "probe": run_probe,
    "transform": run_transform,
}
# Invalid parts: kind of part, text after HEAD, line of the error, and message.
WRONG = {
    "data: a key": ("data", "def make(split):\n    return {}[split]\n", 5, "KeyError"),
    "data: a shape": (
        "data",
        "def make(split):\n    return np.zeros(4).reshape(3)\n",
        5,
        "in make: ValueError: cannot reshape",
    ),
    "data: nothing": (
        "data",
        "def make(split):\n    pass\n",
        4,
        "an ArraySource or an",
    ),
    "data: labels": (
        "data",
        (
            "def make(split):\n"
            "    images = np.zeros((2, 8, 8, 3), np.uint8)\n"
            "    return data.from_arrays('x', images, [0, 2], ('a', 'b'))\n"
        ),
        6,
        "must be class ids below 2, got 0 to 2",
    ),
    "a measure": (
        "measure",
        "def make(decided):\n    return 0.5\n",
        4,
        "list of jbias",
    ),
    "a measure's error": (
        "measure",
        "def make(decided):\n    return decided.columns['texture']\n",
        5,
        "KeyError: 'texture'",
    ),
    "a transform": (
        "transform",
        "def make():\n    return 1\n",
        4,
        "must return \\(batch",
    ),
    "a transform's arguments": (
        "transform",
        "def make():\n    def apply(batch):\n        return batch\n    return apply\n",
        5,
        "takes 1 positional argument but 2",
    ),
    "a transform's error": (
        "transform",
        "def make():\n    return lambda batch, key: batch['images']\n",
        5,
        "KeyError: 'images'",
    ),
    "a network": ("network", "def make(classes):\n    return 1\n", 4, "a flax module"),
    "a network's error": (
        "network",
        (
            "class make(nn.Module):\n"
            "    classes: int\n"
            "    def __call__(self, image, key=None, *, train=False):\n"
            "        return image @ image\n"
        ),
        7,
        "in __call__: TypeError: dot_general",
    ),
    "a probe": (
        "probe",
        "def make():\n    return 1\n",
        4,
        "a jbias.stimuli.shown.Stimuli, jbias.measures.counting.Counting",
    ),
    "a probe's error": (
        "probe",
        (
            "from jbias.measures import counting\n"
            "def make():\n"
            "    return counting.Counting(lambda found: found['x'])\n"
        ),
        6,
        "KeyError: 'x'",
    ),
}


@cases.each("kind", WRONG)
def test_an_error_in_a_users_part_names_its_file_and_line(kind, tmp_path):
    use, text, line, message = WRONG[kind]
    path = tmp_path / "mine.py"
    path.write_text(HEAD + text)
    with pytest.raises(messages.UserCodeError, match=message) as error:
        USES[use](f"{path}:make")
    assert str(error.value).startswith(f"error in {path}:{line}")
    assert "\n" not in str(error.value)


def test_errors_in_the_steps_of_users_stimuli_name_the_file(tmp_path):
    """Functions inside a part of the result are guarded as its own functions are."""
    path = tmp_path / "mine.py"
    path.write_text(
        "from jbias.stimuli import shown\n"
        "def make():\n"
        "    move = lambda rows, params, stimuli: params['x']\n"
        "    steps = shown.NetworkSteps(move, {'': 1})\n"
        "    numbers = lambda by_condition: []\n"
        "    stimuli = shown.Stimuli({'': ()}, shown.identity, numbers)\n"
        "    return stimuli._replace(network_steps=steps)\n"
    )
    entry = {"probe": f"{path}:make", "sets": ["a"]}
    measure = suites.read_measure("mine", entry, {"a": {}})
    steps = suites.build_probe(measure, {}).network_steps
    assert steps.counts == {"": 1} and steps.look is None
    with pytest.raises(messages.UserCodeError, match="mine.py:3, .*KeyError: 'x'"):
        steps.move(None, {}, None)


@cases.each(
    ("line", "remedy"),
    [
        ("from jbias.augment import sampling", "jbias.augment.batch_permutations for "),
        ("import jbias.augment.sampling", "random_numbers for keys, draw_each"),
        ("from jbias.config import refuse", "import jbias.errors.refuse"),
        ("from jbias.data.base import Spec", "import jbias.data.base.DataSet"),
    ],
)
def test_a_users_import_of_a_name_that_moved_names_its_successor(
    line, remedy, tmp_path
):
    path = tmp_path / "mine.py"
    path.write_text(f"{line}\ndef make():\n    pass\n")
    with pytest.raises(messages.UserCodeError) as error:
        USES["probe"](f"{path}:make")
    assert "has moved: import" in str(error.value)
    assert remedy in str(error.value)


@pytest.mark.parametrize(
    "line",
    [
        "from jbias.evals import probe",
        "import jbias.evals.probe",
        "from jbias.evals.probe import Probe",
    ],
)
def test_a_users_import_of_a_module_that_moved_names_its_successor(line, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(f"{line}\ndef make():\n    pass\n")
    with pytest.raises(messages.UserCodeError) as error:
        USES["probe"](f"{path}:make")
    assert str(error.value).startswith(f"error in {path}:1: ")
    remedy = "return shown.Stimuli(conditions, show, numbers) instead of probe.Probe"
    assert remedy in str(error.value)


@cases.each("use", USES)
def test_an_absent_part_is_refused(use, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("def make():\n    pass\n")
    for name, message in (
        (f"{path}:maek", "has no function 'maek'; did you mean 'make'"),
        (f"{tmp_path}/none.py:make", "no file '.*none.py'; give path/to/file.py:make"),
        ("nothing_of_that_name", "nothing_of_that_name'"),
    ):
        with pytest.raises(ValueError, match=message) as error:
            USES[use](name)
        assert not isinstance(error.value, messages.UserCodeError)


def test_a_file_that_calls_sys_exit_is_named_with_its_line_and_entry(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("import sys\nsys.exit(0)\n")
    with pytest.raises(messages.UserCodeError) as raised:
        extensions.find("config.algo.name", f"{path}:make", extensions.ANYTHING)
    start = f"error in {path}:2: SystemExit: calls sys.exit(0); remove that, or "
    assert str(raised.value).startswith(start)
    assert "; config.algo.name names that file; " in str(raised.value)


def test_a_package_offers_parts_by_name(monkeypatch):
    groups_asked, dist = [], types.SimpleNamespace(name="other-package", version="1.2")
    few_numbers = [decisions.share("few", 1, 4)]
    entry_points_offered = [
        types.SimpleNamespace(group=group, name=name, dist=dist, value="x", load=load)
        for group, name, load in (
            ("jbias.algorithms", "theirs", lambda: erm.make),
            ("jbias.measures", "few", lambda: lambda decided: few_numbers),
            ("jbias.measures", "twice", lambda: None),
            ("jbias.measures", "twice", lambda: None),
            ("jbias.measures", "broken", lambda: importlib.import_module("no_such")),
            ("other.measures", "small", lambda: None),
        )
    ]

    def entry_points(group=None, name=None):
        groups_asked.append(group)
        return [
            entry_point
            for entry_point in entry_points_offered
            if group in (None, entry_point.group) and name in (None, entry_point.name)
        ]

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    assert run_measure("accuracy")[0].count == 1
    assert groups_asked == []  # Known names need no entry points.
    assert run_measure("few") == [decisions.Number("few", 0.25, 1, 4)]
    for name, message in (
        ("twice", "must be provided by one package"),
        ("broken", "error in x:1: ModuleNotFoundError: No module named 'no_such'"),
        ("small", "measures: unknown 'small'"),
    ):
        with pytest.raises(ValueError, match=message):
            run_measure(name)
    net = build.network({"model": {"name": "cnn"}, "precision": "float32"}, 2)
    assert build.algorithm({"name": "theirs"}, net).net == net
    config = smoke_runs.small(algo={"name": "theirs"})
    assert build.user_file_digests(jc.to_dict(config)) == {
        "theirs": "other-package 1.2"
    }
    with pytest.raises(ValueError, match="did you mean 'theirs'"):
        build.algorithm({"name": "their"}, net)


def test_a_part_of_a_users_set_has_the_same_share_of_all_classes():
    name = f"{OWN_PARTS}:discs"
    all_images = data.load(name, "train", n=40)
    splits = [data.load(name, f"train{part}", n=40) for part in ("[:75%]", "[75%:]")]
    assert [np.bincount(x.columns["label"]).tolist() for x in splits] == [
        [15] * 2,
        [5] * 2,
    ]
    assert len({split.fingerprint for split in (all_images, *splits)}) == 3
    rows = np.concatenate([split.images for split in splits])
    assert sorted(map(bytes, rows)) == sorted(map(bytes, all_images.images))


def test_columns_of_arrays_are_part_of_the_fingerprint():
    images = np.zeros((2, 8, 8, 3), np.uint8)
    sets = [
        data.from_arrays("x", images, [0, 1], ("a", "b"), columns={"attribute": column})
        for column in ([0, 1], [1, 0])
    ]
    assert sets[0].fingerprint != sets[1].fingerprint


def test_files_of_a_config_have_digests_and_are_not_trusted(tmp_path):
    path = tmp_path / "mine.py"
    config = smoke_runs.small().to_dict()
    for place in ("model", "valid", "inputs", "tests"):
        changed_config = {**config}
        own_part = {"name": f"{path}:make"} if place in ("model", "inputs") else {}
        changed_config[place] = {
            "model": own_part,
            "inputs": [own_part],
            "valid": {**config["valid"], "data": f"{path}:make"},
            "tests": {"a": {**config["valid"], "measures": [f"{path}:make"]}},
        }[place]
        digests = []
        for content in ("one", "two"):
            path.write_text(content)
            digests.append(build.user_file_digests(changed_config)[str(path)])
        assert digests[0] != digests[1]
        with pytest.raises(ValueError, match="mine.py:make', a file that would be run"):
            run_spec.check_trusted(jc.to_dict(changed_config), "runs/x")


def test_tables_name_a_part_by_its_file():
    names = ("resnet18", "a/mine.py:make", "mine.py:wide")
    assert [jc.plain_name(name) for name in names] == ["resnet18", "mine", "mine-wide"]


@pytest.fixture
def flax_file(tmp_path):
    """Return the example's network, its variables, their file, and flags of jbias evaluate."""
    net = build.network(
        {"model": {"name": f"{OWN_PARTS}:Net"}, "precision": "float32"}, 2
    )
    variables = net.init(jax.random.key(0), jnp.zeros((1, 8, 8, 3)))
    path = tmp_path / "net.msgpack"
    path.write_bytes(serialization.to_bytes(variables))
    (tmp_path / "names.txt").write_text("red\ngreen\n")
    flags = dict(model=f"{OWN_PARTS}:Net", classes=f"{tmp_path}/names.txt", zoo="")
    other_flags = ("mean", "std", "trained", "method", "step")
    return (
        net,
        variables,
        path,
        types.SimpleNamespace(**flags, **dict.fromkeys(other_flags)),
    )


def test_a_users_flax_module_has_answers_gradients_and_sites(flax_file):
    net, variables, path, flags = flax_file
    flags.checkpoint = [str(path)]
    assert networks.check_arguments(flags, str(path.parent / "out"), {}) == [str(path)]
    (opened,) = networks.open_networks([str(path)], flags, print, pytest.fail)
    assert (opened.classes, opened.fields["model"]) == (("red", "green"), "Net")
    bound = opened.bind(jnp.float32, mesh.make(1))
    image = jax.random.uniform(jax.random.key(1), (2, 8, 8, 3))
    # Compiled, as in a measurement: the same sums without a compiler may have other last bits.
    expected = jax.jit(net.apply)(variables, image)
    np.testing.assert_array_equal(bound.predict(image, None), expected)
    gradient = jax.grad(lambda x: bound.apply(bound.variables, x).sum())(image)
    assert np.abs(gradient).max() > 0
    assert taps.sites(bound.net, 8) == ("conv",)
    activations, gradients = bound.at(bound.variables, image, "conv")
    assert activations.shape == gradients.shape == (2, 4, 4, 8)


@cases.each(
    ("content", "message"),
    [
        (b"\xc1", "must be what flax"),
        (serialization.to_bytes({}), "KeyError: 'params'"),
    ],
)
def test_a_file_without_the_modules_variables_is_refused(content, message, flax_file):
    *_, path, flags = flax_file
    path.write_bytes(content)
    reasons = []
    assert not list(
        networks.open_networks(
            [str(path)], flags, print, lambda _, w: reasons.append(w)
        )
    )
    assert len(reasons) == 1 and str(path) in reasons[0] and message in reasons[0]


def test_a_module_without_sites_or_a_train_argument_is_measured(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from flax import linen as nn\n"
        "class make(nn.Module):\n"
        "    classes: int\n"
        "    @nn.compact\n"
        "    def __call__(self, image):\n"
        "        return nn.Dense(self.classes)(image.mean((1, 2)))\n"
    )
    config = {"model": {"name": f"{path}:make"}, "precision": "float32"}
    net = build.network(config, 2)
    image = jnp.ones((1, 8, 8, 3))
    variables = net.init(jax.random.key(0), image)
    names = ("red", "green")
    flax_network = networks.FlaxNetwork("x", names, "names", "", {}, {}, net, variables)
    bound = flax_network.bind(jnp.bfloat16, mesh.make(1))
    assert bound.at is None and bound.net is None and flax_network.preprocessing == {}
    assert flax_network.dtype(jnp.bfloat16) == jnp.float32
    np.testing.assert_array_equal(
        bound.predict(image, None), net.apply(variables, image)
    )


@pytest.mark.slow
def test_a_run_of_a_users_parts_is_measured(tmp_path, monkeypatch):
    """Train the example, and evaluate it with its own measure and data set."""
    from jbias import evaluate, train
    from jbias.runs import results

    monkeypatch.chdir(ROOT)
    config = jc.load("examples/own_parts.py:smoke,seeds=1", flag="config")
    train.run(config, tmp_path / "run")
    rows = results.read(tmp_path / "run")
    shares = rows[rows["metric"] == "called_red"]
    assert set(shares["dataset"]) == {"far"} and (shares["n"] == 160).all()
    (tmp_path / "suite.py").write_text(
        "import ml_collections\n"
        "def get_config(text=''):\n"
        "    c = ml_collections.ConfigDict(dict(size=32))\n"
        "    own = 'examples/own_parts.py'\n"
        "    c.sets = dict(far=dict(data=f'{own}:discs', split='far', n=40))\n"
        "    measures = ('accuracy', f'{own}:called_red')\n"
        "    c.measures = dict(\n"
        "        accuracy=dict(probe='plain', sets=('far',), measures=measures),\n"
        "        pgd=dict(sets=('far',), steps=1),\n"
        "        decoding=dict(sets=('far',)),\n"
        "    )\n"
        "    return c\n"
    )
    flags = [f"--suite={tmp_path}/suite.py", f"--out={tmp_path}/out"]
    monkeypatch.setenv("JBIAS_OWN_CODE", "1")
    with contextlib.chdir(ROOT):
        assert evaluate.main([f"--checkpoint={tmp_path}/run", *flags]) in (0, 1)
    measured = results.read(f"{tmp_path}/out/*")
    assert {"accuracy", "called_red"} <= set(measured["metric"])
    share = measured[measured["metric"] == "called_red"].iloc[0]
    last = shares[shares["step"] == share["step"]].iloc[0]
    assert 0 <= share["count"] <= share["n"] == 40 and last["n"] == 160


def test_files_imported_by_users_files_have_digests(tmp_path, monkeypatch):
    """Imports are followed next to the file, in the working directory, and into packages."""
    folder, working_directory = tmp_path / "code", tmp_path / "here"
    for path, text in {
        folder / "mine.py": "import numpy, beside\nfrom package.inner import f\n",
        folder / "beside.py": "def g():\n    import in_here\n",
        folder / "other.py": "import beside\n",
        folder / "package" / "__init__.py": "",
        folder / "package" / "inner.py": "f = 1\n",
        working_directory / "in_here.py": "import beside\n",
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "package" / ".#inner.py").symlink_to("an-editor-has-it-open")
    monkeypatch.chdir(working_directory)
    config = {"algo": {"name": f"{folder / 'mine.py'}:make"}}
    digests = extensions.import_digests(config)
    assert {pathlib.Path(path).name for path in digests} == {
        "beside.py",
        "__init__.py",
        "inner.py",
        "in_here.py",
    }
    (folder / "package" / "inner.py").write_text("f = 2\n")
    digests_again = extensions.import_digests(config)
    changed = [path for path in digests if digests_again[path] != digests[path]]
    assert [pathlib.Path(path).name for path in changed] == ["inner.py"]
    assert extensions.import_digests({"algo": {"name": "erm"}}) == {}
