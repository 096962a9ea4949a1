"""The tables of a study are read as they were written."""

import pytest

from jbias.calibrating import rows

NETWORK = rows.PlantedNetwork(
    network="rule-1",
    family="rule",
    dial=1 / 3,
    planned_dial=1 / 3,
    level="high",
    group="rule",
    cluster="rule-1",
    shortcut="colour",
    strength=0.25,
    seed=0,
    hidden=0,
    classes=16,
    images=480,
    accuracy=0.95,
    chance=1 / 16,
    verified_shape=0.3,
)
READING = rows.Reading(
    network="rule-1",
    measure="shape_bias",
    images=480,
    draw=0,
    value=None,
    lower=None,
    upper=None,
    n=0,
    reason='undefined: "shape_bias", no decision',
)


def test_rows_are_read_as_written(tmp_path):
    for row, kind in ((NETWORK, rows.PlantedNetwork), (READING, rows.Reading)):
        path = tmp_path / "table.csv"
        rows.write(path, [row, row], kind)
        assert rows.read(path, kind) == [row, row]


def test_other_tables_and_cells_are_refused_with_their_line():
    text = rows.dumps([READING], rows.Reading)
    with pytest.raises(ValueError, match="networks.csv.*header"):
        rows.loads(text, rows.PlantedNetwork, where="networks.csv")
    with pytest.raises(ValueError, match="readings.csv:2: images"):
        rows.loads(text.replace("480", "many"), rows.Reading, where="readings.csv")
    with pytest.raises(ValueError, match="readings.csv:2.*cells"):
        rows.loads(text.replace(",480", ""), rows.Reading, where="readings.csv")


@pytest.mark.parametrize(
    ("shape", "texture", "neither", "reliance"),
    [
        (0.6, 0.2, 0.0, 0.75),
        (0.6 + 0.01, 0.2 + 0.01, 0.12, 0.75),  # 0.12 / 12 are guesses for each class.
        (0.5, 0.005, 0.12, 1.0),
        (0.0, 0.0, 0.0, None),
        (0.05, 0.05, 0.8, None),
        (None, None, None, None),
    ],
)
def test_verified_reliance_is_the_share_of_shape_less_guesses(
    shape, texture, neither, reliance
):
    network = NETWORK._replace(
        verified_shape=shape, verified_texture=texture, verified_neither=neither
    )
    expected = None if reliance is None else pytest.approx(reliance)
    assert network.verified_reliance == expected
