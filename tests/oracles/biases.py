"""Makes biases.npz: raw results of 48 networks, and the two tables printed of them.

    python tests/oracles/biases.py benchmark.csv accuracy.csv bias.csv

benchmark.csv is raw-data of https://github.com/paulgavrikov/biases_vs_generalization at
9168ac8; the other two are the tables of the paper's appendix (Gavrikov and Keuper, CVPR
2024, https://arxiv.org/abs/2404.01509), with a column model_id. Kept are the columns that
the tables are made of, as float32. The authors license their results under CC BY-SA 4.0
(https://creativecommons.org/licenses/by-sa/4.0/), and so is biases.npz, not by jbias's
licence.
"""

import pathlib
import sys

import numpy as np
import pandas as pd

KEPT = (
    r"top1_acc/(imagenet(-v2|-real|-a|-r|-sketch)?|stylized|PGD-40/low|\w+_[1-5])"
    r"|shape-bias|metric/bandpass/[LH]FC/0\.[1-5]|metric/criticalband/\w+"
)


def main(benchmark: str, accuracy: str, bias: str) -> None:
    printed = pd.read_csv(accuracy), pd.read_csv(bias)
    models = printed[0]["model_id"]
    assert (models == printed[1]["model_id"]).all()
    raw = pd.read_csv(benchmark).set_index("model").loc[models]
    raw = raw[[name for name in raw.columns if pd.Series(name).str.fullmatch(KEPT)[0]]]
    out = {"models": models.to_numpy(str)}
    tables = (raw, *(one.iloc[:, 3:] for one in printed))
    for name, table in zip(("raw", "accuracy", "bias"), tables, strict=True):
        out[f"{name}/columns"] = np.array(table.columns, str)
        out[name] = table.to_numpy(np.float32)
    path = pathlib.Path(__file__).with_name("biases.npz")
    np.savez_compressed(path, **out)


if __name__ == "__main__":
    main(*sys.argv[1:])
