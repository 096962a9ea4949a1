"""Class names come out of files that others wrote: none leads out of a folder."""

import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from jbias import prepare
from tests import cases


@cases.each("name", ["../../away", "/away", "..", ".hidden", "a\0b", ""])
def test_a_class_that_leads_elsewhere_is_refused(tmp_path, capsys, name):
    out = io.BytesIO()
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(out, "PNG")
    features = {"label": {"names": ["cat", name], "_type": "ClassLabel"}}
    schema = pa.schema(
        [("image", pa.binary()), ("label", pa.int64())],
        {"huggingface": json.dumps({"info": {"features": features}})},
    )
    (src := tmp_path / "in" / "src").mkdir(parents=True)
    table = pa.table([[out.getvalue()] * 2, [0, 1]], schema=schema)
    pq.write_table(table, src / "train.parquet")
    before = sorted(tmp_path.rglob("*"))
    argv = ["--data=folder", f"--root={src}", "--split=train", "--size=8"]
    where = f"--out={tmp_path}/in/out"
    assert prepare.main(["corrupt", *argv, where, "--names=contrast"]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and "must have a name that a folder can have" in told
    assert sorted(tmp_path.rglob("*")) == before
