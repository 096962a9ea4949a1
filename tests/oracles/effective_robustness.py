"""Write effective_robustness.csv: accuracies and standard models of Taori et al., NeurIPS 2020.

git clone https://github.com/modestyachts/imagenet-testbed; git -C imagenet-testbed checkout 0170eec
python tests/oracles/effective_robustness.py imagenet-testbed > tests/oracles/effective_robustness.csv

The rows are the standard models of their fits and four other models (MIT licence).
"""

import pathlib
import re
import sys

import pandas as pd

COLUMNS = {
    "val": "val",
    "val-on-imagenet-r-classes": "val_r",
    "val-on-objectnet-classes": "val_objectnet",
    "imagenetv2-matched-frequency-format-val": "v2",
    "imagenet-sketch": "sketch",
    "imagenet-r": "r",
    "objectnet-1.0-beta": "objectnet",
}
OTHERS = (
    "resnet50",
    "resnet50_trained_on_SIN",
    "resnet50_l2_eps3_robust",
    "efficientnet-l2-noisystudent",
)


def main(folder: pathlib.Path) -> None:
    frame = pd.read_csv(folder / "robustness_top1s.csv").set_index("model")
    types = (folder / "plotting" / "model_types.py").read_text()
    known = set(re.findall(r"'([^']+)': ModelTypes\.STANDARD", types))
    dropped = frame.index.str.contains("aws|batch64|subsample")
    standard = frame.index.isin(known) & ~dropped
    frame = frame[[*COLUMNS]].rename(columns=COLUMNS).assign(standard=standard)
    selected = frame[standard | frame.index.isin(OTHERS)].dropna(subset=["val", "v2"])
    print(selected.to_csv(lineterminator="\n"), end="")


main(pathlib.Path(sys.argv[1]))
