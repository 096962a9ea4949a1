"""Arrays in files of NumPy, which may be damaged or say more than they hold."""

import os
import zipfile

import numpy as np

_RATIO = 2000  # Zip packs zeros a thousandfold; what says more lies.


def read(path: str) -> dict[str, np.ndarray]:
    """Reads all arrays of an .npz file; ValueError, the reason alone, where it cannot."""
    try:
        size = os.path.getsize(path)
        with open(path, "rb") as raw, zipfile.ZipFile(raw) as members:
            told = sum(member.file_size for member in members.infolist())
        if told > _RATIO * size:
            raise ValueError(f"{size} bytes that would become {told}")
        # Opened here: numpy leaves what it cannot read open.
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            return {key: file[key] for key in file.files}
    # Of damaged bytes numpy, zipfile and zlib raise anything.
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise ValueError(reason) from error
