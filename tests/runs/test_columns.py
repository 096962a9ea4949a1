"""Joined columns equal the columns that pandas makes of all rows."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from jbias.runs import columns


def table(words, counts, values) -> pa.Table:
    coded = pa.chunked_array([pa.array(part).dictionary_encode() for part in words])
    return pa.table(
        {
            "word": coded,
            "count": pa.array(counts, pa.int64()),
            "step": pa.array(range(len(counts)), pa.int64()),
            "value": pa.array(values, pa.float64()),
        }
    )


@pytest.mark.parametrize("num_words", [2, 127, 128, 129, 300])
def test_joined_columns_equal_pandas(num_words):
    """Words in any order, of several workdirs, with more than 256 words, and nulls."""
    rng = np.random.default_rng(num_words)
    tables, frames = [], []
    for size in (3 * num_words, 1, 40):
        words = [f"w{i}" for i in rng.permutation(3 * num_words)[:size] % num_words]
        counts = [None if i % 7 == 3 else int(i) for i in range(len(words))]
        values = [None if i % 5 == 2 else i / 3 for i in range(len(words))]
        halves = [words[: len(words) // 2], words[len(words) // 2 :]]
        halves = [half for half in halves if half]
        tables.append(columns.shrink(table(halves, counts, values), ["count"]))
        frame = pd.DataFrame(
            {
                "word": words,
                "count": pd.array(counts, "Int64"),
                "step": range(len(words)),
                "value": np.array(values, float),
            }
        )
        frames.append(frame)
    expected = pd.concat(frames, ignore_index=True)
    expected["word"] = expected["word"].astype("category")
    joined = pd.DataFrame(dict(columns.join(tables)), copy=False)
    pd.testing.assert_frame_equal(joined, expected)
    assert joined["word"].cat.codes.dtype == expected["word"].cat.codes.dtype
    assert not any(tables)  # Their memory is free.


def test_codes_of_few_words_take_one_byte():
    shrunk = columns.shrink(table([["b", "a", "b"]], [1, 2, 3], [0.5] * 3), ["count"])
    assert shrunk["word"].codes.dtype == np.uint8
    assert not shrunk["count"].is_missing.any()
