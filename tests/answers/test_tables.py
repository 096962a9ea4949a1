"""Files of decisions are read as observers without images; doubtful files are refused."""

import csv
import os
import pathlib
import subprocess
import sys

import pandas as pd
import pytest

from jbias.answers import tables
from tests.answers import published

IMAGES = ("airplane1-bicycle2", "bear3-bear1", "cat7-elephant1", "dog3-clock1")


def write(path, rows, header=("image", "pred_label")):
    """Write a CSV file and return its path as text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(header)
        table.writerows(rows)
    return str(path)


def refusal(path, **options):
    """Return the message with which a file is refused; it is one line that names the file."""
    with pytest.raises(ValueError) as error:
        tables.read(path, **options)
    message = str(error.value)
    assert "\n" not in message
    assert os.path.basename(path) in message
    return message


@published.needed
def test_all_published_files_are_read_unmodified_in_two_seconds_without_jax():
    """The seconds are of reading, in a process of its own: the best of three readings."""
    code = (
        "import sys, time\n"
        "from jbias.answers import tables\n"
        "def seconds():\n"
        "    start = time.perf_counter()\n"
        "    names = [x.name for x in tables.read(sys.argv[1:])]\n"
        "    assert len(set(names)) == 57, names\n"
        "    return time.perf_counter() - start\n"
        "print(min(seconds() for _ in range(3)))\n"
        "assert not {'jax', 'flax', 'torch'} & set(sys.modules)\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", code, str(published.VLM), str(published.PEOPLE)],
        check=True,
        capture_output=True,
        text=True,
        cwd=pathlib.Path(__file__).parents[2],
    )
    assert float(process.stdout) < 2


@published.needed
def test_shape_biases_are_those_that_pandas_counts():
    """Ten files and more: numbers of shape and texture decisions, computed by pandas alone."""
    paths = [*published.VLM.rglob("*.csv"), *published.PEOPLE.glob("*.csv")]
    read = {x.path: x for x in tables.read([str(published.VLM), str(published.PEOPLE)])}
    assert len(paths) == len(read) == 57
    for path in paths:
        table = pd.read_csv(path, dtype=str, keep_default_na=False)
        is_human = "object_response" in table
        decided = table["object_response" if is_human else "pred_label"]
        names = table["imagename" if is_human else "image"]
        cues = names.str.extract(r"([a-z]+)\d+-([a-z]+)\d+(?:\.png)?$")
        conflict = cues[0] != cues[1]
        observer = read[str(path)]
        bias = observer.shape_bias
        assert bias.n_shape == (conflict & (decided == cues[0])).sum()
        assert bias.n_texture == (conflict & (decided == cues[1])).sum()
        assert observer.accuracy == (decided == cues[0]).mean()
        assert observer.is_unanswered.sum() == decided.isin(["na", "None", ""]).sum()
        assert observer.is_conflict.sum() == conflict.sum() == 1200
    assert (
        round(
            read[str(published.PEOPLE / "cue-conflict_resnet50.csv")].shape_bias.value,
            4,
        )
        == 0.2207
    )
