"""Each number of docs/given-accuracy.md, recomputed from the table by numpy and scipy.

Intervals are random, so they are computed by jbias.
"""

import pathlib
import re

import numpy as np
import pandas as pd
import pytest
import scipy.special
import scipy.stats

from jbias import stats
from jbias.report import network_frame
from jbias.report.pages.correlations import model_correlations
from jbias.stats import correlation

ROOT = pathlib.Path(__file__).parents[2]
FRAME = pd.read_csv(ROOT / "examples" / "published" / "biases.csv", index_col="model")
PAGE = (ROOT / "docs" / "given-accuracy.md").read_text(encoding="utf-8")
WORDS = " ".join(PAGE.split())
IS_ADVERSARIAL = FRAME["training"] == "adversarial_training"
NOT_ADVERSARIAL = FRAME[~IS_ADVERSARIAL]
TITLES = network_frame.TITLES
BOTH = ("Concepts", "Robustness")


def printed(value, digits=2):
    return f"{value:.{digits}f}".replace("-", "−")


def rho(frame, y, x="shape"):
    return scipy.stats.spearmanr(frame[x], frame[y]).statistic


def partial(
    frame, y, covariate="imagenet", *, within=False, scale=scipy.stats.rankdata
):
    """Return the correlation of residuals given a measure and categories."""
    kinds = pd.get_dummies(frame["training"]).to_numpy(float)
    intercepts = kinds if within else np.ones((len(frame), 1))
    design = np.column_stack([intercepts, scale(frame[covariate])])
    x = frame["shape"] if scale is logit else scale(frame["shape"])
    first, second = (
        v - design @ np.linalg.lstsq(design, v)[0] for v in (x, scale(frame[y]))
    )
    return np.corrcoef(first, second)[0, 1]


def logit(accuracy):
    return scipy.special.logit(np.asarray(accuracy) / 100)


def with_interval(frame, y):
    interval = correlation.bootstrap_interval(
        frame["shape"],
        frame[y],
        covariates=[frame["imagenet"]],
        resamples=model_correlations.RESAMPLES,
    )
    ends = f"[{printed(interval.low)}, {printed(interval.high)}]"
    return f"{printed(partial(frame, y))} {ends}"


def rows():
    cells = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if "|" in line]
    return cells[2:]


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_the_table(row):
    names = {TITLES.get(name, name): name for name in FRAME}
    y = names[row[0]]
    assert row[1:] == [
        printed(rho(FRAME, y)),
        with_interval(FRAME, y),
        printed(partial(FRAME, y, within=True)),
        printed(rho(NOT_ADVERSARIAL, y)),
        with_interval(NOT_ADVERSARIAL, y),
    ]


def shape_bias_sentences():
    concepts, robustness = (printed(rho(FRAME, y)) for y in BOTH)
    partials = [printed(partial(FRAME, y)) for y in BOTH]
    yield f"Over the {len(FRAME)} networks of"
    yield f"uncorrelated with Concepts (ρ = {concepts}) and negatively correlated with"
    yield f"Robustness ({robustness})."
    yield f"lower accuracy on ImageNet ({printed(rho(FRAME, 'imagenet'))})"
    yield f"positive: {' and '.join(partials)}."


def robustness_sentences():
    adversarial_rho = rho(FRAME[IS_ADVERSARIAL], "imagenet")
    pair = FRAME.assign(two=(FRAME["imagenet_r"] + FRAME["imagenet_sketch"]) / 2)
    plain = FRAME[FRAME["training"] != "stylized"]
    assert len(FRAME) - len(plain) == 3
    other = [printed(partial(FRAME, y, "ID")) for y in BOTH]
    pearson = [printed(partial(FRAME, y, scale=logit)) for y in BOTH]
    styled = [f"{printed(partial(plain, y))} for {y}" for y in BOTH]
    yield f"The {IS_ADVERSARIAL.sum()} adversarially trained networks alone"
    unexplained = printed(100 * (1 - adversarial_rho**2), 1)
    yield f"(ρ = {printed(adversarial_rho)}), and leaves {unexplained} % of its"
    yield f"ρ is {printed(rho(pair, 'two'))}, and {printed(partial(pair, 'two'))} given"
    yield f"ρ given accuracy is {' and '.join(styled)}."
    a = printed(partial(FRAME, "imagenet_a"))
    yield f"ResNet-50 misclassifies, ρ given accuracy is {a}."
    yield f"given the average ID, ρ is {' and '.join(other)};"
    yield f"given logits of accuracies, is {' and '.join(pearson)}."


def limitation_sentences():
    within = [printed(partial(FRAME, y, within=True)) for y in BOTH]
    near = rho(FRAME, "Robustness", "imagenet")
    yield f"**{len(FRAME)} networks are not {len(FRAME)} experiments.**"
    yield f"and {IS_ADVERSARIAL.sum()} differ only in ε"
    yield f"Given category, too, {' and '.join(within)} remain."
    remaining = f"{100 * (1 - near**2):.0f} % of its"
    yield f"nearly accuracy** (ρ = {printed(near)}): accuracy leaves {remaining}"


def effective_robustness_sentences():
    """Yield sentences on effective robustness: least squares by scipy, the interval by jbias."""
    x, y = FRAME["imagenet"], FRAME["Concepts"]
    standard = FRAME["training"].isin(["baseline", "training_recipes"])
    above, strength = {}, {}
    for name, selected in (("standard", standard), ("all", standard | True)):
        line = scipy.stats.linregress(logit(x[selected]), logit(y[selected]))
        on_line = scipy.special.expit(line.slope * logit(x) + line.intercept)
        above[name] = y - 100 * on_line
        correlation_with_shape = scipy.stats.spearmanr(FRAME["shape"], above[name])
        strength[name] = printed(correlation_with_shape.statistic)
    ours = stats.effective_robustness(x, y, standard=standard)
    np.testing.assert_allclose(ours.robustness, above["standard"])
    outside = ((x < x[standard].min()) | (x > x[standard].max())).sum()
    i = FRAME.index.get_loc("resnet50_trained_on_SIN")
    points = [above["standard"].iloc[i], ours.low[i], ours.high[i]]
    points = [printed(point, 1) for point in points]
    yield f"the {standard.sum()} networks of the baseline and training recipes"
    yield f"extrapolated for {outside} of {len(FRAME)} networks"
    yield f"shape bias (ρ = {strength['standard']}). But"
    yield f"above it by {points[0]} points, with an interval from {points[1]} to {points[2]}."
    yield f"through all {len(FRAME)}, ρ is {strength['all']}."


def test_every_number_of_the_text_follows_from_the_table():
    """Other sentences have no numbers except names, years and a level."""
    text = re.sub(r"(?s)```.*?```|\(https?://\S+\)|(?m:^\|[^\n]*)", "", PAGE)
    text = " ".join(text.split())
    for sentences in (
        shape_bias_sentences,
        robustness_sentences,
        limitation_sentences,
        effective_robustness_sentences,
    ):
        for sentence in sentences():
            assert text.count(sentence) == 1, sentence
            text = text.replace(sentence, "")
    names = {"CVPR 2024", "NeurIPS 2020", "95 %"}
    assert set(re.findall(r"(?:\w+ )?\d[\d.]*(?: %)?", text)) == names
    assert len(PAGE.split()) <= 600
    assert (ROOT / "docs" / "given-accuracy.svg").exists()


NINE = ("Concepts", "imagenet_r", "imagenet_sketch", "stylized16", "Robustness")
NINE += ("imagenet_a", "imagenet_c", "imagenet_cbar", "Adversarial")


@pytest.mark.parametrize("frame", [FRAME, NOT_ADVERSARIAL], ids=["all", "without"])
def test_of_nine_all_but_one_are_significant(frame):
    assert f"--y={','.join(NINE)} " in PAGE
    matrix = correlation.pairwise_matrix(frame, ["shape"], NINE, given=["imagenet"])
    passed = matrix.holm.loc["shape"] <= 0.05
    assert [name for name in NINE if not passed[name]] == ["imagenet_a"]
    assert all(partial(frame, name) > 0 for name in BOTH)
