import numpy as np
import pytest

from jbias.evals import decisions
from jbias.report import decoding_figure, plots
from tests import cases

SITES = [f"stage{i}.block{j}.conv{k}" for i in (1, 2) for j in (0, 1) for k in (1, 2)]


def numbers(sites=SITES):
    told = [
        decisions.Number(f"{factor}_decoding_chance", chance, None, 10)
        for factor, chance in (("shape", 1 / 16), ("texture", 1 / 8))
    ]
    for i, site in enumerate(sites):
        for metric, value in (
            ("shape_decoding", 0.1 + 0.1 * i),
            ("shape_decoding_shuffled", 0.06),
            ("texture_decoding", 0.9 - 0.05 * i),
            ("texture_decoding_shuffled", 0.12),
        ):
            told.append(decisions.Number(metric, value, 1, 10, site))
    return told


def test_lines_are_the_numbers_in_the_networks_order():
    fig = decoding_figure.decodability(numbers(), title="ResNet-18 on $cue_conflict$")
    (axes,) = fig.axes
    lines = {line.get_label(): line.get_ydata() for line in axes.get_lines()}
    np.testing.assert_allclose(lines["shape"], 10 + 10 * np.arange(8))
    np.testing.assert_allclose(lines["texture"], 90 - 5 * np.arange(8))
    np.testing.assert_allclose(lines["shape, labels shuffled"], 6)
    assert [tick.get_text() for tick in axes.get_xticklabels()] == SITES
    dotted = [line.get_ydata()[0] for line in axes.get_lines()[4:]]
    np.testing.assert_allclose(dotted, [100 / 16, 100 / 8])
    assert plots.to_svg(fig).count("<svg") == 1


@cases.each("count", [1, 8, 60])
def test_nothing_is_cut(count):
    sites = [f"stage{i}.block{i}.conv1" for i in range(count)]
    fig = decoding_figure.decodability(numbers(sites), title="a network")
    fig.canvas.draw()
    tight = fig.get_tightbbox(fig.canvas.get_renderer())
    width, height = fig.get_size_inches()
    assert min(tight.x0, tight.y0, width - tight.x1, height - tight.y1) > -0.02


def test_no_site_is_refused():
    with pytest.raises(ValueError, match="decodability: .* shape_decoding at a site"):
        decoding_figure.decodability(numbers([]))
