"""People's answers: published files are read; comparisons equal those of the authors' code."""

import csv
import dataclasses
import pathlib

import numpy as np
import pytest

from jbias import evals
from jbias.data import base, class_maps
from jbias.measures import accuracy, decisions, human, human_answers
from tests import cases

ORACLE = np.load(pathlib.Path(__file__).parents[1] / "oracles" / "human.npz")
CLASSES = (*class_maps.geirhos16(), "na")


def read_oracle(dataset: str) -> list[human_answers.Trials]:
    columns = {
        name: ORACLE[f"{dataset}/{name}"]
        for name in ("subject", "response", "category", "condition")
    }
    ids = tuple(f"{i:04d}" for i in range(1280))
    condition = tuple(columns["condition"].tolist())
    return [
        human_answers.Trials(subject, ids, response, columns["category"], condition)
        for subject, response in zip(columns["subject"].tolist(), columns["response"])
    ]


def write_trials(
    folder: pathlib.Path, dataset: str, subject_trials: human_answers.Trials
) -> pathlib.Path:
    """Write one subject's trials in the published format, in random order; return the path."""
    path = folder / f"{dataset}_{subject_trials.subject}_session_1.csv"
    order = np.random.default_rng(len(subject_trials.subject)).permutation(
        len(subject_trials.image)
    )
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        # The parametric sets spell the second column with a capital.
        writer.writerow(["subj", "Session", *human_answers.COLUMNS[2:]])
        for number, i in enumerate(order):
            names = (
                CLASSES[subject_trials.response[i]],
                CLASSES[subject_trials.category[i]],
            )
            image = f"{number:04d}_cop_s01_{subject_trials.condition[i]}_{names[1]}_10_n00000000"
            cells = (
                subject_trials.subject,
                1,
                number,
                "NaN",
                *names,
                subject_trials.condition[i],
            )
            writer.writerow([*cells, f"{image}_{subject_trials.image[i]}.png"])
    return path


def as_read(subject_trials: human_answers.Trials) -> human_answers.Trials:
    image = tuple(f"n00000000_{name}" for name in subject_trials.image)
    return dataclasses.replace(subject_trials, image=image)


@pytest.mark.parametrize("dataset", ["cue-conflict", "contrast"])
def test_numbers_equal_those_of_the_authors_code(dataset):
    first, *other_subjects = read_oracle(dataset)
    people = [
        subject_trials
        for subject_trials in other_subjects
        if subject_trials.subject.startswith("subject")
    ]
    numbers_by_metric = {
        n.metric: n for n in human.compare(first, people, dataset) if not n.condition
    }
    for name, metric in {
        "error-consistency": "error_consistency",
        "observed-consistency": "observed_consistency",
        "16-class-accuracy-difference": "accuracy_difference",
        "entropy": "response_entropy",
    }.items():
        expected = float(ORACLE[f"{dataset}/{name}"])
        assert numbers_by_metric[metric].value == pytest.approx(expected, abs=1e-12), (
            name
        )
    ends = [
        numbers_by_metric[f"error_consistency_{end}"].value
        for end in ("lower", "upper")
    ]
    assert ends[0] < numbers_by_metric["error_consistency"].value < ends[1]
    matrix = accuracy.confusion(people[0].response, people[0].category, 16)
    expected = ORACLE[f"{dataset}/confusion"]
    np.testing.assert_allclose(matrix, expected[: len(matrix)], atol=1e-9)
    if len(matrix) < 17:
        assert (expected[16] == 0).all()


def test_consistency_with_people_on_cue_conflict_is_the_published_one():
    trials_by_subject = {
        subject_trials.subject: subject_trials
        for subject_trials in read_oracle("cue-conflict")
    }
    people = [
        subject_trials
        for name, subject_trials in trials_by_subject.items()
        if name.startswith("subject")
    ]
    numbers = human.compare(trials_by_subject["resnet50"], people, "cue-conflict")
    value = {n.metric: n.value for n in numbers}
    assert value["error_consistency"] == pytest.approx(0.0674, abs=5e-5)
    assert value["human_error_consistency"] == pytest.approx(0.3311, abs=5e-5)
    assert not [n for n in numbers if n.condition]  # The set has one condition.


def test_shape_biases_of_all_people_together():
    """The textures come from the names of images."""
    texture = ORACLE["cue-conflict/texture"]
    people = [
        dataclasses.replace(
            subject_trials,
            image=tuple(
                f"{CLASSES[shape]}{i}-{CLASSES[other]}{i}"
                for i, (shape, other) in enumerate(
                    zip(subject_trials.category, texture)
                )
            ),
        )
        for subject_trials in read_oracle("cue-conflict")[3:]
    ]
    biases = human.shape_biases(people)
    assert sum(bias.n_shape for bias in biases.values()) == 9236
    assert sum(bias.n_texture for bias in biases.values()) == 398


def test_excluded_conditions_are_reported_but_not_averaged():
    first, *people = read_oracle("contrast")
    numbers = human.compare(first, people, "contrast")
    kappa = {n.condition: n for n in numbers if n.metric == "error_consistency"}
    assert set(kappa) - {""} == set(first.condition) and len(kappa) == 9
    used = [
        n.value
        for name, n in kappa.items()
        if name in ("c50", "c30", "c15", "c10", "c05")
    ]
    assert kappa[""].value == pytest.approx(np.mean(used), abs=1e-12)
    assert (kappa[""].n, kappa["c100"].n) == (800, 160)
    pooled = next(n for n in numbers if n.metric == "ood_accuracy")
    is_included = np.isin(first.condition, ("c50", "c30", "c15", "c10", "c05"))
    assert pooled.count == (first.response == first.category)[is_included].sum()


def test_files_are_read_in_the_order_of_images(tmp_path):
    for subject_trials in read_oracle("contrast"):
        expected = as_read(subject_trials)
        read_trials = human_answers.read(
            str(write_trials(tmp_path, "contrast", subject_trials)), "contrast"
        )
        assert read_trials.subject == subject_trials.subject
        assert (read_trials.image, read_trials.condition) == (
            expected.image,
            expected.condition,
        )
        np.testing.assert_array_equal(read_trials.response, subject_trials.response)
        np.testing.assert_array_equal(read_trials.category, subject_trials.category)
    people = human_answers.people(str(tmp_path), "contrast")
    assert [subject_trials.subject for subject_trials in people] == [
        f"subject-0{i}" for i in range(1, 5)
    ]


def test_probe_compares_decisions_with_people(tmp_path):
    """Images are matched by file name, also for a part of the set in another order."""
    for subject_trials in read_oracle("contrast")[1:]:
        write_trials(tmp_path, "contrast", subject_trials)
    first, *people = read_oracle("contrast")
    images = [
        f"session-1/0_cop_dnn_c_x_10_n00000000_{name}.png" for name in first.image
    ]
    shown = np.random.default_rng(0).permutation(1280)[:900]
    options = dict(dataset="contrast", files=images)
    human_probe = human.make(root=str(tmp_path), **options)
    columns = {"label": first.category[shown], "index": shown}
    numbers = human_probe.numbers({"": evals.Decisions(first.response[shown], columns)})
    trials_shown = [
        subject_trials.select([first.image[i] for i in shown])
        for subject_trials in (first, *people)
    ]
    compared = human.compare(trials_shown[0], trials_shown[1:], "contrast")
    unanswered = decisions.share("unanswered", (first.response[shown] < 0).sum(), 900)
    assert numbers == [*compared, unanswered] and unanswered.count == 3
    probe_with_classes = human.make(
        root=str(tmp_path), classes=[*class_maps.geirhos16()], **options
    )
    assert (
        probe_with_classes.numbers(
            {"": evals.Decisions(first.response[shown], columns)}
        )
        == numbers
    )
    probe_of_condition = human.make(
        root=str(tmp_path), dataset="contrast/c30", files=images
    )
    assert (
        probe_of_condition.numbers(
            {"": evals.Decisions(first.response[shown], columns)}
        )
        == numbers
    )
    del columns["index"]
    with pytest.raises(ValueError, match="must have a column index"):
        human_probe.numbers({"": evals.Decisions(first.response[shown], columns)})


def test_people_are_compared_only_on_the_same_images():
    """The class of an image in people's trials must be its class in the set."""
    first, *people = read_oracle("contrast")
    files = [f"cat/{name}.png" for name in first.image]
    options = dict(dataset="contrast", files=files, people=people)
    label = first.category.copy()
    decided = evals.Decisions(first.response, {"label": label})
    assert human.numbers({"": decided}, **options)
    label[7] = (label[7] + 1) % 16
    with pytest.raises(
        ValueError, match="must be about the images of the set, got '0007"
    ):
        human.numbers({"": decided}, **options)
    options["files"] = [files[0], files[0], *files[2:]]
    with pytest.raises(ValueError, match="different names, got '0000' twice"):
        human.numbers({"": decided}, **options)


def test_classes_are_compared_by_name_in_any_order():
    """A network may have the 16 classes in another order, and further classes."""
    first, *people = read_oracle("contrast")
    files = [f"cat/{name}.png" for name in first.image]
    options = dict(dataset="contrast", files=files, people=people)
    expected = human.compare(first, people, "contrast")
    order = np.random.default_rng(0).permutation(17)
    classes = [(*class_maps.geirhos16(), "camel")[i] for i in order]
    place = np.append(np.argsort(order)[:16], -1)  # By the number among the sixteen.
    response = np.where(first.response < 0, order.argmax(), place[first.response])
    decided = evals.Decisions(response, {"label": place[first.category]})
    assert human.numbers({"": decided}, classes=classes, **options) == expected
    wrong_label = place[(first.category + 1) % 16]
    decided = evals.Decisions(response, {"label": wrong_label})
    with pytest.raises(ValueError, match="must be about the images of the set"):
        human.numbers({"": decided}, classes=classes, **options)
    with pytest.raises(ValueError, match="decision classes must be Geirhos' 16"):
        human.numbers({"": decided}, classes=["a"] * 17, **options)


def test_means_over_sets():
    number = evals.Number
    numbers_of_sets = [
        [
            number("error_consistency", i / 10, None, 10),
            number("ood_accuracy", 0.5, 5, 10),
        ]
        for i in range(17)
    ]
    means = human.overall(dict(zip(human.SETS, numbers_of_sets)))
    assert [(n.metric, n.value, n.n, n.condition) for n in means] == [
        ("ood_accuracy", 0.5, 17, ""),
        ("error_consistency", pytest.approx(0.8), 17, ""),
    ]
    (_, partial_mean) = human.overall(dict(zip(human.SETS[:3], numbers_of_sets)))
    assert (partial_mean.condition, partial_mean.n) == ("3 of 17 sets", 3)
    with pytest.raises(ValueError, match="must be some of edge, .*, got .'cats'"):
        human.overall({"cats": numbers_of_sets[0]})


def test_sets_and_their_excluded_conditions():
    """Twelve of 17 sets are parametric and have some conditions that do not count."""
    assert len(set(human.SETS)) == 17 and len(human.EXCLUDED) == 12
    for name, excluded in human.EXCLUDED.items():
        conditions = human.geirhos.CONDITIONS[name]
        assert excluded < set(conditions)


@cases.each(
    ("name", "expected_id"),
    [
        ("0001_cop_s01_c30_knife_10_n03041632_7380.png", "n03041632_7380"),
        ("session-1/0001_cop_dnn_c30_knife_10_n03041632_7380.JPEG", "n03041632_7380"),
        ("0001_s5n_s01_0_bird_00_bird3-bird2.png", "bird3-bird2"),
        ("bird/bird3-bird2.png", "bird3-bird2"),
        ("0001_ske_s01_0_boat_00_boat-0068-sketch-23.png", "boat-0068-sketch-23"),
        ("airplane4.png", "airplane4"),
    ],
)
def test_image_ids_do_not_depend_on_the_subject(name, expected_id):
    assert human_answers.image_id(name) == expected_id


HEADER = ",".join(human_answers.COLUMNS)
LINE = "subject-01,1,1,0.7,{},{},{},1_x_s01_0_cat_00_{}.png"


@cases.each(
    ("lines", "message"),
    [
        ((), "must have a line for each image, got the header"),
        (("a,b",), ":2: must have 8 cells, as the header, got 2"),
        (
            (LINE.format("kat", "cat", "0", "a"),),
            ":2: object_response must .*'kat'.*cat",
        ),
        ((LINE.format("cat", "na", "0", "a"),), ":2: category must .*'na'"),
        ((f"s,1,1,1,cat,cat,c30,{' '}",), ":2: imagename must not be empty"),
        ((LINE[10:].format("cat", "cat", "c30", "a"),), ":2: subj must not be empty"),
        ((LINE.format("na", "cat", "c31", "a"),), ":2: condition must .*c30.*'c31'"),
        (
            (LINE.format("na", "cat", "c30", "a"),) * 2,
            ":3: an image must be answered once, got 'a' again after line 2",
        ),
        (
            (
                LINE.format("na", "cat", "c30", "a"),
                LINE.format("na", "cat", "c30", "b").replace("01", "02", 1),
            ),
            ":3: a file must be of one subject, got 'subject-02' after 'subject-01'",
        ),
    ],
)
def test_wrong_files_are_refused_by_line(tmp_path, lines, message):
    path = tmp_path / "answers.csv"
    path.write_text("\n".join((HEADER, *lines)) + "\n")
    with pytest.raises(ValueError, match=message) as error_info:
        human_answers.read(str(path), "contrast")
    assert "\n" not in str(error_info.value) and str(path) in str(error_info.value)


def test_other_files_and_folders_are_refused(tmp_path):
    path = tmp_path / "answers.csv"
    path.write_text("subj,trial\n")
    with pytest.raises(
        ValueError, match=":1: the header must have .* session does not"
    ):
        human_answers.read(str(path))
    with pytest.raises(ValueError, match="answers must be a CSV file in UTF-8"):
        human_answers.read(str(tmp_path / "none.csv"))
    with pytest.raises(base.Missing, match="must hold people's answers on edge"):
        human_answers.people(str(tmp_path), "edge")
    with pytest.raises(ValueError, match="root must be a folder of people's answers"):
        human.make()
    with pytest.raises(
        ValueError, match="must be one of model-vs-human's, got 'edges'"
    ):
        human.make(root=str(tmp_path), dataset="edges")
    with pytest.raises(ValueError, match="files must be the names"):
        human.make(root=str(tmp_path), dataset="edge")


def test_all_people_must_have_the_same_images(tmp_path):
    first, second, *_ = read_oracle("contrast")
    write_trials(tmp_path, "contrast", first)
    write_trials(tmp_path, "contrast", second.select(second.image[:-1]))
    with pytest.raises(ValueError, match=r"must have the same images.*\(image\)"):
        human_answers.people(str(tmp_path), "contrast")
    duplicate = tmp_path / "contrast_subject-02_session_1.csv"
    duplicate.write_text((tmp_path / "contrast_subject-01_session_1.csv").read_text())
    with pytest.raises(ValueError, match="a subject must have one file"):
        human_answers.people(str(tmp_path), "contrast")
    with pytest.raises(ValueError, match="1 of 2 lack, first 'x'; compare answers"):
        first.select([first.image[0], "x"])
