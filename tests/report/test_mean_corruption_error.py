"""Mean corruption error next to the errors on corrupted images, or why it is missing."""

import itertools
import json

import numpy as np
import pytest

from jbias.measures import corruption_error, decisions
from jbias.measures.decisions import Number
from jbias.report import network_records
from tests.report import measure_files, test_measured


def corrupted_network(
    folder,
    names,
    severities=(1, 2, 3, 4, 5),
    dataset="imagenet",
    clean_images=60,
    **description,
):
    """Return a network right on 1 of (severity + 1) images, and on half the clean images."""
    decisions_by_condition = {}
    label = np.arange(60)
    for name, severity in itertools.product(names, severities):
        answers = label + (label % (severity + 1) > 0)
        decisions_by_condition[f"{name}-{severity}"] = decisions.Decisions(
            answers, {"label": label}
        )
    clean = [Number("accuracy", 0.5, clean_images // 2, clean_images)]
    measurements = {
        ("imagenet_c", "corruptions", dataset): (
            corruption_error.numbers(decisions_by_condition),
            None,
        ),
        ("accuracy", "plain", dataset): (clean, None),
    }
    test_measured.write(folder, folder.name, measurements)
    for path in (folder / "measures").iterdir():
        stored = json.loads(path.read_text())
        path.write_text(
            json.dumps(stored | {"classes": [*map(str, range(1000))]} | description)
        )
    (network,) = network_records.read([str(folder)])
    return network


def errors_table(*networks_):
    blocks = measure_files.section_blocks([*networks_])
    (table,) = [b for _, b in blocks if getattr(b, "name", "") == "corruption_errors"]
    return table


def test_mean_corruption_error_is_that_of_the_paper(tmp_path):
    """Errors are divided by AlexNet's and averaged over fifteen corruptions."""
    network = corrupted_network(tmp_path / "a", corruption_error.COMMON)
    table = errors_table(network)
    (row,) = table.data.to_dict("records")
    error = np.mean([1 - 1 / (severity + 1) for severity in range(1, 6)])
    alexnet = np.array([*corruption_error.ALEXNET_ERRORS.values()])
    assert row["mean_error"] == pytest.approx(error)
    assert row["mce"] == pytest.approx(np.mean(error / alexnet))
    relative = (error - 0.5) / (alexnet - corruption_error.ALEXNET_CLEAN_ERROR)
    assert row["relative_mce"] == pytest.approx(relative.mean())
    assert "no mCE" not in table.caption


def test_no_relative_error_if_clean_accuracy_is_of_other_images(tmp_path):
    network = corrupted_network(
        tmp_path / "a", corruption_error.COMMON, clean_images=120
    )
    table = errors_table(network)
    assert "mce" in table.data and "relative_mce" not in table.data


def test_without_frost_the_caption_explains_the_missing_mce(tmp_path):
    names = [name for name in corruption_error.COMMON if name != "frost"]
    table = errors_table(corrupted_network(tmp_path / "a", names))
    assert "mce" not in table.data
    assert (
        "Frost is left out because its photographs are not shipped (frost=DIR names their "
        "folder), so there is no mCE over 15 corruptions; the mean error over the 14 "
        "measured corruptions is 71.0 %."
    ) in table.caption


@pytest.mark.parametrize(
    ("names", "options", "words"),
    [
        (("fog",), {}, "are left out, as not all five severities were measured"),
        (
            corruption_error.COMMON,
            {"dataset": "pets"},
            "Images of pets are not ImageNet's at 224",
        ),
        (
            corruption_error.COMMON,
            {"classes": test_measured.NAMES},
            "with its 1,000 classes, so there is no mCE",
        ),
        (("fog",), {"severities": (3,)}, "nor a mean error, as no corruption has all"),
    ],
)
def test_no_mce_where_alexnets_errors_do_not_apply(names, options, words, tmp_path):
    table = errors_table(corrupted_network(tmp_path / "a", names, **options))
    assert words in table.caption and "mce" not in table.data


def test_other_images_without_frost_get_both_reasons(tmp_path):
    names = [name for name in corruption_error.COMMON if name != "frost"]
    network = corrupted_network(tmp_path / "a", names, dataset="pets")
    caption = errors_table(network).caption
    assert "1,000 classes and frost is left out because its photographs" in caption
    assert caption.count("so there is no mCE") == 1
