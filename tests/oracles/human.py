"""Write human.npz: people's and networks' answers, and the results of the authors' code.

    git clone https://github.com/bethgelab/model-vs-human
    git -C model-vs-human checkout 79ed7cd
    python -m tests.oracles.human model-vs-human NETWORKS

Needs numpy, pandas and this package. NETWORKS is a folder with the answers of three networks to the
cue-conflict set, cue-conflict_<network>.csv, in the same form. The numbers are those of
plotting/analyses.py, called for each condition and pair, as plotting/plot.py does. The file
has the columns that the numbers need: response, category and texture as indices into the
alphabetical list of the 16 classes (-1 is no answer), and the condition.

The answers are published data of Geirhos et al. (https://arxiv.org/abs/1811.12231,
https://arxiv.org/abs/2106.07411), kept here unchanged but for their form; cite these.
"""

import collections
import glob
import pathlib
import runpy
import sys
import tempfile
import types

import numpy as np
import pandas as pd

from jbias.data import class_maps

CLASSES = [*class_maps.geirhos16()]
CONTRAST = ("c50", "c30", "c15", "c10", "c05")  # Conditions that are analysed.


def authors(root: pathlib.Path) -> types.SimpleNamespace:
    """Return the authors' module without its package, with an indexing fix for new pandas."""
    text = (root / "modelvshuman/plotting/analyses.py").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("from ")]
    text = "from abc import ABC, abstractmethod\nfrom copy import deepcopy\n"
    text += "\n".join(lines)
    text = text.replace("hc.get_human_object_recognition_categories()", "None")
    text = text.replace(".sum(axis=0)[np.newaxis, :]", ".sum(axis=0).values[None]")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "analyses.py"
        path.write_text(text)
        return types.SimpleNamespace(**runpy.run_path(str(path)))


def read(paths: list[str]) -> list[pd.DataFrame]:
    frames = []
    for path in paths:
        frame = pd.read_csv(path)
        frame.columns = [name.lower() for name in frame.columns]
        tokens = frame["imagename"].str.split("_")
        frame["image_id"] = tokens.str[-2] + "_" + tokens.str[-1]
        frame["condition"] = frame["condition"].astype(str)
        frames.append(frame.sort_values("image_id", ignore_index=True))
    return frames


def compared(code, subject, people, conditions) -> dict[str, float]:
    values_by_name = collections.defaultdict(list)
    for condition in conditions:
        for person in people:
            first, second = subject, person
            if condition is not None:
                first = subject[subject["condition"] == condition]
                second = person[person["condition"] == condition]
            results = code.ErrorConsistency().analysis(first, second)
            results |= code.SixteenClassAccuracyDifference().analysis(first, second)
            for name, value in results.items():
                values_by_name[name].append(value)
    return {name: float(np.mean(values)) for name, values in values_by_name.items()}


def main(root: str, networks: str) -> None:
    code, out = authors(pathlib.Path(root)), {}
    raw = f"{root}/raw-data"
    for name, paths, conditions in (
        (
            "cue-conflict",
            sorted(glob.glob(f"{networks}/cue-conflict_[rd]*.csv"))
            + sorted(glob.glob(f"{raw}/cue-conflict/*_subject-*.csv")),
            (None,),
        ),
        ("contrast", sorted(glob.glob(f"{raw}/contrast/*_subject-*.csv")), CONTRAST),
    ):
        frames = read(paths)
        first = frames[0]
        ids = {word: i for i, word in enumerate(CLASSES)} | {"na": -1}
        out[f"{name}/subject"] = [frame["subj"][0] for frame in frames]
        out[f"{name}/category"] = first["category"].map(ids).astype(np.int8)
        out[f"{name}/condition"] = first["condition"].to_numpy(str)
        out[f"{name}/response"] = np.array(
            [frame["object_response"].map(ids).astype(np.int8) for frame in frames]
        )
        if name == "cue-conflict":
            word = first["imagename"].str.extract(r"-([a-z]+)\d*\.png$")[0]
            out[f"{name}/texture"] = word.map(ids).astype(np.int8)
            bias = code.ShapeBias().analysis(pd.concat(frames[3:]))["shape-bias"]
            out["people/shape-bias"] = bias
        people = frames[-10 if name == "cue-conflict" else 1 :]
        for key, value in compared(code, first, people, conditions).items():
            out[f"{name}/{key}"] = value
        out[f"{name}/entropy"] = code.Entropy().analysis(first)["entropy"]
        matrix = code.ConfusionAnalysis().analysis(people[0], categories=CLASSES)
        out[f"{name}/confusion"] = np.roll(matrix.to_numpy(), -1, axis=0)
    path = pathlib.Path(__file__).with_name("human.npz")
    np.savez_compressed(path, **{key: np.asarray(x) for key, x in out.items()})


if __name__ == "__main__":
    main(*sys.argv[1:])
