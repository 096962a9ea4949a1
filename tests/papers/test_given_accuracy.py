"""Each number of docs/given-accuracy.md, recomputed from the table by numpy and scipy.

Intervals, which rest on draws, are those of jbias.
"""

import pathlib
import re

import numpy as np
import pandas as pd
import pytest
import scipy.special
import scipy.stats

from jbias import stats
from jbias.report import network_frame, relations
from jbias.stats import correlation

ROOT = pathlib.Path(__file__).parents[2]
FRAME = pd.read_csv(ROOT / "examples" / "published" / "biases.csv", index_col="model")
PAGE = (ROOT / "docs" / "given-accuracy.md").read_text(encoding="utf-8")
WORDS = " ".join(PAGE.split())
AT = FRAME["training"] == "adversarial_training"
WITHOUT = FRAME[~AT]
TITLES = network_frame.TITLES
BOTH = ("Concepts", "Robustness")


def shown(value, digits=2):
    return f"{value:.{digits}f}".replace("-", "−")


def rho(frame, y, x="shape"):
    return scipy.stats.spearmanr(frame[x], frame[y]).statistic


def partial(frame, y, given="imagenet", *, within=False, scale=scipy.stats.rankdata):
    """Return the correlation of residuals given a measure and categories."""
    kinds = pd.get_dummies(frame["training"]).to_numpy(float)
    one = kinds if within else np.ones((len(frame), 1))
    design = np.column_stack([one, scale(frame[given])])
    x = frame["shape"] if scale is logit else scale(frame["shape"])
    left = [v - design @ np.linalg.lstsq(design, v)[0] for v in (x, scale(frame[y]))]
    return np.corrcoef(*left)[0, 1]


def logit(accuracy):
    return scipy.special.logit(np.asarray(accuracy) / 100)


def with_ends(frame, y):
    found = correlation.bootstrap_interval(
        frame["shape"],
        frame[y],
        covariates=[frame["imagenet"]],
        resamples=relations.RESAMPLES,
    )
    ends = f"[{shown(found.low)}, {shown(found.high)}]"
    return f"{shown(partial(frame, y))} {ends}"


def rows():
    found = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if "|" in line]
    return found[2:]


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_the_table(row):
    names = {TITLES.get(name, name): name for name in FRAME}
    y = names[row[0]]
    assert row[1:] == [
        shown(rho(FRAME, y)),
        with_ends(FRAME, y),
        shown(partial(FRAME, y, within=True)),
        shown(rho(WITHOUT, y)),
        with_ends(WITHOUT, y),
    ]


def first():
    concepts, robustness = (shown(rho(FRAME, y)) for y in BOTH)
    given = [shown(partial(FRAME, y)) for y in BOTH]
    yield f"Over the {len(FRAME)} networks of"
    yield f"uncorrelated with Concepts (ρ = {concepts}) and negatively correlated with"
    yield f"Robustness ({robustness})."
    yield f"lower accuracy on ImageNet ({shown(rho(FRAME, 'imagenet'))})"
    yield f"positive: {' and '.join(given)}."


def how_it_holds():
    alone = rho(FRAME[AT], "imagenet")
    pair = FRAME.assign(two=(FRAME["imagenet_r"] + FRAME["imagenet_sketch"]) / 2)
    plain = FRAME[FRAME["training"] != "stylized"]
    assert len(FRAME) - len(plain) == 3
    other = [shown(partial(FRAME, y, "ID")) for y in BOTH]
    pearson = [shown(partial(FRAME, y, scale=logit)) for y in BOTH]
    styled = [f"{y} has {shown(partial(plain, y))}" for y in BOTH]
    yield f"Of these {AT.sum()} alone"
    left = shown(100 * (1 - alone**2), 1)
    yield f"(ρ = {shown(alone)}), which leaves {left} % of its"
    yield f"Concepts has {shown(rho(pair, 'two'))}, and {shown(partial(pair, 'two'))} given"
    yield " and ".join(styled).replace("Robustness has", "Robustness")
    yield f"ResNet-50, has {shown(partial(FRAME, 'imagenet_a'))}."
    yield f"given the average ID, {' and '.join(other)};"
    yield f"given logits of accuracies, {' and '.join(pearson)}."


def what_it_does_not_say():
    within = [shown(partial(FRAME, y, within=True)) for y in BOTH]
    near = rho(FRAME, "Robustness", "imagenet")
    yield f"**{len(FRAME)} networks are not {len(FRAME)} experiments.**"
    yield f"and {AT.sum()} differ in ε alone"
    yield f"Within categories {' and '.join(within)} remain."
    yield f"nearly accuracy** (ρ = {shown(near)}): {100 * (1 - near**2):.0f} % of its"


def beyond_the_line():
    """Least squares by scipy; the interval by jbias."""
    x, y = FRAME["imagenet"], FRAME["Concepts"]
    standard = FRAME["training"].isin(["baseline", "training_recipes"])
    above, strength = {}, {}
    for name, some in (("standard", standard), ("all", standard | True)):
        line = scipy.stats.linregress(logit(x[some]), logit(y[some]))
        on_line = scipy.special.expit(line.slope * logit(x) + line.intercept)
        above[name] = y - 100 * on_line
        found = scipy.stats.spearmanr(FRAME["shape"], above[name])
        strength[name] = shown(found.statistic)
    ours = stats.effective_robustness(x, y, standard=standard)
    np.testing.assert_allclose(ours.robustness, above["standard"])
    outside = ((x < x[standard].min()) | (x > x[standard].max())).sum()
    i = FRAME.index.get_loc("resnet50_trained_on_SIN")
    points = [above["standard"].iloc[i], ours.low[i], ours.high[i]]
    points = [shown(one, 1) for one in points]
    yield f"the {standard.sum()} networks of the baseline and training recipes"
    yield f"extrapolated for {outside} of {len(FRAME)};"
    yield f"shape bias (ρ = {strength['standard']}), but"
    yield f"{points[0]} points, with an interval from {points[1]} to {points[2]}."
    yield f"through all {len(FRAME)}, ρ is {strength['all']}."


def test_every_number_of_the_text_is_that_of_the_table():
    """Other sentences have no numbers except names, years and a level."""
    rest = re.sub(r"(?s)```.*?```|\(https?://\S+\)|(?m:^\|[^\n]*)", "", PAGE)
    rest = " ".join(rest.split())
    for part in (first, how_it_holds, what_it_does_not_say, beyond_the_line):
        for sentence in part():
            assert rest.count(sentence) == 1, sentence
            rest = rest.replace(sentence, "")
    names = {"CVPR 2024", "NeurIPS 2020", "95 %"}
    assert set(re.findall(r"(?:\w+ )?\d[\d.]*(?: %)?", rest)) == names
    assert len(PAGE.split()) <= 600
    assert (ROOT / "docs" / "given-accuracy.svg").exists()


NINE = ("Concepts", "imagenet_r", "imagenet_sketch", "stylized16", "Robustness")
NINE += ("imagenet_a", "imagenet_c", "imagenet_cbar", "Adversarial")


@pytest.mark.parametrize("frame", [FRAME, WITHOUT], ids=["all", "without"])
def test_of_nine_all_but_one_are_significant(frame):
    assert f"--y={','.join(NINE)} " in PAGE
    matrix = correlation.pairwise_matrix(frame, ["shape"], NINE, given=["imagenet"])
    passed = matrix.holm.loc["shape"] <= 0.05
    assert [name for name in NINE if not passed[name]] == ["imagenet_a"]
    assert all(partial(frame, name) > 0 for name in BOTH)
