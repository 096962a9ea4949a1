"""Sets written by TensorFlow Datasets (TFDS) are read without TensorFlow, pixel for pixel."""

import json
import pathlib
import shutil
import sys

import pytest

from jbias import data
from tests import cases, tfds_sets


@pytest.fixture(scope="module")
def prepare(tmp_path_factory):
    """Function prepare(format, n) that returns a data_dir with a set of n images, written
    by TFDS.
    """
    tiny = tfds_sets.tiny_builder()

    def make(form, n=9):
        tiny.n, folder = n, tmp_path_factory.mktemp(form)
        tiny(data_dir=str(folder), file_format=form).download_and_prepare()
        return folder

    return make


@pytest.fixture(scope="module")
def prepared(prepare):
    return {form: prepare(form) for form in ("array_record", "parquet")}


def load(root, builder="tiny", split="train"):
    return data.load("tfds", split, root=str(root), builder=builder, size=16)


@cases.each("form", ["array_record", "parquet"])
def test_sets_written_by_tfds_are_read(prepared, form):
    source = load(prepared[form])
    assert (source.classes, len(source)) == (tuple(tfds_sets.CLASSES), 9)
    assert (source.cite, source.note) == ("Some, 2020", "")
    expected = {tfds_sets.picture(i)[0].tobytes(): i % 3 for i in range(9)}
    examples = [source[i] for i in range(9)]
    loaded = {example["image"].tobytes(): example["label"] for example in examples}
    assert loaded == expected
    (prepared[form] / "tiny" / "0.9.0").mkdir(exist_ok=True)  # The latest counts.
    assert len(load(prepared[form], split="train[:50%]")) == 6
    assert load(prepared[form], "tiny:1.2.0").fingerprint == source.fingerprint
    assert "tensorflow" not in sys.modules


def test_examples_equal_those_of_tfdss_data_source(prepared):
    """File names, encoded images and labels equal those of TFDS's own reader."""
    import tensorflow_datasets as tfds

    source = load(prepared["array_record"])
    builder = tfds.builder_from_directory(prepared["array_record"] / "tiny" / "1.2.0")
    decoders = {"image": tfds.decode.SkipDecoding()}
    tfds_source = builder.as_data_source("train", decoders=decoders)
    loaded = {
        source.files[i].encode(): (source.store.open(i).read(), source[i]["label"])
        for i in range(len(source))
    }
    assert loaded == {
        example["file_name"]: (example["image"], example["label"])
        for example in tfds_source
    }


def test_a_split_that_lacks_examples_is_refused(prepare):
    """TFDS itself drops examples where it writes more than a hundred to a Parquet shard."""
    root = prepare("parquet", 230)
    with pytest.raises(ValueError, match="must hold all 230 examples, got 1.*again: "):
        load(root)
    assert len(load(prepare("array_record", 230))) == 230


def copy_with_metadata(root, tmp_path, change) -> pathlib.Path:
    """Return a copy of a prepared set with changed metadata of TFDS."""
    copy = shutil.copytree(root, tmp_path / "copy")
    path = copy / "tiny/1.2.0/dataset_info.json"
    path.write_text(change(path.read_text()))
    return copy


@cases.each(
    ("change", "message"),
    [
        (
            lambda text: text.replace("array_record", "tfrecord", 1),
            "must be in ArrayRecord or Parquet, got tfrecord, .* --name=tiny",
        ),
        (
            lambda text: json.dumps({**json.loads(text), "fileFormat": ""}),
            "got tfrecord",
        ),
        (lambda text: text[:40], "must be a set that TFDS prepared: ParseError"),
        (lambda text: text.replace("train", "trial"), "got 'train'; did you mean"),
    ],
)
def test_bad_metadata_is_refused(prepared, tmp_path, change, message):
    root = copy_with_metadata(prepared["array_record"], tmp_path, change)
    with pytest.raises(ValueError, match=message) as refused:
        load(root)
    assert "\n" not in str(refused.value)


def test_a_folder_imports_nothing(prepared, tmp_path, monkeypatch):
    """TFDS imports the module named in features.json; jbias does not."""
    root = shutil.copytree(prepared["array_record"], tmp_path / "copy")
    path = root / "tiny/1.2.0/features.json"
    path.write_text(path.read_text().replace("tensorflow_datasets.core", "evil_module"))
    (tmp_path / "evil_module.py").write_text("raise SystemExit('it ran')")
    monkeypatch.syspath_prepend(tmp_path)
    assert len(load(root)) == 9


def test_missing_sets_are_refused(tmp_path):
    (tmp_path / "many" / "one").mkdir(parents=True)
    (tmp_path / "bare" / "1.0.0").mkdir(parents=True)
    for name, message in (
        ("bare", "must be a set that TFDS prepared: DatasetInfoFileError"),
        ("many", "got one; a config belongs to the builder"),
        ("mayn", "did you mean 'many'"),
    ):
        with pytest.raises(ValueError, match=message):
            load(tmp_path, name)
