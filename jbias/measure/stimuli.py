"""What a measure shows a network of a few images, as arrays to look at."""

from collections.abc import Iterable

import jax
import numpy as np
from jaxtyping import Int, Shaped

from jbias.data import loader
from jbias.evals import probe, show
from jbias.measure import shown, suite, suite_measure

AS_IT_IS = "as it is"
# Stands where no network is asked.
NOBODY = show.Network(apply=probe.as_it_is, variables={})


def rows(
    asked: suite.Suite,
    dataset: str,
    index: Int[np.ndarray, "n"],
    given: shown.Shown | None = None,
) -> shown.Shown:
    """Images of a set by their numbers, and their classes where a network has these.

    given: what the network can answer of the set; there classes of other images are -1.
    """
    source, held = asked.sources[dataset], asked.images[dataset]
    label, target = np.full((2, len(source)), -1, np.int32)
    if given is not None:
        label[given.index], target[given.index] = given.columns["label"], given.target
    return shown.Shown(
        images=loader.EncodedImages(source, index) if held is None else held[index],
        index=index,
        columns={"label": label[index]},
        target=target[index],
        rules=given.rules if given else {},
        classes=given.classes if given else (),
    )


def images(
    asked: suite.Suite, few: shown.Shown, devices: jax.sharding.Mesh
) -> Shaped[np.ndarray, "n h w 3"]:
    """The images themselves, in bytes."""
    batches = shown.batches(asked, few, devices)
    return np.concatenate([np.asarray(one.image)[: one.count] for one in batches])


def of(
    asked: suite.Suite,
    task: suite_measure.Task,
    network: show.Network,
    conditions: Iterable[str],
    few: shown.Shown,
    devices: jax.sharding.Mesh,
) -> dict[str, Shaped[np.ndarray, "n h w 3"]]:
    """What the network gets under some conditions; the image as it is comes first."""
    made = asked.make_probe(*task, few.classes)
    found = {} if "" in conditions else {AS_IT_IS: [images(asked, few, devices)]}
    for batch in shown.batches(asked, few, devices):
        for name in conditions:
            stimuli = show.shown(network, made, batch, name)
            parts = found.setdefault(name or AS_IT_IS, [])
            parts.append(np.asarray(stimuli)[: batch.count])
    return {name: np.concatenate(parts) for name, parts in found.items()}
