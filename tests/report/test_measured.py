"""Page of measured networks: sections, numbers, warnings, and notes on missing measures."""

import dataclasses
import itertools
import json
import pathlib
import re
import shutil

import numpy as np
import pandas as pd
import pytest

from jbias.data import class_maps, corruptions
from jbias.evals import registry
from jbias.measures import (
    accuracy,
    calibration,
    corruption_error,
    critical_band,
    cue_conflict,
    cue_reliance,
    decisions,
    human,
    human_answers,
    spectral_bias,
)
from jbias.measures.decisions import Number
from jbias.report import (
    biases,
    cli,
    correlate,
    distortion,
    document,
    measured,
    network_records,
    tables,
)
from jbias.report.pages.networks import (
    accuracy_sections,
    frequency_sections,
    network_blocks,
    networks_page,
    shape_sections,
)
from jbias.runs import results
from tests import cases
from tests.report import measure_files

pytestmark = pytest.mark.slow

NAMES = (*class_maps.geirhos16(),)
K, N = len(NAMES), 64
SITES = ("stem", "stage1", "stage2")


def fake_decisions(rng, accuracy, **columns):
    """Return stored decisions, correct with probability `accuracy`."""
    label = np.arange(N) % K
    wrong = (label + 1 + rng.integers(K - 1, size=N)) % K
    prediction = np.where(rng.random(N) < accuracy, label, wrong)
    columns |= {"label": label, "index": np.arange(N)}
    columns |= {name: rng.random(N) for name in ("confidence", "likelihood")}
    return decisions.Decisions(prediction, columns)


def fake_critical_band(rng):
    """Return numbers of a network that noise in the two middle octaves harms from 0.04 on.

    Noise in the other octaves harms only at the largest strength.
    """
    lowest, *middle, highest = critical_band.octave_frequencies(32)
    weakest_harmful = dict.fromkeys((lowest, highest), 0.16)
    weakest_harmful |= dict.fromkeys(middle, 0.04)
    shares = {critical_band.CLEAN: 0.9}
    for sigma in critical_band.SIGMAS[1:]:
        for frequency, harmful in weakest_harmful.items():
            name = critical_band.condition_name(sigma, frequency)
            shares[name] = 0.2 if sigma >= harmful else 0.9
    decisions_by_condition = {
        name: fake_decisions(rng, share) for name, share in shares.items()
    }
    return critical_band.bvg_numbers(
        decisions_by_condition, side=32, draws=20, seed=0, continuous=False
    )


def fake_spectral(rng):
    cuts = (0.1, 0.2, 0.3, 0.4, 0.5, 0.9)
    names = [
        spectral_bias.condition_name(c, high=high)
        for high in (False, True)
        for c in cuts
    ]
    decisions_by_condition = {
        name: fake_decisions(rng, 0.5) for name in (spectral_bias.CLEAN, *names)
    }
    return spectral_bias.numbers(decisions_by_condition, draws=20)


def fake_suppression(rng):
    """Return numbers of a network whose accuracy falls with the number of shuffled tiles."""
    every = itertools.chain(*cue_reliance.FAMILIES.values())
    shares = {name: 0.9 for name in ("", *every)}
    for condition in shares:
        for kind, strength in cue_reliance.steps(condition):
            shares[condition] -= 0.04 * strength * (kind == "shuffle")
    decisions_by_condition = {
        name: fake_decisions(rng, share) for name, share in shares.items()
    }
    return cue_reliance.numbers(decisions_by_condition, classes=K, draws=20)


def fake_attack(metric, counts):
    return [
        Number(metric, count / N, count, N, f"linf {budget}/255")
        for budget, count in counts.items()
    ]


def fake_decoding():
    numbers = [
        Number(f"{f}_decoding_chance", 1 / K, 4, N) for f in ("shape", "texture")
    ]
    for i, site in enumerate(SITES):
        for factor, count in (("shape", 8 + 4 * i), ("texture", 20 - 4 * i)):
            name = f"{factor}_decoding"
            numbers.append(Number(name, count / N, count, N, site))
            numbers.append(Number(f"{name}_shuffled", 4 / N, 4, N, site))
    return numbers


def fake_receptive_fields():
    return [
        Number(f"receptive_{quantity}", value, None, N, f"{site} {share}%")
        for site in SITES
        for share, value in ((50, 2.0), (95, 7.5))
        for quantity in ("area", "radius")
    ]


def fake_measurements(seed, people):
    """Return numbers and decisions of one network by (measure, probe, set)."""
    rng = np.random.default_rng(seed)
    plain = fake_decisions(rng, 0.75)
    conflict = fake_decisions(rng, 0.3, texture=(np.arange(N) * 7 + 3) % K)
    files = [f"{NAMES[i % K]}{i}-{NAMES[(i * 7 + 3) % K]}{i}.png" for i in range(N)]
    people_options = dict(dataset="cue-conflict", files=files, people=people)
    corrupted = {
        f"{name}-{severity}": fake_decisions(rng, 1 / severity)
        for name in list(corruptions.CORRUPTIONS)[:3]
        for severity in (1, 5)
    }
    right = int((plain.prediction == plain.columns["label"]).sum())
    overall = [Number("accuracy", right / N, right, N)]
    plain_decisions = {"": plain}
    return {
        ("accuracy", "plain", "imagenet"): (overall, None),
        ("accuracy", "plain", "cue-conflict"): (overall, None),
        ("accuracy", "plain", "fog-3"): (overall, None),
        ("shape_bias", "shape_bias", "cue-conflict"): (
            cue_conflict.numbers({"": conflict, "mean_logit": conflict}, classes=NAMES),
            None,
        ),
        ("human", "human", "cue-conflict"): (
            human.numbers({"": conflict}, **people_options),
            None,
        ),
        ("spectral", "spectral", "imagenet"): (fake_spectral(rng), None),
        ("suppression", "suppression", "imagenet"): (fake_suppression(rng), None),
        ("critical_band", "critical_band", "imagenet"): (fake_critical_band(rng), None),
        ("imagenet_c", "corruptions", "imagenet"): (
            corruption_error.numbers(corrupted),
            None,
        ),
        ("pgd", "pgd", "imagenet"): (fake_attack("pgd_accuracy", {0.5: 9}), None),
        ("fgsm", "fgsm", "imagenet"): (
            fake_attack("fgsm_accuracy", {0.25: 50, 0.5: 30, 1: 10}),
            None,
        ),
        ("calibration", "calibration", "imagenet"): (
            calibration.numbers(plain_decisions),
            plain_decisions,
        ),
        ("classes", "classes", "imagenet"): (
            accuracy.class_numbers(plain_decisions, classes=NAMES),
            plain_decisions,
        ),
        ("decoding", "decoding", "cue-conflict"): (fake_decoding(), None),
        ("receptive_field", "receptive_field", "imagenet"): (
            fake_receptive_fields(),
            None,
        ),
    }


def write(folder, run, measurements, root="", missing=(), **changed_fields):
    """Write a workdir like those of `jbias evaluate --suite`."""
    fields = dict(run=run, algorithm=run, variant="", model="resnet50", seed=0)
    fields |= dict(train_data="imagenet", stage=0, step=0, epoch=0.0) | changed_fields
    measures = {}
    for (measure, probe, dataset), (
        numbers,
        decisions_by_condition,
    ) in measurements.items():
        options = {"root": str(root)} if probe == "human" else {}
        description = {"measure": {"probe": probe, "options": options}, "images": N}
        if probe == "shape_bias":
            description["measure"]["aggregates"] = ["mean_prob", "mean_logit"]
        reuses_decisions = (
            probe == "calibration"
        )  # Reads the decisions of the plain accuracy.
        description |= {
            "seconds": None if reuses_decisions else 2.0,
            "precision": "float32",
            "classes": NAMES,
        }
        measure_files.write(
            folder,
            fields,
            measure,
            dataset,
            numbers,
            description,
            decisions_by_condition,
        )
        measures.setdefault(measure, {"sets": []})["sets"].append(dataset)
    for measure, dataset in missing:
        measures.setdefault(measure, {"sets": []})["sets"].append(dataset)
    config = {"algorithm": run, "model": {"name": "resnet50"}, "category": "texture"}
    config |= {"run": {"digest": f"{run}'s", "path": f"{run}.pth"}}
    (folder / "config.json").write_text(json.dumps(config))
    provenance = {"missing": {"edge": "no folder"}, "suite": {"measures": measures}}
    provenance |= {"device": {"kind": "cpu", "count": 1}, "packages": {"jax": "0.10.2"}}
    provenance |= {"data": {"cue-conflict": {"name": "geirhos/cue-conflict"}}}
    (folder / "provenance.json").write_text(json.dumps(provenance))


@pytest.fixture(scope="module")
def people_dir(tmp_path_factory):
    """Return a folder with decisions of two people on the cue conflicts."""
    folder = tmp_path_factory.mktemp("people") / "cue-conflict"
    folder.mkdir()
    rng = np.random.default_rng(9)
    for person in ("subject-01", "subject-02"):
        rows = [",".join(human_answers.COLUMNS)]
        for i in range(N):
            shape, texture = NAMES[i % K], NAMES[(i * 7 + 3) % K]
            answer = shape if rng.random() < 0.9 else texture
            image = f"000{i}_cue_p_00_{shape}_00_{shape}{i}-{texture}{i}.png"
            rows.append(f"{person},1,{i},0.5,{answer},{shape},0,{image}")
        path = folder / f"cue-conflict_{person}_session_1.csv"
        path.write_text("\n".join(rows))
    return folder.parent


@pytest.fixture(scope="module")
def workdirs(tmp_path_factory, people_dir):
    """Return a folder of two networks with all measures, and one with accuracy only."""
    folder = tmp_path_factory.mktemp("measured")
    people = human_answers.people(str(people_dir), "cue-conflict")
    for seed, run in enumerate(("resnet50", "sin_only")):
        unmeasured = [("pgd", "edge"), ("classes", "val")]
        write(
            folder / run,
            run,
            fake_measurements(seed, people),
            people_dir,
            missing=unmeasured,
        )
    accuracy_only = {
        ("accuracy", "plain", "imagenet"): ([Number("accuracy", 0.5, 32, N)], None)
    }
    write(folder / "zero", "zero", accuracy_only)
    return folder


@pytest.fixture(scope="module")
def report_dir(workdirs, tmp_path_factory):
    out = tmp_path_factory.mktemp("page")
    assert measured.main([f"--measured={workdirs}/*", f"--out={out}"]) == 0
    return out


@pytest.mark.slow
def test_every_measure_has_a_section_figures_and_tables(report_dir, people_dir):
    page = (report_dir / "index.html").read_text()
    sections = re.findall(r'<section id="(\w+)">', page)
    people = human_answers.people(str(people_dir), "cue-conflict")
    probes = {probe for _, probe, _ in fake_measurements(0, people)}
    entries = registry.page_entries().items()
    shown = [entry.name for entry, names in entries if probes & {*names}]
    assert sections == ["overview", "caveats", *shown, "made"]
    assert len(shown) == 12
    assert not re.search(r'(?:src|href)="(?:https?:)?//', page)
    figure_files = {path.name for path in (report_dir / "figures").glob("*.svg")}
    assert figure_files == {
        *("accuracy.svg", "shape_bias.svg", "filters.svg", "critical_band.svg"),
        *("corruptions.svg", "corruptions_imagenet.svg", "attacks.svg"),
        *("reliability.svg", "classes.svg"),
        *("suppression.svg", "suppression_curves.svg"),
        *("confusion_1.svg", "confusion_2.svg", "decoding_1.svg", "decoding_2.svg"),
    }
    tables = {path.stem for path in (report_dir / "tables").glob("*.csv")}
    assert tables == {path.stem for path in (report_dir / "tables").glob("*.tex")} | {
        "numbers"
    }


def is_figure(block):
    return isinstance(block, document.Figure)


def draw_figures(measured_networks, notes):
    shown = measure_files.section_blocks(measured_networks, notes)
    return {block.name: block.drawn for _, block in shown if is_figure(block)}


def test_ids_of_imagenet_classes_are_shown_with_names():
    ids = ("n01440764", "n02012849", "mine")
    label = np.array([0, 0, 1, 1, 2])
    decisions_by_condition = {
        "": decisions.Decisions(np.array([0, 1, 1, 1, 2]), {"label": label})
    }
    place = network_records.Measurement("classes", "imagenet")

    class Network:
        name, numbers = (
            "x",
            {place: accuracy.class_numbers(decisions_by_condition, classes=ids)},
        )
        measurements_of = staticmethod(lambda probe: [place])
        read_decisions = staticmethod(lambda place: decisions_by_condition)
        classes = staticmethod(lambda place: ids)

    counts = network_blocks.NetworksPage([Network], False, []).class_counts(
        "classes", "class_accuracy"
    )
    class_names = ("tench (n01440764)", "crane (n02012849)", "mine")
    assert counts == {
        "imagenet": {"x": dict(zip(class_names, [(1, 2), (2, 2), (1, 1)]))}
    }
    matrix, names, sizes = accuracy_sections.confusion(Network, place)
    assert names == class_names and matrix[1, 0] == 50 and sizes.tolist() == [2, 2, 1]
    rows = accuracy_sections.confusion_table(
        network_blocks.NetworksPage([Network], False, [])
    ).rows
    # Half of two images, with Wilson's interval.
    assert rows == (
        ("x", "imagenet", class_names[0], class_names[1], "1", "2", "50.0 [9.5, 90.5]"),
    )
    assert Network.numbers[place][0].condition == "class=n01440764"


def test_confusions_are_sorted_by_lower_confidence_limit():
    """11 classes have one image, which is wrong; in one class, 6 of 9 images are wrong."""
    label = np.array([*range(11), *[11] * 9])
    response = np.array([*np.roll(range(11), 1), *[11] * 3, *[0] * 6])
    decisions_by_condition = {"": decisions.Decisions(response, {"label": label})}

    class Network:
        name = "x"
        measurements_of = staticmethod(
            lambda probe: [network_records.Measurement("classes", "test")]
        )
        read_decisions = staticmethod(lambda place: decisions_by_condition)
        classes = staticmethod(lambda place: tuple(map(str, range(12))))

    table = accuracy_sections.confusion_table(
        network_blocks.NetworksPage([Network], False, [])
    )
    assert table.rows[0][2:7] == ("11", "0", "6", "9", "66.7 [35.4, 87.9]")
    assert {row[4:7] for row in table.rows[1:]} == {("1", "1", "100.0 [20.7, 100.0]")}
    assert table.data["low"].is_monotonic_decreasing


def test_corruptions_are_separate_by_set_and_measure(tmp_path, people_dir):
    """Two data sets, and two measures with the same condition, have separate figures."""
    measurements = fake_measurements(
        0, human_answers.people(str(people_dir), "cue-conflict")
    )
    decisions_by_condition = {
        f"{name}-3": decisions.Decisions(np.arange(4) // 2, {"label": np.arange(4)})
        for name in ("fog", "snow")
    }
    numbers = corruption_error.numbers(decisions_by_condition), None
    first = next(iter(corruptions.CORRUPTIONS))
    one_corruption = {f"{first}-1": decisions_by_condition["fog-3"]}
    measurements["again", "corruptions", "imagenet"] = (
        corruption_error.numbers(one_corruption),
        None,
    )
    measurements["there", "corruptions", "cue-conflict"] = numbers
    write(tmp_path / "a", "a", measurements)
    (network,) = network_records.read([str(tmp_path / "a")])
    blocks = [
        block
        for section, block in measure_files.section_blocks([network], [])
        if section == "corruptions"
    ]
    by_set = {block.name: block for block in blocks if not is_figure(block)}
    assert set(by_set) == {
        "corruption_errors",
        "corruptions",
        "corruptions_imagenet_c_imagenet",
        "corruptions_again_imagenet",
        "corruptions_cue-conflict",
    }
    cue_conflict_table = by_set["corruptions_cue-conflict"]
    assert "images of cue-conflict" in cue_conflict_table.caption
    is_correct = (
        decisions_by_condition["fog-3"].prediction
        == decisions_by_condition["fog-3"].columns["label"]
    )
    assert cue_conflict_table.data["accuracy"].tolist() == [is_correct.mean()] * 2
    second_table = by_set["corruptions_again_imagenet"]
    assert "images of imagenet (measure again)" in second_table.caption
    assert len(second_table.data) == 1
    figure_names = [block.name for block in blocks if is_figure(block)]
    assert ["corruption_errors", *figure_names] == [*by_set]


@pytest.mark.slow
def test_tables_have_the_numbers_of_the_records(report_dir, workdirs):
    records = results.read(f"{workdirs}/*")
    accuracy = pd.read_csv(report_dir / "tables/accuracy.csv")
    resnet_accuracies = records[
        (records["run"] == "resnet50") & (records["metric"] == "accuracy")
    ]
    count = resnet_accuracies["count"][
        (resnet_accuracies["dataset"] == "imagenet")
        & (resnet_accuracies["condition"] == "")
    ]
    accuracy_row = accuracy[
        (accuracy["network"] == "resnet50") & (accuracy["set"] == "imagenet")
    ]
    assert (
        accuracy_row["count"].item() == count.item() and accuracy_row["n"].item() == N
    )
    assert "fog-3" not in set(accuracy["set"])  # A corruption is not a data set.
    cells = pd.read_csv(report_dir / "tables/corruptions.csv")
    fog = cells[(cells["corruption"] == "fog") & (cells["network"] == "resnet50")]
    assert fog["severity"].item() == 3 and fog["accuracy"].item() == count.item() / N
    bias = pd.read_csv(report_dir / "tables/shape_bias.csv").set_index(
        ["network", "rule"]
    )
    assert bias.loc["resnet50", "mean_logit"].equals(bias.loc["resnet50", "mean_prob"])
    numbers = pd.read_csv(report_dir / "tables/numbers.csv")
    assert len(numbers) == len(records)
    speed = pd.read_csv(report_dir / "tables/speed.csv")
    reuses_decisions = speed["measure"] == "calibration"
    assert (speed["rate"][~reuses_decisions] == N / 2).all() and speed["rate"][
        reuses_decisions
    ].isna().all()
    report = json.loads((report_dir / "results.json").read_text())
    measures = 2 * 15 + 1
    shown = f"{N * (measures - 2):,} images shown in {measures} measures, "
    assert shown + f"{2 * (measures - 2)} s." in report["basis"]


@pytest.mark.slow
def test_people_are_shown_and_averaged_over_sets(workdirs, report_dir):
    measured_networks = network_records.read([f"{workdirs}/*"])
    notes = []
    figures = draw_figures(measured_networks, notes)
    legend = [
        label.get_text() for label in figures["shape_bias"].legends[0].get_texts()
    ]
    assert legend == ["humans", "resnet50", "sin_only"] and not notes
    rows = figures["shape_bias"].axes[0].get_yticklabels()
    assert [label.get_text() for label in rows] == list(NAMES)
    expected = (
        measured_networks[0]
        .number(("human", "cue-conflict"), "error_consistency")
        .value
    )
    mean = shape_sections.agreement_with_people(measured_networks[0])[
        "error_consistency"
    ]
    assert (mean.value, mean.n) == (expected, 1)
    people = pd.read_csv(report_dir / "tables/people.csv")
    mean = people[people["set"] == "mean of 1 of 17 sets"]
    assert mean["error_consistency"].iloc[0] == pytest.approx(expected)


def test_accuracies_by_degree_of_distortion(tmp_path):
    """Images 0 to 7 are under c50, all others under c10; the network is right under c50."""
    label = np.arange(N) % K
    degree = (np.arange(N) >= 8).astype(int)
    answers = decisions.Decisions(
        np.where(degree, (label + 1) % K, label), {"label": label, "condition": degree}
    )
    image = tuple(str(i) for i in range(N))
    condition_names = tuple(("c50", "c10")[i] for i in degree)
    network_trials = human_answers.Trials(
        "network", image, answers.prediction, label, condition_names
    )
    person = human_answers.Trials("p", image, label, label, condition_names)
    numbers = human.compare(network_trials, [person, person], "contrast")
    measurements = {("human", "human", "contrast"): (numbers, {"": answers})}
    write(tmp_path / "net", "net", measurements)
    path = tmp_path / "net/provenance.json"
    provenance = json.loads(path.read_text())
    values = {"condition": ["c50", "c10"]}
    provenance["data"] = {
        "contrast": {"name": "model_vs_human/contrast", "values": values}
    }
    path.write_text(json.dumps(provenance))
    measured_networks = network_records.read([str(tmp_path / "net")])
    table = shape_sections.degree_table(
        network_blocks.NetworksPage(measured_networks, False, [])
    )
    cells = table.data.set_index("degree")
    assert cells["accuracy"].to_dict() == {"c50": 1, "c10": 0}
    assert cells["n"].to_dict() == {"c50": 8, "c10": N - 8}
    assert set(cells["human_accuracy"]) == {1}


def test_accuracy_without_cues_is_shown_with_people(tmp_path):
    """People and published networks are shown only for images of the people's 16 classes."""
    numbers = fake_suppression(np.random.default_rng(0)), None
    for dataset in ("imagenet16", "test"):
        write(tmp_path / dataset, dataset, {("s", "suppression", dataset): numbers})
        path = tmp_path / dataset / "provenance.json"
        provenance = json.loads(path.read_text())
        provenance["data"] = {dataset: {"name": f"{dataset}/val"}}
        path.write_text(json.dumps(provenance))
    for dataset, rows in (("imagenet16", 7), ("test", 1)):
        (network,) = network_records.read([str(tmp_path / dataset)])
        blocks_by_type = {
            type(block): block
            for section, block in measure_files.section_blocks([network], [])
            if section == "suppression" and block.name == "suppression"
        }
        table = blocks_by_type[tables.Table]
        assert len(table.rows) == rows
        cells = table.data.set_index("network")
        value = network.number(("s", dataset), "relative_accuracy", "shuffle 6").value
        assert cells.loc[dataset, "no_local_shape"] == value
        legend = blocks_by_type[document.Figure].drawn.legends[0].get_texts()
        assert [x.get_text() for x in legend] == [dataset, "humans"][: 1 + rows // 7]
        points = {
            x[:4]: x[4:]
            for x in shape_sections.strength_points(
                network, network_records.Measurement("s", dataset)
            )
        }
        point_above_chance = network.number(
            ("s", dataset), "relative_accuracy_chance", "shuffle 6 grey 1"
        )
        key = ("shuffle grey", "tiles per side", 6.0, dataset)
        assert points[key][0] == point_above_chance.value
        # Of the 68 that were published the channel shuffle alone is no curve.
        assert len(points) == 67 and {x[0] for x in points} == {
            name.replace("_", " ") for name in cue_reliance.FAMILIES
        } - {"people", "channel shuffle"}
        assert ("Published: from other images" in table.caption) == (rows > 1)
    (network,) = network_records.read([str(tmp_path / "imagenet16")])
    bare = [b for _, b in measure_files.section_blocks([network], [], published=False)]
    (table,) = [b for b in bare if b.name == "suppression" and not is_figure(b)]
    assert len(table.rows) == 1 and "Published" not in table.caption


def test_shape_bias_of_networks_at_chance_has_a_note(tmp_path):
    """Wilson's interval reaches 1/16 up to 1.96 sqrt(64 15/256) = 3.8 above 64/16."""
    conflict = fake_decisions(
        np.random.default_rng(3), 0.3, texture=np.arange(N) * 7 % K
    )
    biased = cue_conflict.numbers({"": conflict}, classes=NAMES), None
    for name, right in (("a", 0), ("b", 1), ("c", 7), ("d", 8), ("e", 4)):
        counted = [Number("accuracy", right / N, right, N)], None
        measurements = {("accuracy", "plain", "test"): counted}
        if name != "e":  # Network e has no shape bias, so its accuracy needs no note.
            measurements["shape_bias", "shape_bias", "cue-conflict"] = biased
        write(tmp_path / name, name, measurements)
    measured_networks = network_records.read([f"{tmp_path}/*"])
    (note,) = networks_page.chance_notes(measured_networks)
    assert note.endswith(": a on test, b on test, c on test.")
    assert "Accuracy is no better than chance" in note
    assert note in networks_page.report(measured_networks).results["missing"]
    assert [*networks_page.chance_notes(measured_networks[3:])] == []


def test_overview_explains_its_columns(workdirs):
    def caption(name):
        (network,) = network_records.read([str(workdirs / name)])
        named_blocks = measure_files.section_blocks([network], [])
        return next(b.caption for _, b in named_blocks if b.name == "overview")

    assert caption("zero") == "Accuracies in %."
    full_caption = caption("resnet50")
    assert all(
        words in full_caption
        for words in ("behind the shape bias", "Bandwidth", "with people")
    )


def test_axis_labels_name_the_image_size():
    numbers = {("s", "test"): fake_suppression(np.random.default_rng(0))}
    labels = {}
    for options in ({}, {"reference": 64}):
        measures = {("s", "test"): {"measure": {"options": options}}}
        network = network_records.MeasuredNetwork(
            name="x",
            workdir=pathlib.Path(),
            records=pd.DataFrame(),
            measures=measures,
            config={},
            provenance={},
        )
        network.__dict__["numbers"] = numbers
        points = [
            *shape_sections.strength_points(
                network, network_records.Measurement("s", "test")
            )
        ]
        labels[options.get("reference")] = {x[0]: x[1] for x in points}
    assert labels[None]["bilateral"] == "diameter in pixels of an image of 224 by 224"
    assert labels[64]["bilateral grey"] == "diameter in pixels of an image of 64 by 64"
    assert (
        labels[64]["blur"] == "length of the kernel in pixels of an image of 64 by 64"
    )
    assert labels[64]["shuffle"] == labels[None]["shuffle"] == "tiles per side"


def test_missing_measures_are_listed(report_dir):
    report = json.loads((report_dir / "results.json").read_text())
    attacks = "Attacks: not measured; add the probe pgd or fgsm to the suite of "
    assert f"{attacks}jbias evaluate to measure this: zero." in report["missing"]
    assert "Edge was missing (no folder)." in report["missing"]
    suite_note = "Part of the suite but not measured: classes on val"
    assert f"{suite_note}: resnet50, sin_only." in report["missing"]
    assert not any(line.startswith("Accuracy: ") for line in report["missing"])
    partial_notes = [
        line
        for line in report["missing"]
        if line.startswith("Only a part of imagenet_c ")
    ]
    assert len(partial_notes) == 1 and partial_notes[0].endswith(
        ": resnet50, sin_only."
    )
    rows = {network["network"]: network["row"] for network in report["networks"]}
    assert rows["zero"] == {"imagenet": 50.0}
    assert report["headline"].startswith(
        "Accuracy on imagenet in % from 50.0 (zero) to"
    )


def test_a_shape_bias_of_few_decisions_is_marked(tmp_path, capsys):
    """Two networks rarely decide for a cue, the third always does."""
    label, texture = np.arange(N) % K, (np.arange(N) * 7 + 3) % K
    other = (label + np.where((label + 1) % K == texture, 2, 1)) % K
    sizes = (("a", 4), ("b", 9), ("c", N))
    for run, n in sizes:
        answer = np.where(np.arange(N) < n, label, other)
        decisions_by_condition = {
            "": decisions.Decisions(answer, {"label": label, "texture": texture})
        }
        numbers = cue_conflict.numbers(decisions_by_condition, classes=NAMES)
        measurements = {("shape_bias", "shape_bias", "cue-conflict"): (numbers, None)}
        write(tmp_path / run, run, measurements)
    conflicts = [int((label != texture)[:n].sum()) for _, n in sizes]
    assert conflicts[0] < conflicts[1] < 10 < conflicts[2]
    few = [f"{n}*" for n in conflicts[:2]]
    warning = "A shape bias from fewer than 10 decisions for either cue is unreliable: "
    warning += f"a ({conflicts[0]}), b ({conflicts[1]})."
    named_blocks = [
        *measure_files.section_blocks(network_records.read([f"{tmp_path}/*"]), [])
    ]
    for name in ("overview", "shape_bias"):
        (table,) = [b for _, b in named_blocks if b.name == name and not is_figure(b)]
        column = table.head.index("of")
        assert [row[column] for row in table.rows] == [*few, str(conflicts[2])]
    num_conflicts = int((label != texture).sum())
    shares = [1 - n / num_conflicts for n in conflicts]
    assert table.data["fraction_neither"].tolist() == pytest.approx(shares)
    column = table.head.index("neither")
    assert [float(row[column]) for row in table.rows] == pytest.approx(
        [100 * share for share in shares], abs=0.06
    )
    assert "mrr_shape" not in table.data or table.data["mrr_shape"].isna().all()
    (alone,) = network_records.read([str(tmp_path / "a")])
    neither = f"{100 * shares[0]:.1f} % for neither cue"
    assert neither in networks_page.headline([alone])[0]
    assert measured.main([f"--measured={tmp_path}/*", f"--out={tmp_path / 'out'}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert warning in lines and f"(a, of {few[0]} decisions)" in lines[0]
    # 2 of 16 classes are a cue's, so guessing decides for either in 12.5 %.
    lows = [decisions.wilson_interval(n, num_conflicts)[0] for n in conflicts]
    assert [low <= 0.125 for low in lows] == [True, True, False]
    chance_notes = [
        line
        for line in lines
        if line.startswith("Decisions for either cue are no more")
    ]
    assert len(chance_notes) == 1
    assert chance_notes[0].endswith(": a on cue-conflict, b on cue-conflict.")


def test_one_network_with_accuracy_alone_is_reported(workdirs, tmp_path, capsys):
    folders = [f"--measured={workdirs / 'zero'}", str(workdirs / "zero")]
    assert measured.main([*folders, f"--out={tmp_path}"]) == 0
    assert "50.0 [38.1, 61.9] % right on imagenet." in capsys.readouterr().out
    assert {path.name for path in tmp_path.glob("figures/*.svg")} == {"accuracy.svg"}


def test_duplicate_networks_are_left_out_with_a_note(workdirs, tmp_path, capsys):
    """A copy with fewer measures under another name is left out, with a note."""
    for run, digest in (("zero", "same"), ("resnet50", "same"), ("other", "others")):
        folder = tmp_path / f"of-{run}"
        measurements = {
            ("accuracy", "plain", name): ([Number("accuracy", 0.5, 32, N)], None)
            for name in (("imagenet", "val") if run == "resnet50" else ("imagenet",))
        }
        write(folder, run, measurements)
        path = folder / "config.json"
        path.write_text(path.read_text().replace(f"{run}'s", digest))
    (tmp_path / "of-nothing").mkdir()
    args = [f"--measured={tmp_path}/of-*", f"--out={tmp_path / 'out'}"]
    assert measured.main(args) == 0
    note = "Networks with the same weights, of which the first counts: resnet50, zero."
    lines = capsys.readouterr().out.splitlines()
    assert note in lines
    assert f"No measurements in {tmp_path / 'of-nothing'}." in lines
    tree = json.loads((tmp_path / "out/results.json").read_text())
    assert [network["network"] for network in tree["networks"]] == ["other", "resnet50"]
    assert note in tree["missing"]


@cases.each(
    ("trained", "names"),
    [
        ([{}], ["cnn ERM seed 0"]),
        ([{}, dict(seed=1)], ["cnn ERM seed 0", "cnn ERM seed 1"]),
        (
            [{}, dict(variant="half"), dict(algorithm="pgd"), dict(model="vgg")],
            ["cnn ERM seed 0", "cnn ERM (half) seed 0"]
            + ["cnn PGD seed 0", "vgg ERM seed 0"],
        ),
        (
            [dict(run="erm-a-12", seed=3), dict(run="erm-b-34", seed=3), dict(seed=4)],
            ["cnn ERM seed 3 [12]", "cnn ERM seed 3 [34]", "cnn ERM seed 4"],
        ),
        (
            [dict(run="erm-a-12"), dict(run="erm-b-34", train_data="b")],
            ["cnn ERM seed 0 on imagenet", "cnn ERM seed 0 on b"],
        ),
        (
            [dict(run="erm-a-12", step=8), dict(run="erm-a-12", step=9)],
            ["cnn ERM seed 0 step 8", "cnn ERM seed 0 step 9"],
        ),
    ],
)
def test_names_of_trained_networks_are_words_where_they_can_be(
    trained, names, tmp_path
):
    """Hashes appear only in names of runs with the same model, method and seed."""
    measurements = {
        ("accuracy", "plain", "imagenet"): ([Number("accuracy", 0.5, 32, N)], None)
    }
    for i, changes in enumerate(trained):
        fields = dict(run=f"erm-a-{i}", algorithm="erm", model="cnn") | changes
        write(tmp_path / str(i), fields.pop("run"), measurements, **fields)
        path = tmp_path / str(i) / "config.json"
        config = json.loads(path.read_text()) | {"config": {"algo": {}}}
        config["run"]["digest"] = str(i)
        path.write_text(json.dumps(config))
    write(tmp_path / "file", "resnet50_prime", measurements)
    network_names = [
        network.name for network in network_records.read([f"{tmp_path}/*"])
    ]
    assert (
        network_names[: len(names)] == names and network_names[-1] == "resnet50_prime"
    )


def test_a_folder_of_workdirs_is_read_like_a_glob(workdirs, tmp_path, capsys):
    """A folder of workdirs equals a glob; a folder without workdirs is an error."""
    shutil.copytree(workdirs, tmp_path / "all")
    (tmp_path / "all" / "empty").mkdir()
    for pattern in ("all", "all/", "all/*"):
        patterns = [str(tmp_path / pattern), str(tmp_path / "all" / "zero")]
        names = [network.name for network in network_records.read(patterns, [])]
        assert names == ["resnet50", "sin_only", "zero"]
    folder = tmp_path / "all"
    for command in (biases, distortion, measured):
        (tmp_path / "none").mkdir(exist_ok=True)
        assert command.main([f"--measured={tmp_path / 'none'}", "--out=out"]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.endswith(", or the folder of such workdirs")
    assert len(results.find_workdirs(str(folder))[1]) == 1


def test_headline_has_the_number_of_images_under_pgd(workdirs):
    (network,) = network_records.read([str(workdirs / "resnet50")])
    assert (
        f"{100 * 9 / N:.1f} % of {N} images right under PGD (imagenet, linf 0.5/255)"
        in networks_page.headline([network])[0]
    )


def test_headline_warns_of_chance_and_of_few_images(tmp_path):
    """A network at chance with 64 images gets both warnings, 640 correct ones none."""
    for name, correct, n in (("chance", 4, N), ("good", 600, 640)):
        number = Number("accuracy", correct / n, correct, n)
        write(tmp_path / name, name, {("accuracy", "plain", "test"): ([number], None)})
    bad, good = network_records.read([f"{tmp_path}/*"])
    answer, _ = networks_page.headline([bad, good])
    assert answer.endswith(
        " Caution: accuracy is no better than chance (chance on test); accuracy is from "
        "fewer than 100 images (chance: 64 of test)."
    )
    assert "Caution" not in networks_page.headline([good])[0]


def test_many_networks_get_tables_without_figures(workdirs, tmp_path):
    measured_networks, notes = network_records.read([f"{workdirs}/*"]) * 3, []
    nine_networks = [
        dataclasses.replace(network, name=f"net {i}")
        for i, network in enumerate(measured_networks)
    ]
    named_blocks = [*measure_files.section_blocks(nine_networks, notes)]
    assert "9 networks are too many for figures" in notes[0]
    assert len(notes) == 1 and not any(is_figure(block) for _, block in named_blocks)
    assert "accuracy" in dict(named_blocks)


@pytest.mark.slow
def test_missing_decisions_have_notes(workdirs, tmp_path):
    (network, *_) = network_records.read([f"{workdirs}/resnet50"])
    without_decisions = network_records.MeasuredNetwork(
        network.name,
        tmp_path,
        network.records,
        network.measures,
        network.config,
        network.provenance,
    )
    notes = []
    figures = draw_figures([without_decisions], notes)
    assert not {"reliability", "confusion"} & {*figures} and "classes" in figures
    assert len(notes) == 2 and all("not stored" in note for note in notes)


def test_fitted_critical_bands_match_the_records(workdirs):
    (network, *_) = network_records.read([f"{workdirs}/resnet50"])
    measurement = network_records.Measurement("critical_band", "imagenet")
    assert frequency_sections.why_no_band(network, measurement) is None
    assert set(frequency_sections._FLAG_REASONS) == set(critical_band.FLAGS)
    table = frequency_sections.noise_accuracies(network, measurement)
    assert [*table] == ["2", "4", "8", "16"]
    assert [*table.index] == ["0.16", "0.08", "0.04", "0.02", "0"]
    name = critical_band.condition_name(0.04, 8)
    assert table.loc["0.04", "8"] == network.number(measurement, "accuracy", name).value
    band = frequency_sections.fitted_band(network, measurement, table)
    centre = network.number(measurement, "critical_band_center_frequency").value
    assert 2 * 2**band.centre == pytest.approx(centre)
    width = network.number(measurement, "critical_band_bandwidth").value
    assert band.high - band.low == pytest.approx(width)


def test_a_flagged_critical_band_is_explained_and_not_drawn(workdirs):
    (network, *_) = network_records.read([f"{workdirs}/resnet50"])
    measurement = network_records.Measurement("critical_band", "imagenet")
    number = network.number(measurement, "critical_band_flat")
    network.numbers[measurement].insert(0, number._replace(value=1.0))
    assert (
        frequency_sections.why_no_band(network, measurement)
        == "all octaves do the same harm"
    )
    table = frequency_sections.noise_accuracies(network, measurement)
    assert frequency_sections.fitted_band(network, measurement, table) is None


def test_a_centre_outside_the_octaves_is_explained_and_not_drawn(workdirs):
    """Records of earlier versions, without a flag, get the same explanation."""
    (network, *_) = network_records.read([f"{workdirs}/resnet50"])
    measurement = network_records.Measurement("critical_band", "imagenet")
    table = frequency_sections.noise_accuracies(network, measurement)
    reason = "its centre is above the octaves"
    numbers = network.numbers[measurement]
    name = "critical_band_center_frequency"
    centre = network.number(measurement, name)
    numbers[numbers.index(centre)] = centre._replace(value=276205.5)
    assert frequency_sections.why_no_band(network, measurement) == reason
    assert frequency_sections.fitted_band(network, measurement, table) is None
    numbers[:] = [x._replace(value=None) if x.metric == name else x for x in numbers]
    assert frequency_sections.why_no_band(network, measurement) is None
    flag = network.number(measurement, "critical_band_center_above")
    numbers[numbers.index(flag)] = flag._replace(value=1.0)
    assert frequency_sections.why_no_band(network, measurement) == reason


def test_a_measure_file_without_required_fields_is_refused(workdirs, tmp_path, capsys):
    shutil.copytree(workdirs / "zero", tmp_path / "zero")
    (tmp_path / "zero/measures/accuracy@imagenet.json").write_text('{"measure": {}}')
    args = [f"--measured={tmp_path / 'zero'}", f"--out={tmp_path / 'out'}"]
    assert measured.main(args) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "accuracy@imagenet.json: must have images, seconds" in line


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ("measures", "must be a workdir of `jbias evaluate --suite=...`"),
        ("evals", "must hold evals/*.jsonl"),
    ],
)
def test_a_workdir_without_measures_or_records_is_refused(
    workdirs, tmp_path, capsys, broken, message
):
    copy = tmp_path / "copy"
    shutil.copytree(workdirs / "zero", copy)
    shutil.rmtree(copy / broken)
    out = tmp_path / "out"
    assert measured.main([f"--measured={copy}", f"--out={out}"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("measured: ") and message in line and not out.exists()


@cases.each("command", [biases, cli, correlate, measured])
def test_a_file_as_report_folder_is_refused(command, tmp_path, capsys):
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "report"):
        with pytest.raises(SystemExit) as exit_info:
            command.main([f"--out={path}"])
        assert exit_info.value.code == 2
        line = capsys.readouterr().err.splitlines()[-1]
        assert "--out: must be a folder, got" in line and "name another" in line


def test_attacks_on_two_sets_have_separate_rows(tmp_path):
    """One measure on two sets has a row for each set."""
    measurements = {
        ("pgd", "pgd", dataset): (
            [Number("pgd_accuracy", right / N, right, N, "linf 1/255")],
            None,
        )
        for dataset, right in (("imagenet", 16), ("val", 48))
    }
    write(tmp_path / "a", "a", measurements)
    (network,) = network_records.read([str(tmp_path / "a")])
    (table,) = [
        block
        for section, block in measure_files.section_blocks([network], [])
        if section == "attacks" and not is_figure(block)
    ]
    rows = table.data.set_index("attack")["value"].to_dict()
    assert rows == {
        "imagenet: pgd linf 1/255": 0.25,
        "val: pgd linf 1/255": 0.75,
    }


def test_a_mean_over_severities_needs_every_severity(tmp_path):
    """A network without one of the severities has no mean, and a note says so."""
    answer = decisions.Decisions(np.arange(4) // 2, {"label": np.arange(4)})
    for run, severities in (("all", (3, 5)), ("some", (3,))):
        numbers = corruption_error.numbers({f"fog-{x}": answer for x in severities})
        measurements = {("imagenet_c", "corruptions", "imagenet"): (numbers, None)}
        write(tmp_path / run, run, measurements)
    measured_networks = network_records.read([f"{tmp_path}/*"])
    notes = []
    (table,) = [
        block
        for _, block in measure_files.section_blocks(measured_networks, notes)
        if isinstance(block, tables.Table) and block.name == "corruptions"
    ]
    assert (table.head, table.rows) == (("Corruption", "all"), (("fog", "25.0"),))
    assert (
        len(table.data) == 3
    )  # The CSV file has one row for each severity of each network.
    (note,) = [note for note in notes if "severity" in note]
    assert note.startswith("some: ") and "severity 3 and 5;" in note
