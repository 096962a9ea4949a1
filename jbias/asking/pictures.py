"""An image file as the data address of a chat request.

Files in a format that chat endpoints read (PNG, JPEG, WebP, GIF) are sent byte for byte. Other
files are sent as PNG, with the same pixels.
"""

import base64
import hashlib
import io
from typing import NamedTuple

from jbias.untrusted import opening

_SENT_AS_IS = ("PNG", "JPEG", "WEBP", "GIF")


class Picture(NamedTuple):
    """An image as it is sent."""

    address: str  # "data:image/png;base64,...".
    width: int
    height: int
    sha256: str  # Of the file.


def size(path: str) -> tuple[int, int]:
    """Return the width and height of an image file; ValueError for a damaged file."""
    with opening.explain_errors(path, "an image"), opening.open_image(path) as image:
        return image.size


def load(path: str) -> Picture:
    """Return an image file as it is sent; ValueError for a damaged file."""
    with opening.open_binary(path) as file:
        content = file.read()
    digest = hashlib.sha256(content).hexdigest()
    with (
        opening.explain_errors(path, "an image"),
        opening.open_image(io.BytesIO(content)) as image,
    ):
        width, height = image.size
        kind = image.format or ""
        image.load()  # A damaged file is an error here, not at the endpoint.
        if kind not in _SENT_AS_IS:
            converted = io.BytesIO()
            has_alpha = "A" in image.getbands() or "transparency" in image.info
            image.convert("RGBA" if has_alpha else "RGB").save(converted, "PNG")
            content, kind = converted.getvalue(), "PNG"
    text = base64.b64encode(content).decode("ascii")
    address = f"data:image/{kind.lower()};base64,{text}"
    return Picture(address, width, height, digest)
