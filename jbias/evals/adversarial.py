"""Accuracy on images that were changed within a small ball to be taken for others.

The published protocol of the 48 models: projected gradient ascent of the cross-entropy in
the l-infinity ball of 0.5/255, 40 steps of 2/255, one random start, in evaluation mode;
an image counts as robust where the last point is decided rightly.

Source: Madry et al., ICLR 2018, https://arxiv.org/abs/1706.06083; Goodfellow, Shlens and
Szegedy, ICLR 2015, https://arxiv.org/abs/1412.6572; Gavrikov and Keuper, CVPR 2024,
https://arxiv.org/abs/2404.01509. Reference code:
https://github.com/paulgavrikov/biases_vs_generalization at 9168ac8, eval_imagenet_adv.py.
"""

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from jbias.augment import adversarial, options
from jbias.evals import decisions, occlusion, probe

EPS, STEPS, STEP_SIZE = 0.5 / 255, 40, 2 / 255


def make(
    *,
    norm: str = "linf",
    eps: float | Sequence[float] = EPS,
    steps: int = STEPS,
    step_size: float | None = None,
    restarts: int = 1,
    random_start: bool = True,
    strict: bool = False,
    seed: int = 0,
) -> probe.Probe:
    """Projected gradient ascent, for each of several budgets.

    norm: "linf", the largest change of a value, or "l2", of all values together.
    eps: the ball's size in that norm, of values in [0, 1]; several make a curve.
    step_size: likewise; None is 2/255 for "linf", as published, and 2.5 eps / steps for
      "l2", as Madry et al. chose it.
    restarts: an image is robust where it is decided rightly after each of so many, which
      differ in where they start.
    strict: notes besides how many images are right both as they are and attacked, for
      which they are shown as they are, too.

    A condition says the norm and the budget, "linf 0.5/255" or "l2 0.5", and whatever
    else is not as published.
    """
    for name, count in (("steps", steps), ("restarts", restarts)):
        whole = isinstance(count, int) and not isinstance(count, bool) and count > 0
        probe.check(whole, "pgd", f"{name} must be 1 or more", count)
    if restarts > 1 and not random_start:
        alike = f"{restarts} restarts must start at random, or they are one"
        raise ValueError(f"pgd: {alike}; leave random_start on")
    size = step_size is None or _positive(step_size)
    probe.check(size, "pgd", "step_size must be above 0", step_size)
    euclidean = norm == "l2"
    told = [f"{steps} steps"] * (steps != STEPS or euclidean)
    if step_size is not None and (euclidean or step_size != STEP_SIZE):
        told.append(f"step {_size(norm, step_size)}")
    told += ["no start"] * (not random_start)
    told += [f"{restarts} restarts"] * (restarts > 1)
    sizes = dict.fromkeys(_budgets("pgd", norm, eps), step_size or STEP_SIZE)
    if step_size is None and euclidean:
        sizes = {e: 2.5 * e / steps for e in sizes}
    how = dict(restarts=restarts, start=random_start, strict=strict, seed=seed)
    return _probe("pgd", norm, sizes, steps, told=" ".join(told), **how)


def make_fgsm(
    *, norm: str = "linf", eps: float | Sequence[float] = EPS, strict: bool = False
) -> probe.Probe:
    """One step of the whole budget from the image: the fast gradient sign method.

    With norm="l2" the step follows the gradient itself. Options as those of `make`.
    """
    sizes = {e: e for e in _budgets("fgsm", norm, eps)}
    return _probe("fgsm", norm, sizes, 1, start=False, strict=strict)


def _probe(
    kind, norm, sizes, steps, *, start, strict, told="", restarts=1, seed=0
) -> probe.Probe:
    conditions, groups = {"": _params(0.0, 0.0, 0)} if strict else {}, {}
    for eps, size in sizes.items():
        name = f"{_size(norm, eps)} {told}".strip()
        must = "each eps must differ from the others in four digits"
        probe.check(name not in groups, kind, must, [*sizes])
        tries = [f"{name} restart {i + 1}" for i in range(restarts)]
        groups[name] = tries if restarts > 1 else [name]
        for i, one in enumerate(groups[name]):
            conditions[one] = _params(eps, size, i)

    def show(rows: probe.Rows, params: Any) -> probe.Images:
        if not start:
            return rows.image
        keys = occlusion.image_keys(seed, params["restart"], rows.index)
        return adversarial.starts(rows.image, keys, norm=norm, eps=params["eps"])

    def move(rows: probe.Rows, params: Any, stimuli: probe.Images) -> probe.Images:
        loss = functools.partial(_cross_entropy, rows)
        own = {key: params[key] for key in ("eps", "step_size")}
        own |= dict(norm=norm, steps=1, start=stimuli)
        return adversarial.pgd(loss, rows.image, **own)

    counted = functools.partial(numbers, kind=kind, groups=groups)
    often = {name: steps for name in conditions if name}
    return probe.Probe(conditions, show, counted, move, often)


@decisions.per_rule
def numbers(
    found: decisions.ByName, *, kind: str, groups: Mapping[str, Sequence[str]]
) -> Iterator[decisions.Number]:
    """<kind>_accuracy of each budget: images decided rightly after every restart.

    Where the images were shown as they are, too, <kind>_accuracy_strict counts those
    that are right both ways. groups: the conditions of each budget. A condition may end
    with the rule of its decisions, such as " mean_logit".
    """
    for name, group in groups.items():
        robust = np.logical_and.reduce([found[one].right for one in group])
        yield decisions.mean(f"{kind}_accuracy", robust, name)
        if "" in found:
            both = robust & found[""].right
            yield decisions.mean(f"{kind}_accuracy_strict", both, name)


def _cross_entropy(rows: probe.Rows, image: probe.Images) -> Float[Array, "b"]:
    """Of each image; zero where it has no right class, and so no gradient."""
    logits = rows.logits(image)
    right = jax.nn.one_hot(rows.label, logits.shape[-1])
    return -(right * jax.nn.log_softmax(logits)).sum(-1)


def _params(eps: float, step_size: float, restart: int) -> dict[str, np.ndarray]:
    sizes = {"eps": np.float32(eps), "step_size": np.float32(step_size)}
    return {**sizes, "restart": np.int32(restart)}


def _size(norm: str, value: float) -> str:
    return f"linf {255 * value:.4g}/255" if norm == "linf" else f"l2 {value:.4g}"


def _budgets(kind: str, norm: str, eps: float | Sequence[float]) -> tuple[float, ...]:
    options.check_choice(kind, "norm", norm, adversarial.BALLS)
    given = (eps,) if isinstance(eps, (int, float)) else tuple(eps)
    sizes = bool(given) and all(e == 0 or _positive(e) for e in given)
    must = "eps must be one number or several, of 0 or more, of values in [0, 1]"
    probe.check(sizes, kind, f"{must}, such as 0.5 / 255", eps)
    once = len(set(given)) == len(given)
    probe.check(once, kind, "each eps must be given once", eps)
    return given


def _positive(value: Any) -> bool:
    return isinstance(value, (int, float)) and 0 < value < math.inf
