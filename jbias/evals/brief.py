"""What a measure found, in a few words: what it is about, and no more than a line."""

from collections.abc import Sequence

from jbias.evals.decisions import Number

# Of measures that tell more than is said: what comes first.
_SAID = {
    "spectral": ("low_freq_bias", "high_freq_bias"),
    "shape_bias": ("shape_bias", "accuracy_shape", "accuracy_texture"),
    "human": ("ood_accuracy", "error_consistency", "human_error_consistency"),
    "calibration": ("ece", "nll"),
    "critical_band": tuple(
        f"critical_band_{kind}{metric}"
        for metric in ("bandwidth", "center_frequency", "peak_noise_sensitivity")
        for kind in ("", "original_")
    ),
}
_MOST = 5


def words(shown: str, numbers: Sequence[Number]) -> str:
    """Says what a probe's numbers, or those of a measure inside a network, amount to."""
    if shown == "decoding":
        return ", ".join(_best(numbers, factor) for factor in ("shape", "texture"))
    if shown == "classes":
        each = [one for one in numbers if one.metric == "class_accuracy"]
        lowest = min(each, key=lambda one: one.value)
        return f"lowest of {len(each)}: {_one(lowest.condition, lowest.value)}"
    if shown == "receptive_field":
        wide = [one for one in numbers if one.metric == "receptive_radius"]
        return f"radius {_one(wide[-1].condition, wide[-1].value)} px"
    if shown in ("pgd", "fgsm"):
        told = [one for one in numbers if one.metric.endswith("_accuracy")]
        return ", ".join(_one(one.condition or one.metric, one.value) for one in told)
    if shown in ("grid_shuffle", "cut_occlusion"):
        told = [one for one in numbers if one.metric == "accuracy"][:_MOST]
        return ", ".join(_one(one.condition or one.metric, one.value) for one in told)
    said = _SAID.get(shown)
    own = [
        one
        for one in numbers
        if not one.condition and (not said or one.metric in (*said, "agreement"))
    ]
    return ", ".join(
        _one(_name(one.metric), one.value)
        # At chance level next to nothing is left of the images.
        + (f" of {one.n} decisions" if one.metric == "shape_bias" else "")
        for one in own[:_MOST]
    )


def _best(numbers: Sequence[Number], factor: str) -> str:
    """The site where a factor is decoded best."""
    sites = [one for one in numbers if one.metric == f"{factor}_decoding"]
    best = max(sites, key=lambda one: one.value)
    return f"{_one(factor, best.value)} at {best.condition}"


def _name(metric: str) -> str:
    return (
        metric.removeprefix("critical_band_")
        .removeprefix("original_")
        .replace("_", " ")
    )


def _one(name: str, value: float | None) -> str:
    return f"{name} " + ("none" if value is None else f"{value:.4g}")
