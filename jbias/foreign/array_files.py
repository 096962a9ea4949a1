"""Arrays in files of NumPy, which may be damaged or say more than they hold."""

import os
import zipfile

import numpy as np

from jbias.foreign import limits, opening


def read(path: str | os.PathLike, **growth: int) -> dict[str, np.ndarray]:
    """Reads all arrays of an .npz file; `growth` goes to `limits.most`.

    ValueError, the reason alone, where it cannot.
    """
    try:
        with opening.file(path) as raw:  # Here: numpy leaves what it cannot read open.
            with zipfile.ZipFile(raw) as members:
                told = sum(member.file_size for member in members.infolist())
            limits.growth(os.path.getsize(path), told, **growth)
            raw.seek(0)
            with np.load(raw, allow_pickle=False) as file:
                return {key: file[key] for key in file.files}
    # Of damaged bytes numpy, zipfile and zlib raise anything.
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise ValueError(reason) from error
