"""Class names from files of unknown origin never lead out of the output folder."""

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
    encoded = io.BytesIO()
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(encoded, "PNG")
    features = {"label": {"names": ["cat", name], "_type": "ClassLabel"}}
    schema = pa.schema(
        [("image", pa.binary()), ("label", pa.int64())],
        {"huggingface": json.dumps({"info": {"features": features}})},
    )
    src = tmp_path / "in" / "src"
    src.mkdir(parents=True)
    table = pa.table([[encoded.getvalue()] * 2, [0, 1]], schema=schema)
    pq.write_table(table, src / "train.parquet")
    files_before = sorted(tmp_path.rglob("*"))
    argv = ["--data=folder", f"--root={src}", "--split=train", "--size=8"]
    out_option = f"--out={tmp_path}/in/out"
    assert prepare.main(["corrupt", *argv, out_option, "--names=contrast"]) == 2
    error_text = capsys.readouterr().err
    assert (
        error_text.count("\n") == 1
        and "must have a name that a folder can have" in error_text
    )
    assert sorted(tmp_path.rglob("*")) == files_before
