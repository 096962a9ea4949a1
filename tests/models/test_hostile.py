"""Hostile files are refused in one line, quickly, in little memory; none runs code."""

import ast
import itertools
import json
import pathlib
import pickle
import sys
import time
import tracemalloc

import numpy as np
import pytest

from jbias import models
from jbias.models import state_dicts, torch_files
from jbias.untrusted import pickles as machine
from tests import cases
from tests.models import hostile

ORACLES = pathlib.Path(__file__).parents[1] / "oracles"
CANARY = "canary-of-hostile-files"
PICKLES, ARCHIVES = hostile.pickles(CANARY), hostile.archives(CANARY)
TABLES = hostile.tables()


@pytest.fixture
def assert_refused(tmp_path, monkeypatch):
    """Read a file in a folder with a canary; return the message of the refusal."""
    monkeypatch.chdir(tmp_path)

    def read(name: str, data: bytes, match: str, peak: int = 2**25) -> None:
        path = tmp_path / name
        path.write_bytes(data)
        modules_before = set(sys.modules)
        tracemalloc.start()
        began = time.process_time()
        try:
            with pytest.raises(ValueError, match=match) as refusal:
                state_dicts.read(path)
            took, most = time.process_time() - began, tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        message = str(refusal.value)
        assert message.startswith(f"{path}: ") and "\n" not in message
        assert len(message) < 1000
        assert took < 5 and most < peak
        assert [p.name for p in tmp_path.iterdir()] == [name]  # No canary.
        assert not {"this", "antigravity"} & (set(sys.modules) - modules_before)

    return read


@pytest.mark.slow
@cases.each("form", ["archive", "stream"])
@cases.each("case", list(PICKLES))
def test_pickles(case, form, assert_refused):
    pickled, match = PICKLES[case]
    if form == "stream" and case in ("far_tensor", "before", "backwards", "axes"):
        numbers = b"\x80\x02]X\x01\x00\x00\x000a." + (4).to_bytes(8, "little")
        assert_refused("x.pth", hostile.stream(pickled, numbers + bytes(16)), match)
    elif form == "stream" and case == "big_storage":
        numbers = b"\x80\x02]X\x01\x00\x00\x000a." + (2**40).to_bytes(8, "little")
        assert_refused("x.pth", hostile.stream(pickled, numbers + bytes(16)), match)
    elif form == "stream":
        assert_refused("x.pth", hostile.stream(pickled, b"\x80\x02]."), match)
    else:
        assert_refused("x.pth", hostile.archive(pickled), match)


def test_a_pickled_module_is_refused_with_advice_that_fits_one(assert_refused):
    """The advice names state_dict() and a Python file, not an entry "state_dict"."""
    pickled = hostile.call_pickle("torchvision.models.resnet", "ResNet", "")
    advice = r"torchvision.models.resnet.ResNet.*x\.state_dict\(\).*module.*my.py:net"
    assert_refused("x.pth", hostile.archive(pickled), advice)


def test_a_storage_that_is_not_there(assert_refused):
    pickled = hostile.state(hostile.tensor())
    data = hostile.stream(pickled, b"\x80\x02].")
    assert_refused("x.pth", data, "in storage 0, which is not there")


def test_keys_of_storages_that_nest(tmp_path):
    """Nested keys are refused without a hash, which would overflow C's stack."""
    keys = b"\x80\x02])" + b"\x85" * 200_000 + b"a."
    path = tmp_path / "x.pth"
    path.write_bytes(hostile.stream(hostile.state(), keys))
    with pytest.raises(ValueError, match="x.pth: .* nests over 100 deep"):
        state_dicts.read(path)


@cases.each("kind", ["list", "tuple"])
@cases.each("place", ["keys", "key", "system", "magic", "storage"])
def test_contents_that_double_59_times_are_refused_quickly(kind, place, tmp_path):
    """Neither hash nor repr of nested objects of a pickle is computed."""
    nested = hostile.doubled_pickle(kind)
    dumped = [pickle.dumps(x, 2) for x in (torch_files._MAGIC, torch_files._PROTOCOL)]
    system, tree = pickle.dumps({}, 2), pickle.dumps({"a": 1}, 2)
    keys = hostile.PROTO + b"](" + nested + b"e."
    if place == "keys":
        keys = hostile.PROTO + nested + b"."
    elif place == "system":
        system = hostile.PROTO + nested + b"."
    elif place == "magic":
        dumped[0] = hostile.PROTO + nested + b"."
    elif place == "storage":
        tree = (
            hostile.PROTO + b"(" + hostile.text("storage") + b"ctorch\nFloatStorage\n"
        )
        tree += nested + hostile.text("cpu") + b"K\x01tQ."
    path = tmp_path / "a.pth"
    path.write_bytes(b"".join(dumped) + system + tree + keys)
    with hostile.ending_within(20), pytest.raises(ValueError) as error:
        torch_files.load(path)
    assert "\n" not in str(error.value) and len(str(error.value)) < 1000


@pytest.mark.slow
def test_damage_is_refused_or_read(tmp_path):
    """Changed bytes cause no error other than ValueError."""
    rng = np.random.default_rng(0)
    counts = {True: 0, False: 0}
    for form in ("published.pth.tar", "published_robust.pt") * 100:
        data = bytearray((ORACLES / form).read_bytes())
        for at in rng.integers(0, len(data), 3):
            data[at] = rng.integers(256)
        path = tmp_path / "x.pth"
        path.write_bytes(data)
        try:
            counts[bool(state_dicts.read(path).arrays)] += 1
        except ValueError:
            counts[False] += 1
    assert min(counts.values()) > 10


@cases.each("case", list(ARCHIVES))
def test_archives(case, assert_refused):
    archive, match = ARCHIVES[case]
    assert_refused("x.pt", archive, match)


@cases.each("case", list(TABLES))
def test_tables(case, assert_refused):
    table, match = TABLES[case]
    assert_refused("x.safetensors", table, match)


CHAINS = ("".join(c) for c in itertools.product(state_dicts.PREFIXES[:7], repeat=4))


@pytest.mark.slow
@cases.each(
    ("names", "match"),
    [
        ((f"{chain}fc.weight" for chain in CHAINS), r"got 2,401, \d+ and 2,801"),
        ((f"layer{i}.weight" for i in range(20_000)), "got 20,000, "),
        (["a." * 2**21], "got 1, 4,194,304 and 1"),
        ([".projection_head" * 2**18], "got 1, 4,194,304 and 1"),
    ],
)
def test_names_that_take_long_to_look_through(names, match, assert_refused):
    """The time to read a file grows at most linearly with its size."""
    entries = {name: hostile.entry(0, 0, shape=(0,)) for name in names}
    assert_refused(
        "x.safetensors", hostile.safetensors(entries, b""), match, peak=2**28
    )


@pytest.mark.slow
def test_as_many_names_as_are_taken_are_looked_through_in_time(tmp_path):
    """The largest accepted number of names and prefixes is matched in time."""
    chains = ["", *state_dicts.PREFIXES[:5]]
    chains += [
        "".join(pair) for pair in itertools.product(state_dicts.PREFIXES[:5], repeat=2)
    ]
    names = [f"{c}stage{i}.block{i % 7}.norm" for c in chains for i in range(260)]
    entries = {name: hostile.entry(0, 0, shape=(0,)) for name in names}
    path = tmp_path / "x.safetensors"
    path.write_bytes(hostile.safetensors(entries, b""))
    began = time.process_time()
    with pytest.raises(ValueError, match="has no entry of any network"):
        models.load(path)
    assert time.process_time() - began < 60


def test_npz_that_grows(assert_refused):
    assert_refused("x.npz", hostile.npz_bomb(), "would become")


def test_pairs_named_by_numbers(assert_refused):
    """Keys that are numbers, which could all collide, are refused."""
    pickled = b"\x80\x02ccollections\nOrderedDict\n](K\x01N\x86e\x85R."
    assert_refused(
        "x.pth", hostile.archive(pickled), "OrderedDict wrong arguments: TypeError"
    )


def test_the_sound_ones_are_read(tmp_path):
    """The valid files from which the hostile files are made can be read."""
    good = hostile.state(hostile.tensor())
    numbers = b"\x80\x02]X\x01\x00\x00\x000a." + (4).to_bytes(8, "little") + bytes(16)
    for name, data in {
        "a.pth": hostile.archive(good),
        "b.pth": hostile.stream(good, numbers),
        "c.safetensors": hostile.safetensors({"x0.weight": hostile.entry(0, 16)}),
    }.items():
        (tmp_path / name).write_bytes(data)
        arrays = state_dicts.read(tmp_path / name).arrays
        assert {k: v.shape for k, v in arrays.items()} == {"x0.weight": (4,)}


def test_a_state_in_several_places_is_read_once(tmp_path):
    """Five nested dicts, each with the next under every known name, count once."""
    pickled = hostile.state(hostile.tensor())[:-1]
    for level in range(5):
        put, get = b"q" + bytes([100 + level]), b"h" + bytes([100 + level])
        names = b"".join(hostile.text(name) + get for name in state_dicts.CONTAINERS)
        pickled += put + b"}(" + names + b"u"
    path = tmp_path / "x.pth"
    path.write_bytes(hostile.archive(pickled + b"."))
    assert set(state_dicts.read(path).arrays) == {"x0.weight"}


def test_stretched_tensors_take_no_memory(tmp_path):
    """Tensors with strides of 0, four numbers shown as 2^40, are not copied."""
    path = tmp_path / "x.pth"
    stretched = hostile.tensor(shape=(2**20, 2**20), strides=(0, 0))
    path.write_bytes(hostile.archive(hostile.state(stretched)))
    assert state_dicts.read(path).arrays["x0.weight"].shape == (2**20, 2**20)
    with pytest.raises(ValueError, match="has no entry of resnet18"):
        models.load(path, "resnet18")


@cases.each(
    "options",
    [
        {"classes": "abc"},
        {"classes": -3},
        {"classes": {}},
        {"classes": 3, "mean": "a"},
        {"classes": 3, "depths": [10**7, 2, 2, 2]},
        {"classes": 3, "width": 10**12},
    ],
)
def test_metadata_that_make_no_network(assert_refused, options):
    metadata = json.dumps({"model": "resnet18", "names": "own", "options": options})
    entries = {
        "params/fc/bias": hostile.entry(0, 16),
        "__metadata__": {"jbias": metadata},
    }
    path = pathlib.Path("x.safetensors")
    path.write_bytes(hostile.safetensors(entries))
    with pytest.raises(
        ValueError, match="x.safetensors: .* (make a resnet18|a network)"
    ):
        models.load(path)


def test_no_name_of_a_pickle_is_imported(monkeypatch):
    """The module that reads pickles has no import and no call by a name of the pickle."""
    used = set()
    files = (torch_files.__file__, machine.__file__)
    texts = [pathlib.Path(file).read_text() for file in files]
    for node in ast.walk(ast.parse("\n".join(texts))):
        if isinstance(node, ast.Name | ast.Attribute):
            used.add(node.id if isinstance(node, ast.Name) else node.attr)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            used |= {name.name for name in node.names}
    assert "_HOSTILE_MODULES" in used  # Messages name hostile modules as text.
    for word in ("__import__", "importlib", "getattr", "eval", "exec", "Unpickler"):
        assert word not in used and "pickle" not in used
