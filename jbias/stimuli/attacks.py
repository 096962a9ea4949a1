"""Probes of adversarial accuracy: images are changed within a small ball to raise the loss.

The protocol of Gavrikov and Keuper, who test 48 models: projected gradient ascent of the
cross-entropy in the l-infinity ball of 0.5/255, 40 steps of 2/255, one random start, in
evaluation mode. An image is robust if the decision after the last step is correct.

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

from jbias import errors
from jbias.augment import adversarial
from jbias.measures import decisions
from jbias.stimuli import random_draws, shown

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
) -> shown.Stimuli:
    """Return a probe that attacks by projected gradient ascent, with one or several budgets.

    norm: "linf", the largest change of a value, or "l2", the Euclidean norm of all changes.
    eps: the radius of the ball in that norm, for pixel values in [0, 1]; or several radii.
    steps: the number of gradient steps.
    step_size: in the same norm; None: 2/255 for "linf", as published, and 2.5 eps / steps
      for "l2", as in Madry et al.
    restarts: the number of attacks from different starts; an image is robust if the
      decisions after all attacks are correct.
    random_start: True: attacks start at a random point of the ball; False: at the image.
    strict: also show unchanged images, and count the images that are classified correctly both
      unchanged and attacked.
    seed: seed of the random starts.

    There is a condition for each budget, or for each budget and restart, and with `strict` the
    condition "" of unchanged images. The name of a budget has the norm and the radius,
    "linf 0.5/255" or "l2 0.5", and the steps, step size, starts, and restarts that differ from
    the published protocol; with "l2", the name always has the steps. With several restarts,
    " restart 1" and so on follows in the name of the condition. Metrics: see `numbers`, with
    kind="pgd". ValueError for invalid options.
    """
    for name, count in (("steps", steps), ("restarts", restarts)):
        is_count = isinstance(count, int) and not isinstance(count, bool) and count > 0
        errors.check(is_count, "pgd", "be 1 or more", count, name=name)
    if restarts > 1 and not random_start:
        raise ValueError(
            f"pgd: {restarts} restarts must start at random, or they are one; leave "
            "random_start on"
        )
    is_size = step_size is None or _is_positive(step_size)
    errors.check(is_size, "pgd", "be above 0", step_size, name="step_size")
    is_euclidean = norm == "l2"
    words = []
    if steps != STEPS or is_euclidean:
        words.append(f"{steps} steps")
    if step_size is not None and (is_euclidean or step_size != STEP_SIZE):
        words.append(f"step {_size(norm, step_size)}")
    if not random_start:
        words.append("no start")
    if restarts > 1:
        words.append(f"{restarts} restarts")
    step_sizes = dict.fromkeys(_budgets("pgd", norm, eps), step_size or STEP_SIZE)
    if step_size is None and is_euclidean:
        step_sizes = {budget: 2.5 * budget / steps for budget in step_sizes}
    return _make_probe(
        "pgd",
        norm,
        step_sizes=step_sizes,
        steps=steps,
        description=" ".join(words),
        restarts=restarts,
        random_start=random_start,
        strict=strict,
        seed=seed,
    )


def make_fgsm(
    *, norm: str = "linf", eps: float | Sequence[float] = EPS, strict: bool = False
) -> shown.Stimuli:
    """Return a probe of the fast gradient sign method: one step of the whole budget.

    With norm="l2" the step follows the gradient itself instead of its sign. Options, names of
    conditions and errors: see `make`. Metrics: see `numbers`, with kind="fgsm".
    """
    return _make_probe(
        "fgsm",
        norm,
        step_sizes={budget: budget for budget in _budgets("fgsm", norm, eps)},
        steps=1,
        random_start=False,
        strict=strict,
    )


def _make_probe(
    kind: str,
    norm: str,
    *,
    step_sizes: Mapping[float, float],
    steps: int,
    random_start: bool,
    strict: bool,
    description: str = "",
    restarts: int = 1,
    seed: int = 0,
) -> shown.Stimuli:
    """Return the probe of an attack.

    A condition's name is "<norm> <budget> <description>", such as "linf 0.5/255"; with several
    restarts, "restart" and the number of the restart follow. With `strict` there is also the
    condition "" of unchanged images.

    kind: "pgd" or "fgsm"; metrics are named <kind>_accuracy and <kind>_accuracy_strict, see
    `numbers`. step_sizes: the step size of each budget. description: text after the budget; "":
    none. Other options: see `make`. ValueError if two budgets are equal in four digits.
    """
    conditions, groups = {"": _params(0.0, 0.0, 0)} if strict else {}, {}
    for eps, step_size in step_sizes.items():
        name = f"{_size(norm, eps)} {description}".strip()
        must = "differ from the others in four digits"
        errors.check(name not in groups, kind, must, [*step_sizes], name="each eps")
        by_restart = [f"{name} restart {i + 1}" for i in range(restarts)]
        groups[name] = by_restart if restarts > 1 else [name]
        for i, condition in enumerate(groups[name]):
            conditions[condition] = _params(eps, step_size, i)

    def show(rows: shown.Rows, params: dict[str, Any]) -> shown.Images:
        """Return the images in [0, 1] that the attack starts from, without any step.

        params: a result of `_params`, of which "eps" and "restart" are used.
        """
        if not random_start:
            return rows.image
        keys = random_draws.image_keys(seed, params["restart"], rows.index)
        return adversarial.starts(rows.image, keys, norm=norm, eps=params["eps"])

    def move(
        rows: shown.Rows, params: dict[str, Any], stimuli: shown.Images
    ) -> shown.Images:
        """Return the images in [0, 1] after one more step of the attack.

        stimuli: the result of `show` or of the previous step. params: a result of `_params`, of
        which "eps" and "step_size" are used. `norm`: see the enclosing function.
        """
        return adversarial.pgd(
            functools.partial(_cross_entropy, rows),
            rows.image,
            eps=params["eps"],
            step_size=params["step_size"],
            norm=norm,
            steps=1,
            start=stimuli,
        )

    return shown.Stimuli(
        conditions,
        show,
        functools.partial(numbers, kind=kind, groups=groups),
        network_steps=shown.NetworkSteps(
            move, counts={name: steps for name in conditions if name}
        ),
    )


@decisions.per_rule
def numbers(
    by_condition: decisions.ByName, *, kind: str, groups: Mapping[str, Sequence[str]]
) -> Iterator[decisions.Number]:
    """Return <kind>_accuracy by budget: the share of images decided correctly after all restarts.

    The condition of a number is the name of the budget. If unchanged images were shown, too
    (condition ""), <kind>_accuracy_strict is the share of images that are classified correctly both
    unchanged and attacked. kind: "pgd" or "fgsm". groups: by the name of the budget, the names of
    the conditions of all restarts.
    """
    for name, group in groups.items():
        is_robust = np.logical_and.reduce([by_condition[x].right for x in group])
        yield decisions.mean(f"{kind}_accuracy", is_robust, name)
        if "" in by_condition:
            is_strictly_robust = is_robust & by_condition[""].right
            yield decisions.mean(f"{kind}_accuracy_strict", is_strictly_robust, name)


def _cross_entropy(rows: shown.Rows, image: shown.Images) -> Float[Array, "b"]:
    """Return the cross-entropy loss of each image; 0, without gradient, for label -1."""
    logits = rows.logits(image)
    target = jax.nn.one_hot(rows.label, logits.shape[-1])
    return -(target * jax.nn.log_softmax(logits)).sum(-1)


def _params(eps: float, step_size: float, restart: int) -> dict[str, np.ndarray]:
    """Return a condition's parameters as NumPy scalars, by name."""
    return {
        "eps": np.float32(eps),
        "step_size": np.float32(step_size),
        "restart": np.int32(restart),
    }


def _size(norm: str, value: float) -> str:
    """Return a norm and a size as text, such as "linf 0.5/255" or "l2 0.5"."""
    return f"linf {255 * value:.4g}/255" if norm == "linf" else f"l2 {value:.4g}"


def _budgets(kind: str, norm: str, eps: float | Sequence[float]) -> tuple[float, ...]:
    """Return `eps`, one or several budgets, as a tuple.

    kind: start of the error message. ValueError for an unknown norm, no budget, or a budget
    that is negative, infinite or repeated.
    """
    errors.check_choice(kind, norm, adversarial.BALLS, "change norm", name="norm")
    budgets = (eps,) if isinstance(eps, (int, float)) else tuple(eps)
    are_sizes = bool(budgets) and all(e == 0 or _is_positive(e) for e in budgets)
    must = (
        "be one number or several, of 0 or more, of values in [0, 1], such as 0.5 / 255"
    )
    errors.check(are_sizes, kind, must, eps, name="eps")
    are_distinct = len(set(budgets)) == len(budgets)
    errors.check(are_distinct, kind, "be given once", eps, name="each eps")
    return budgets


def _is_positive(value: object) -> bool:
    """Return True if a value is a finite number above 0."""
    return isinstance(value, (int, float)) and 0 < value < math.inf
