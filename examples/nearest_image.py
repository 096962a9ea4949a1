"""A model without training: the class of the nearest of 640 images of the embedded set.

    jbias card examples/nearest_image.py --data=shapes --classes=folders --only=shape_bias

Its card has the shape bias of pixels alone.
"""

import numpy as np

from jbias import data

_known = data.load("shapes", "train", n=640, size=32)
_pixels = (np.asarray(_known.images, np.float32) / 255).reshape(len(_known), -1)
_labels = _known.columns["label"]


def predict(images: np.ndarray) -> np.ndarray:
    """Return a score for each class: minus the distance to its nearest image."""
    flat = np.asarray(images, np.float32).reshape(len(images), -1)
    squares = (_pixels**2).sum(1) - 2 * flat @ _pixels.T
    scores = [squares[:, _labels == k].min(1) for k in range(len(_known.classes))]
    return -np.stack(scores, axis=1)
