"""The rows of CSV and Parquet files as texts, with the line that each row ends on."""

import codecs
import csv
import io
import os
from collections.abc import Iterator
from typing import NamedTuple

from jbias.data import base
from jbias.untrusted import limits, opening


def read(path: str) -> Iterator[tuple[str, list[str]]]:
    """Yield ("file:line", cells) of a table: first the header, then each row.

    Cells are texts as in the file; empty lines are skipped. Lines of a Parquet file are counted
    as in a CSV file of the table. ValueError for a file that is damaged, binary or larger than
    limits.MAX_TABLE_BYTES, and for a row with more or fewer cells than the header.
    """
    size = os.path.getsize(opening.require_regular(path))
    if size > limits.MAX_TABLE_BYTES:
        raise ValueError(
            f"{path}: must have at most {limits.MAX_TABLE_BYTES:,} bytes ({limits.DOCS}), "
            f"got {size:,}; split it, or leave out columns that are not decisions"
        )
    is_parquet = path.lower().endswith(".parquet")
    file = _open_parquet(path) if is_parquet else opening.open_text(path, newline="")
    with file:
        table = csv.reader(file, strict=True)
        width = 0
        try:
            for cells in table:
                where = f"{path}:{table.line_num}"
                if "\0" in "".join(cells):
                    raise csv.Error("zero bytes")
                if not cells:
                    continue
                if width and len(cells) != width:
                    raise ValueError(
                        f"{where}: must have {width} cells as the header; the file is "
                        "damaged or cut off"
                    )
                width = len(cells)
                yield where, cells
        except (UnicodeDecodeError, csv.Error) as error:
            reason = base.one_line(error)
            remedy = _remedy(path, reason)
            raise ValueError(
                f"{path}: must be CSV in UTF-8 ({reason}){remedy}"
            ) from None


def _remedy(path: str, reason: str) -> str:
    """Return advice for a file that csv cannot read, with "; " before it; "" for none."""
    with open(path, "rb") as file:
        start = file.read(4)
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "; the file is in UTF-16, save it in UTF-8"
    if "codec can't decode" in reason:
        return "; save it in UTF-8"
    if "field larger than" in reason:
        return (
            f"; a cell may have {csv.field_size_limit():,} letters: shorten it, or leave its "
            "column out"
        )
    is_cut = "unexpected end of data" in reason
    return "; the file is damaged or cut off" if is_cut else ""


def _open_parquet(path: str) -> io.StringIO:
    """Return a Parquet file as CSV; ValueError for a damaged file or one too large unpacked."""
    import pandas as pd

    size = parquet_size(path)
    try:
        limits.check_growth(os.path.getsize(path), size.unpacked)
        frame = pd.read_parquet(path)
        # An index with a name, such as that of the images, is a column.
        if all(frame.index.names) and not {*frame.index.names} & {*frame.columns}:
            frame = frame.reset_index()
        return io.StringIO(frame.to_csv(index=False))
    except (OSError, ValueError) as error:
        raise _no_parquet(path, error) from None


class ParquetSize(NamedTuple):
    """The size of a Parquet file's table."""

    num_columns: int
    num_rows: int
    unpacked: int  # Bytes.


def parquet_size(path: str) -> ParquetSize:
    """Return the size of a Parquet file's table, from its metadata; ValueError for other files."""
    import pyarrow.parquet

    try:
        metadata = pyarrow.parquet.read_metadata(path)
        unpacked = sum(
            metadata.row_group(i).total_byte_size
            for i in range(metadata.num_row_groups)
        )
    except (OSError, ValueError) as error:
        raise _no_parquet(path, error) from None
    return ParquetSize(metadata.num_columns, metadata.num_rows, unpacked)


def _no_parquet(path: str, error: Exception) -> ValueError:
    """Return the error for a file that is no table in Parquet."""
    reason = base.one_line(error)
    return ValueError(
        f"{path}: must be a Parquet file ({reason}); write it again, or as CSV"
    )
