"""The page of measured networks: sections, numbers, warnings, and notes on missing measures."""

import dataclasses
import itertools
import json
import pathlib
import re
import shutil

import numpy as np
import pandas as pd
import pytest

from jbias.data import corruptions, labels
from jbias.evals import (
    accuracy,
    calibration,
    corruption_error,
    critical_band,
    cue_conflict,
    decisions,
    human,
    spectral,
    suppression,
    trials,
)
from jbias.evals.decisions import Number
from jbias.report import (
    biases,
    cli,
    correlate,
    distortion,
    document,
    measured,
    network_page,
    network_records,
    network_sections,
    networks,
    shape_sections,
    tables,
)
from jbias.runs import results
from tests import cases
from tests.report import kept

pytestmark = pytest.mark.slow

NAMES = (*labels.geirhos16(),)
K, N = len(NAMES), 64
SITES = ("stem", "stage1", "stage2")


def decided(rng, accuracy, **columns):
    """Return stored decisions with about this share of correct ones."""
    label = np.arange(N) % K
    wrong = (label + 1 + rng.integers(K - 1, size=N)) % K
    prediction = np.where(rng.random(N) < accuracy, label, wrong)
    columns |= {"label": label, "index": np.arange(N)}
    columns |= {name: rng.random(N) for name in ("confidence", "likelihood")}
    return decisions.Decisions(prediction, columns)


def band(rng):
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
    found = {name: decided(rng, share) for name, share in shares.items()}
    return critical_band.bvg_numbers(found, side=32, draws=20, seed=0, continuous=False)


def filtered(rng):
    cuts = (0.1, 0.2, 0.3, 0.4, 0.5, 0.9)
    names = [
        spectral.condition_name(c, high=high) for high in (False, True) for c in cuts
    ]
    found = {name: decided(rng, 0.5) for name in (spectral.CLEAN, *names)}
    return spectral.numbers(found, draws=20)


def suppressed(rng):
    """Return numbers of a network whose accuracy falls with the number of shuffled tiles."""
    every = itertools.chain(*suppression.FAMILIES.values())
    shares = {name: 0.9 for name in ("", *every)}
    for condition in shares:
        for kind, strength in suppression.steps(condition):
            shares[condition] -= 0.04 * strength * (kind == "shuffle")
    found = {name: decided(rng, share) for name, share in shares.items()}
    return suppression.numbers(found, classes=K, draws=20)


def attacked(metric, counts):
    return [
        Number(metric, count / N, count, N, f"linf {budget}/255")
        for budget, count in counts.items()
    ]


def decoded():
    found = [Number(f"{f}_decoding_chance", 1 / K, 4, N) for f in ("shape", "texture")]
    for i, site in enumerate(SITES):
        for factor, count in (("shape", 8 + 4 * i), ("texture", 20 - 4 * i)):
            name = f"{factor}_decoding"
            found.append(Number(name, count / N, count, N, site))
            found.append(Number(f"{name}_shuffled", 4 / N, 4, N, site))
    return found


def fields():
    return [
        Number(f"receptive_{what}", value, None, N, f"{site} {share}%")
        for site in SITES
        for share, value in ((50, 2.0), (95, 7.5))
        for what in ("area", "radius")
    ]


def everything(seed, people):
    """Return numbers and decisions of one network by (measure, probe, set)."""
    rng = np.random.default_rng(seed)
    plain = decided(rng, 0.75)
    conflict = decided(rng, 0.3, texture=(np.arange(N) * 7 + 3) % K)
    files = [f"{NAMES[i % K]}{i}-{NAMES[(i * 7 + 3) % K]}{i}.png" for i in range(N)]
    alike = dict(dataset="cue-conflict", files=files, people=people)
    corrupted = {
        f"{name}-{severity}": decided(rng, 1 / severity)
        for name in list(corruptions.CORRUPTIONS)[:3]
        for severity in (1, 5)
    }
    right = int((plain.prediction == plain.columns["label"]).sum())
    overall = [Number("accuracy", right / N, right, N)]
    by = {"": plain}
    return {
        ("accuracy", "plain", "imagenet"): (overall, None),
        ("accuracy", "plain", "cue-conflict"): (overall, None),
        ("accuracy", "plain", "fog-3"): (overall, None),
        ("shape_bias", "shape_bias", "cue-conflict"): (
            cue_conflict.numbers({"": conflict, "mean_logit": conflict}, classes=NAMES),
            None,
        ),
        ("human", "human", "cue-conflict"): (
            human.numbers({"": conflict}, **alike),
            None,
        ),
        ("spectral", "spectral", "imagenet"): (filtered(rng), None),
        ("suppression", "suppression", "imagenet"): (suppressed(rng), None),
        ("critical_band", "critical_band", "imagenet"): (band(rng), None),
        ("imagenet_c", "corruptions", "imagenet"): (
            corruption_error.numbers(corrupted),
            None,
        ),
        ("pgd", "pgd", "imagenet"): (attacked("pgd_accuracy", {0.5: 9}), None),
        ("fgsm", "fgsm", "imagenet"): (
            attacked("fgsm_accuracy", {0.25: 50, 0.5: 30, 1: 10}),
            None,
        ),
        ("calibration", "calibration", "imagenet"): (calibration.numbers(by), by),
        ("classes", "classes", "imagenet"): (
            accuracy.class_numbers(by, classes=NAMES),
            by,
        ),
        ("decoding", "decoding", "cue-conflict"): (decoded(), None),
        ("receptive_field", "receptive_field", "imagenet"): (fields(), None),
    }


def write(folder, run, found, root="", missing=(), **about):
    """Write a workdir like those of `jbias evaluate --suite`."""
    fields = dict(run=run, algorithm=run, variant="", model="resnet50", seed=0)
    fields |= dict(train_data="imagenet", stage=0, step=0, epoch=0.0) | about
    asked = {}
    for (measure, probe, dataset), (numbers, by) in found.items():
        options = {"root": str(root)} if probe == "human" else {}
        told = {"measure": {"probe": probe, "options": options}, "images": N}
        if probe == "shape_bias":
            told["measure"]["aggregates"] = ["mean_prob", "mean_logit"]
        again = probe == "calibration"  # The same decisions as another's.
        told |= {
            "seconds": None if again else 2.0,
            "precision": "float32",
            "classes": NAMES,
        }
        kept.write(folder, fields, measure, dataset, numbers, told, by)
        asked.setdefault(measure, {"sets": []})["sets"].append(dataset)
    for measure, dataset in missing:
        asked.setdefault(measure, {"sets": []})["sets"].append(dataset)
    config = {"algorithm": run, "model": {"name": "resnet50"}, "category": "texture"}
    config |= {"run": {"digest": f"{run}'s", "path": f"{run}.pth"}}
    (folder / "config.json").write_text(json.dumps(config))
    facts = {"missing": {"edge": "no folder"}, "suite": {"measures": asked}}
    facts |= {"device": {"kind": "cpu", "count": 1}, "packages": {"jax": "0.10.2"}}
    facts |= {"data": {"cue-conflict": {"name": "geirhos/cue-conflict"}}}
    (folder / "provenance.json").write_text(json.dumps(facts))


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    """Return a folder with decisions of two people on the cue conflicts."""
    folder = tmp_path_factory.mktemp("people") / "cue-conflict"
    folder.mkdir()
    rng = np.random.default_rng(9)
    for who in ("subject-01", "subject-02"):
        rows = [",".join(trials.COLUMNS)]
        for i in range(N):
            shape, texture = NAMES[i % K], NAMES[(i * 7 + 3) % K]
            answer = shape if rng.random() < 0.9 else texture
            image = f"000{i}_cue_p_00_{shape}_00_{shape}{i}-{texture}{i}.png"
            rows.append(f"{who},1,{i},0.5,{answer},{shape},0,{image}")
        path = folder / f"cue-conflict_{who}_session_1.csv"
        path.write_text("\n".join(rows))
    return folder.parent


@pytest.fixture(scope="module")
def workdirs(tmp_path_factory, raw):
    """Return a folder of two networks with all measures, and one with accuracy only."""
    folder = tmp_path_factory.mktemp("measured")
    people = trials.people(str(raw), "cue-conflict")
    for seed, run in enumerate(("resnet50", "sin_only")):
        lost = [("pgd", "edge"), ("classes", "val")]
        write(folder / run, run, everything(seed, people), raw, missing=lost)
    least = {
        ("accuracy", "plain", "imagenet"): ([Number("accuracy", 0.5, 32, N)], None)
    }
    write(folder / "zero", "zero", least)
    return folder


@pytest.fixture(scope="module")
def made(workdirs, tmp_path_factory):
    out = tmp_path_factory.mktemp("page")
    assert measured.main([f"--measured={workdirs}/*", f"--out={out}"]) == 0
    return out


@pytest.mark.slow
def test_every_measure_has_its_part(made):
    page = (made / "index.html").read_text()
    sections = re.findall(r'<section id="(\w+)">', page)
    assert sections == [
        *("overview", "caveats", "accuracy", "shape_bias", "people", "spectral"),
        *(
            "suppression",
            "critical_band",
            "corruptions",
            "attacks",
            "calibration",
            "classes",
        ),
        *("decoding", "receptive_field", "made"),
    ]
    assert not re.search(r'(?:src|href)="(?:https?:)?//', page)
    drawn = {path.name for path in (made / "figures").glob("*.svg")}
    assert drawn == {
        *("accuracy.svg", "shape_bias.svg", "filters.svg", "critical_band.svg"),
        *("corruptions.svg", "corruptions_imagenet.svg", "attacks.svg"),
        *("reliability.svg", "classes.svg"),
        *("suppression.svg", "suppression_curves.svg"),
        *("confusion_1.svg", "confusion_2.svg", "decoding_1.svg", "decoding_2.svg"),
    }
    tables = {path.stem for path in (made / "tables").glob("*.csv")}
    assert tables == {path.stem for path in (made / "tables").glob("*.tex")} | {
        "numbers"
    }


def is_figure(block):
    return isinstance(block, document.Figure)


def drawn(found, notes):
    shown = networks.section_blocks(found, notes)
    return {block.name: block.drawn for _, block in shown if is_figure(block)}


def test_ids_of_imagenet_are_given_words():
    ids = ("n01440764", "n02012849", "mine")
    label = np.array([0, 0, 1, 1, 2])
    by = {"": decisions.Decisions(np.array([0, 1, 1, 1, 2]), {"label": label})}
    place = network_records.Measurement("classes", "imagenet")

    class Network:
        name, numbers = "x", {place: accuracy.class_numbers(by, classes=ids)}
        measurements_of = staticmethod(lambda probe: [place])
        read_decisions = staticmethod(lambda place: by)
        classes = staticmethod(lambda place: ids)

    counts = network_page.Page([Network], False, []).class_counts(
        "classes", "class_accuracy"
    )
    told = ("tench (n01440764)", "crane (n02012849)", "mine")
    assert counts == {"imagenet": {"x": dict(zip(told, [(1, 2), (2, 2), (1, 1)]))}}
    matrix, names, sizes = network_sections.confusion(Network, place)
    assert names == told and matrix[1, 0] == 50 and sizes.tolist() == [2, 2, 1]
    rows = network_sections.confusion_table(
        network_page.Page([Network], False, [])
    ).rows
    # Half of two images, with Wilson's interval.
    assert rows == (("x", "imagenet", told[0], told[1], "1", "2", "50.0 [9.5, 90.5]"),)
    assert Network.numbers[place][0].condition == "class=n01440764"


def test_confusions_of_many_images_go_before_those_of_one():
    """11 classes have one image, which is wrong; in one class, 6 of 9 images are wrong."""
    label = np.array([*range(11), *[11] * 9])
    response = np.array([*np.roll(range(11), 1), *[11] * 3, *[0] * 6])
    by = {"": decisions.Decisions(response, {"label": label})}

    class Network:
        name = "x"
        measurements_of = staticmethod(
            lambda probe: [network_records.Measurement("classes", "test")]
        )
        read_decisions = staticmethod(lambda place: by)
        classes = staticmethod(lambda place: tuple(map(str, range(12))))

    table = network_sections.confusion_table(network_page.Page([Network], False, []))
    assert table.rows[0][2:7] == ("11", "0", "6", "9", "66.7 [35.4, 87.9]")
    assert {row[4:7] for row in table.rows[1:]} == {("1", "1", "100.0 [20.7, 100.0]")}
    assert table.data["low"].is_monotonic_decreasing


def test_corruptions_are_separate_by_set_and_measure(tmp_path, raw):
    """Each data set has its own figure; so have two measures that share a condition."""
    found = everything(0, trials.people(str(raw), "cue-conflict"))
    once = {
        f"{name}-3": decisions.Decisions(np.arange(4) // 2, {"label": np.arange(4)})
        for name in ("fog", "snow")
    }
    numbers = corruption_error.numbers(once), None
    first = next(iter(corruptions.CORRUPTIONS))
    other = {f"{first}-1": once["fog-3"]}
    found["again", "corruptions", "imagenet"] = corruption_error.numbers(other), None
    found["there", "corruptions", "cue-conflict"] = numbers
    write(tmp_path / "a", "a", found)
    (one,) = network_records.read([str(tmp_path / "a")])
    mine = [
        b
        for section, b in networks.section_blocks([one], [])
        if section == "corruptions"
    ]
    by_set = {block.name: block for block in mine if not is_figure(block)}
    assert set(by_set) == {
        "corruption_errors",
        "corruptions",
        "corruptions_imagenet_c_imagenet",
        "corruptions_again_imagenet",
        "corruptions_cue-conflict",
    }
    there = by_set["corruptions_cue-conflict"]
    assert "images of cue-conflict" in there.caption
    right = once["fog-3"].prediction == once["fog-3"].columns["label"]
    assert there.data["accuracy"].tolist() == [right.mean()] * 2
    again = by_set["corruptions_again_imagenet"]
    assert "images of imagenet (measure again)" in again.caption
    assert len(again.data) == 1
    drawn = [block.name for block in mine if is_figure(block)]
    assert ["corruption_errors", *drawn] == [*by_set]


@pytest.mark.slow
def test_tables_have_the_numbers_of_the_records(made, workdirs):
    records = results.read(f"{workdirs}/*")
    accuracy = pd.read_csv(made / "tables/accuracy.csv")
    first = records[(records["run"] == "resnet50") & (records["metric"] == "accuracy")]
    count = first["count"][
        (first["dataset"] == "imagenet") & (first["condition"] == "")
    ]
    mine = accuracy[
        (accuracy["network"] == "resnet50") & (accuracy["set"] == "imagenet")
    ]
    assert mine["count"].item() == count.item() and mine["n"].item() == N
    assert "fog-3" not in set(accuracy["set"])  # One corruption, and no set.
    cells = pd.read_csv(made / "tables/corruptions.csv")
    fog = cells[(cells["corruption"] == "fog") & (cells["network"] == "resnet50")]
    assert fog["severity"].item() == 3 and fog["accuracy"].item() == count.item() / N
    bias = pd.read_csv(made / "tables/shape_bias.csv").set_index(["network", "rule"])
    assert bias.loc["resnet50", "mean_logit"].equals(bias.loc["resnet50", "mean_prob"])
    numbers = pd.read_csv(made / "tables/numbers.csv")
    assert len(numbers) == len(records)
    speed = pd.read_csv(made / "tables/speed.csv")
    again = speed["measure"] == "calibration"
    assert (speed["rate"][~again] == N / 2).all() and speed["rate"][again].isna().all()
    told = json.loads((made / "results.json").read_text())
    measures = 2 * 15 + 1
    shown = f"{N * (measures - 2):,} images shown in {measures} measures, "
    assert shown + f"{2 * (measures - 2)} s." in told["basis"]


@pytest.mark.slow
def test_people_are_shown_and_averaged_over_sets(workdirs, made):
    found = network_records.read([f"{workdirs}/*"])
    notes = []
    figures = drawn(found, notes)
    legend = [told.get_text() for told in figures["shape_bias"].legends[0].get_texts()]
    assert legend == ["humans", "resnet50", "sin_only"] and not notes
    rows = figures["shape_bias"].axes[0].get_yticklabels()
    assert [told.get_text() for told in rows] == list(NAMES)
    own = found[0].number(("human", "cue-conflict"), "error_consistency").value
    mean = shape_sections.agreement_with_people(found[0])["error_consistency"]
    assert (mean.value, mean.n) == (own, 1)
    people = pd.read_csv(made / "tables/people.csv")
    mean = people[people["set"] == "mean of 1 of 17 sets"]
    assert mean["error_consistency"].iloc[0] == pytest.approx(own)


def test_accuracies_by_degree_of_distortion(tmp_path):
    """Images 0 to 7 under c50, the rest under c10; the network is right in the first."""
    label = np.arange(N) % K
    degree = (np.arange(N) >= 8).astype(int)
    answers = decisions.Decisions(
        np.where(degree, (label + 1) % K, label), {"label": label, "condition": degree}
    )
    image = tuple(str(i) for i in range(N))
    told = tuple(("c50", "c10")[i] for i in degree)
    mine = trials.Trials("network", image, answers.prediction, label, told)
    person = trials.Trials("p", image, label, label, told)
    found = human.compare(mine, [person, person], "contrast")
    of = {("human", "human", "contrast"): (found, {"": answers})}
    write(tmp_path / "net", "net", of)
    path = tmp_path / "net/provenance.json"
    facts = json.loads(path.read_text())
    values = {"condition": ["c50", "c10"]}
    facts["data"] = {"contrast": {"name": "model_vs_human/contrast", "values": values}}
    path.write_text(json.dumps(facts))
    found = network_records.read([str(tmp_path / "net")])
    table = shape_sections.degree_table(network_page.Page(found, False, []))
    cells = table.data.set_index("degree")
    assert cells["accuracy"].to_dict() == {"c50": 1, "c10": 0}
    assert cells["n"].to_dict() == {"c50": 8, "c10": N - 8}
    assert set(cells["human_accuracy"]) == {1}


def test_accuracy_without_cues_is_shown_with_people(tmp_path):
    """People and published networks, if images are of the 16 classes that people saw."""
    numbers = suppressed(np.random.default_rng(0)), None
    for dataset in ("imagenet16", "test"):
        write(tmp_path / dataset, dataset, {("s", "suppression", dataset): numbers})
        path = tmp_path / dataset / "provenance.json"
        facts = json.loads(path.read_text())
        facts["data"] = {dataset: {"name": f"{dataset}/val"}}
        path.write_text(json.dumps(facts))
    for dataset, rows in (("imagenet16", 7), ("test", 1)):
        (one,) = network_records.read([str(tmp_path / dataset)])
        shown = {
            type(block): block
            for section, block in networks.section_blocks([one], [])
            if section == "suppression" and block.name == "suppression"
        }
        table = shown[tables.Table]
        assert len(table.rows) == rows
        cells = table.data.set_index("network")
        value = one.number(("s", dataset), "relative_accuracy", "shuffle 6").value
        assert cells.loc[dataset, "no_local_shape"] == value
        legend = shown[document.Figure].drawn.legends[0].get_texts()
        assert [x.get_text() for x in legend] == [dataset, "humans"][: 1 + rows // 7]
        points = {
            x[:4]: x[4:]
            for x in shape_sections.strength_points(
                one, network_records.Measurement("s", dataset)
            )
        }
        above = one.number(
            ("s", dataset), "relative_accuracy_chance", "shuffle 6 grey 1"
        )
        key = ("shuffle grey", "tiles per side", 6.0, dataset)
        assert points[key][0] == above.value
        # Of the 68 that were published the channel shuffle alone is no curve.
        assert len(points) == 67 and {x[0] for x in points} == {
            name.replace("_", " ") for name in suppression.FAMILIES
        } - {"people", "channel shuffle"}
        assert ("Published: from other images" in table.caption) == (rows > 1)
    (one,) = network_records.read([str(tmp_path / "imagenet16")])
    bare = [b for _, b in networks.section_blocks([one], [], published=False)]
    (table,) = [b for b in bare if b.name == "suppression" and not is_figure(b)]
    assert len(table.rows) == 1 and "Published" not in table.caption


def test_shape_bias_of_networks_at_chance_has_a_note(tmp_path):
    """Wilson's interval reaches 1/16 up to 1.96 sqrt(64 15/256) = 3.8 above 64/16."""
    conflict = decided(np.random.default_rng(3), 0.3, texture=np.arange(N) * 7 % K)
    biased = cue_conflict.numbers({"": conflict}, classes=NAMES), None
    for name, right in (("a", 0), ("b", 1), ("c", 7), ("d", 8), ("e", 4)):
        counted = [Number("accuracy", right / N, right, N)], None
        of = {("accuracy", "plain", "test"): counted}
        if name != "e":  # Its accuracy alone makes no claim about cues.
            of["shape_bias", "shape_bias", "cue-conflict"] = biased
        write(tmp_path / name, name, of)
    found = network_records.read([f"{tmp_path}/*"])
    (told,) = networks.chance_notes(found)
    assert told.endswith(": a on test, b on test, c on test.")
    assert "Accuracy is no better than chance" in told
    assert told in networks.report(found).results["missing"]
    assert [*networks.chance_notes(found[3:])] == []


def test_overview_explains_its_columns(workdirs):
    def caption(name):
        (one,) = network_records.read([str(workdirs / name)])
        shown = networks.section_blocks([one], [])
        return next(b.caption for _, b in shown if b.name == "overview")

    assert caption("zero") == "Accuracies in %."
    whole = caption("resnet50")
    assert all(
        words in whole
        for words in ("behind the shape bias", "Bandwidth", "with people")
    )


def test_axis_labels_name_the_image_size():
    numbers = {("s", "test"): suppressed(np.random.default_rng(0))}
    labels = {}
    for options in ({}, {"reference": 64}):
        about = {("s", "test"): {"measure": {"options": options}}}
        of = "x", pathlib.Path(), pd.DataFrame(), about, {}, {}
        one = network_records.MeasuredNetwork(*of)
        one.__dict__["numbers"] = numbers
        points = [
            *shape_sections.strength_points(
                one, network_records.Measurement("s", "test")
            )
        ]
        labels[options.get("reference")] = {x[0]: x[1] for x in points}
    assert labels[None]["bilateral"] == "diameter in pixels of an image of 224 by 224"
    assert labels[64]["bilateral grey"] == "diameter in pixels of an image of 64 by 64"
    assert (
        labels[64]["blur"] == "length of the kernel in pixels of an image of 64 by 64"
    )
    assert labels[64]["shuffle"] == labels[None]["shuffle"] == "tiles per side"


def test_missing_measures_are_listed(made):
    told = json.loads((made / "results.json").read_text())
    attacks = "Attacks: not measured; add the probe pgd or fgsm to the suite of "
    assert f"{attacks}jbias evaluate to measure this: zero." in told["missing"]
    assert "Edge was missing (no folder)." in told["missing"]
    lost = "Part of the suite but not measured: classes on val"
    assert f"{lost}: resnet50, sin_only." in told["missing"]
    assert not any(line.startswith("Accuracy: ") for line in told["missing"])
    some = [
        line
        for line in told["missing"]
        if line.startswith("Only a part of imagenet_c ")
    ]
    assert len(some) == 1 and some[0].endswith(": resnet50, sin_only.")
    rows = {one["network"]: one["row"] for one in told["networks"]}
    assert rows["zero"] == {"imagenet": 50.0}
    assert told["headline"].startswith("Accuracy on imagenet in % from 50.0 (zero) to")


def test_a_shape_bias_of_few_decisions_is_marked(tmp_path, capsys):
    """Two networks rarely decide for a cue, the third always does."""
    label, texture = np.arange(N) % K, (np.arange(N) * 7 + 3) % K
    other = (label + np.where((label + 1) % K == texture, 2, 1)) % K
    sizes = (("a", 4), ("b", 9), ("c", N))
    for run, n in sizes:
        answer = np.where(np.arange(N) < n, label, other)
        found = {"": decisions.Decisions(answer, {"label": label, "texture": texture})}
        numbers = cue_conflict.numbers(found, classes=NAMES)
        of = {("shape_bias", "shape_bias", "cue-conflict"): (numbers, None)}
        write(tmp_path / run, run, of)
    conflicts = [int((label != texture)[:n].sum()) for _, n in sizes]
    assert conflicts[0] < conflicts[1] < 10 < conflicts[2]
    few = [f"{n}*" for n in conflicts[:2]]
    told = "A shape bias from fewer than 10 decisions for either cue is unreliable: "
    told += f"a ({conflicts[0]}), b ({conflicts[1]})."
    shown = [*networks.section_blocks(network_records.read([f"{tmp_path}/*"]), [])]
    for name in ("overview", "shape_bias"):
        (table,) = [b for _, b in shown if b.name == name and not is_figure(b)]
        column = table.head.index("of")
        assert [row[column] for row in table.rows] == [*few, str(conflicts[2])]
    several = int((label != texture).sum())
    shares = [1 - n / several for n in conflicts]
    assert table.data["fraction_neither"].tolist() == pytest.approx(shares)
    column = table.head.index("neither")
    assert [float(row[column]) for row in table.rows] == pytest.approx(
        [100 * share for share in shares], abs=0.06
    )
    assert "mrr_shape" not in table.data or table.data["mrr_shape"].isna().all()
    (alone,) = network_records.read([str(tmp_path / "a")])
    neither = f"{100 * shares[0]:.1f} % for neither cue"
    assert neither in networks.headline([alone])[0]
    assert measured.main([f"--measured={tmp_path}/*", f"--out={tmp_path / 'out'}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert told in lines and f"(a, of {few[0]} decisions)" in lines[0]
    # 2 of 16 classes are a cue's, so guessing decides for either in 12.5 %.
    lows = [decisions.wilson_interval(n, several)[0] for n in conflicts]
    assert [low <= 0.125 for low in lows] == [True, True, False]
    guessed = [
        line
        for line in lines
        if line.startswith("Decisions for either cue are no more")
    ]
    assert len(guessed) == 1
    assert guessed[0].endswith(": a on cue-conflict, b on cue-conflict.")


def test_one_network_with_next_to_nothing(workdirs, tmp_path, capsys):
    folders = [f"--measured={workdirs / 'zero'}", str(workdirs / "zero")]
    assert measured.main([*folders, f"--out={tmp_path}"]) == 0
    assert "50.0 [38.1, 61.9] % right on imagenet." in capsys.readouterr().out
    assert {path.name for path in tmp_path.glob("figures/*.svg")} == {"accuracy.svg"}


def test_duplicate_networks_are_left_out_with_a_note(workdirs, tmp_path, capsys):
    """A copy with fewer measures under another name is left out, with a note."""
    for run, digest in (("zero", "same"), ("resnet50", "same"), ("other", "others")):
        folder = tmp_path / f"of-{run}"
        least = {
            ("accuracy", "plain", name): ([Number("accuracy", 0.5, 32, N)], None)
            for name in (("imagenet", "val") if run == "resnet50" else ("imagenet",))
        }
        write(folder, run, least)
        path = folder / "config.json"
        path.write_text(path.read_text().replace(f"{run}'s", digest))
    (tmp_path / "of-nothing").mkdir()
    args = [f"--measured={tmp_path}/of-*", f"--out={tmp_path / 'out'}"]
    assert measured.main(args) == 0
    told = "Networks with the same weights, of which the first counts: resnet50, zero."
    lines = capsys.readouterr().out.splitlines()
    assert told in lines
    assert f"No measurements in {tmp_path / 'of-nothing'}." in lines
    tree = json.loads((tmp_path / "out/results.json").read_text())
    assert [one["network"] for one in tree["networks"]] == ["other", "resnet50"]
    assert told in tree["missing"]


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
    least = {
        ("accuracy", "plain", "imagenet"): ([Number("accuracy", 0.5, 32, N)], None)
    }
    for i, about in enumerate(trained):
        own = dict(run=f"erm-a-{i}", algorithm="erm", model="cnn") | about
        write(tmp_path / str(i), own.pop("run"), least, **own)
        path = tmp_path / str(i) / "config.json"
        held = json.loads(path.read_text()) | {"config": {"algo": {}}}
        held["run"]["digest"] = str(i)
        path.write_text(json.dumps(held))
    write(tmp_path / "file", "resnet50_prime", least)
    found = [one.name for one in network_records.read([f"{tmp_path}/*"])]
    assert found[: len(names)] == names and found[-1] == "resnet50_prime"


def test_a_folder_of_workdirs_stands_for_them(workdirs, tmp_path, capsys):
    """A folder of workdirs equals a glob; a folder without workdirs is an error."""
    shutil.copytree(workdirs, tmp_path / "all")
    (tmp_path / "all" / "empty").mkdir()
    found = [
        network_records.read(
            [str(tmp_path / one), str(tmp_path / "all" / "zero")], notes
        )
        for one in ("all", "all/", "all/*")
        if (notes := []) is not None
    ]
    assert [[one.name for one in each] for each in found] == [
        ["resnet50", "sin_only", "zero"]
    ] * 3
    folder = tmp_path / "all"
    for of in (biases, distortion, measured):
        (tmp_path / "none").mkdir(exist_ok=True)
        assert of.main([f"--measured={tmp_path / 'none'}", "--out=out"]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.endswith(", or the folder of such workdirs")
    assert len(results.find_workdirs(str(folder))[1]) == 1


def test_headline_has_the_number_of_images_under_pgd(workdirs):
    (one,) = network_records.read([str(workdirs / "resnet50")])
    assert (
        f"{100 * 9 / N:.1f} % of {N} images right under PGD (imagenet, linf 0.5/255)"
        in networks.headline([one])[0]
    )


def test_headline_warns_of_chance_and_of_few_images(tmp_path):
    """A network at chance with 64 images gets both warnings, 640 correct ones none."""
    for name, correct, n in (("chance", 4, N), ("good", 600, 640)):
        number = Number("accuracy", correct / n, correct, n)
        write(tmp_path / name, name, {("accuracy", "plain", "test"): ([number], None)})
    bad, good = network_records.read([f"{tmp_path}/*"])
    answer, _ = networks.headline([bad, good])
    assert answer.endswith(
        " Caution: accuracy is no better than chance (chance on test); accuracy is from "
        "fewer than 100 images (chance: 64 of test)."
    )
    assert "Caution" not in networks.headline([good])[0]


def test_many_networks_get_tables_without_figures(workdirs, tmp_path):
    found, notes = network_records.read([f"{workdirs}/*"]) * 3, []
    many = [dataclasses.replace(one, name=f"net {i}") for i, one in enumerate(found)]
    shown = [*networks.section_blocks(many, notes)]
    assert "9 networks are too many for figures" in notes[0]
    assert len(notes) == 1 and not any(is_figure(block) for _, block in shown)
    assert "accuracy" in dict(shown)


@pytest.mark.slow
def test_missing_decisions_have_notes(workdirs, tmp_path):
    (one, *_) = network_records.read([f"{workdirs}/resnet50"])
    bare = network_records.MeasuredNetwork(
        one.name, tmp_path, one.records, one.measures, one.config, one.provenance
    )
    notes = []
    figures = drawn([bare], notes)
    assert not {"reliability", "confusion"} & {*figures} and "classes" in figures
    assert len(notes) == 2 and all("not stored" in note for note in notes)


def test_critical_bands_lie_in_their_octaves(workdirs):
    (one, *_) = network_records.read([f"{workdirs}/resnet50"])
    place = network_records.Measurement("critical_band", "imagenet")
    assert network_sections.why_no_band(one, place) is None
    assert set(network_sections._FLAG_REASONS) == set(critical_band.FLAGS)
    table = network_sections.noise_accuracies(one, place)
    assert [*table] == ["2", "4", "8", "16"]
    assert [*table.index] == ["0.16", "0.08", "0.04", "0.02", "0"]
    name = critical_band.condition_name(0.04, 8)
    assert table.loc["0.04", "8"] == one.number(place, "accuracy", name).value
    band = network_sections.fitted_band(one, place, table)
    centre = one.number(place, "critical_band_center_frequency").value
    assert 2 * 2**band.centre == pytest.approx(centre)
    width = one.number(place, "critical_band_bandwidth").value
    assert band.high - band.low == pytest.approx(width)


def test_a_flag_of_a_critical_band_is_said_in_words_and_no_band_is_drawn(workdirs):
    (one, *_) = network_records.read([f"{workdirs}/resnet50"])
    place = network_records.Measurement("critical_band", "imagenet")
    number = one.number(place, "critical_band_flat")
    one.numbers[place].insert(0, number._replace(value=1.0))
    assert network_sections.why_no_band(one, place) == "all octaves do the same harm"
    table = network_sections.noise_accuracies(one, place)
    assert network_sections.fitted_band(one, place, table) is None


def test_a_centre_outside_the_octaves_is_said_and_not_shown(workdirs):
    """Also of a record that earlier versions wrote, without a flag."""
    (one, *_) = network_records.read([f"{workdirs}/resnet50"])
    place = network_records.Measurement("critical_band", "imagenet")
    table = network_sections.noise_accuracies(one, place)
    why = "its centre is above the octaves"
    numbers = one.numbers[place]
    name = "critical_band_center_frequency"
    centre = one.number(place, name)
    numbers[numbers.index(centre)] = centre._replace(value=276205.5)
    assert network_sections.why_no_band(one, place) == why
    assert network_sections.fitted_band(one, place, table) is None
    numbers[:] = [x._replace(value=None) if x.metric == name else x for x in numbers]
    assert network_sections.why_no_band(one, place) is None
    flag = one.number(place, "critical_band_center_above")
    numbers[numbers.index(flag)] = flag._replace(value=1.0)
    assert network_sections.why_no_band(one, place) == why


def test_a_measure_of_another_version_is_named(workdirs, tmp_path, capsys):
    shutil.copytree(workdirs / "zero", tmp_path / "zero")
    (tmp_path / "zero/measures/accuracy@imagenet.json").write_text('{"measure": {}}')
    args = [f"--measured={tmp_path / 'zero'}", f"--out={tmp_path / 'out'}"]
    assert measured.main(args) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "accuracy@imagenet.json: must have images, seconds" in line


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("measures", "must be a workdir of `jbias evaluate --suite=...`"),
        ("evals", "must hold evals/*.jsonl"),
    ],
)
def test_refuses_in_one_line(workdirs, tmp_path, capsys, broken, said):
    copy = tmp_path / "copy"
    shutil.copytree(workdirs / "zero", copy)
    shutil.rmtree(copy / broken)
    out = tmp_path / "out"
    assert measured.main([f"--measured={copy}", f"--out={out}"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("measured: ") and said in line and not out.exists()


@cases.each("of", [biases, cli, correlate, measured])
def test_a_file_in_the_place_of_a_report_is_told_at_once(of, tmp_path, capsys):
    (tmp_path / "taken").touch()
    for path in (tmp_path / "taken", tmp_path / "taken" / "report"):
        with pytest.raises(SystemExit) as ended:
            of.main([f"--out={path}"])
        assert ended.value.code == 2
        line = capsys.readouterr().err.splitlines()[-1]
        assert "--out: must be a folder, got" in line and "name another" in line


def test_attacks_on_two_sets_are_told_apart(tmp_path):
    """One measure on two sets has a row for each set."""
    found = {
        ("pgd", "pgd", on): (
            [Number("pgd_accuracy", right / N, right, N, "linf 1/255")],
            None,
        )
        for on, right in (("imagenet", 16), ("val", 48))
    }
    write(tmp_path / "a", "a", found)
    (one,) = network_records.read([str(tmp_path / "a")])
    (table,) = [
        block
        for section, block in networks.section_blocks([one], [])
        if section == "attacks" and not is_figure(block)
    ]
    rows = table.data.set_index("attack")["value"].to_dict()
    assert rows == {
        "imagenet: pgd linf 1/255": 0.25,
        "val: pgd linf 1/255": 0.75,
    }


def test_a_mean_over_severities_is_of_all_or_none(tmp_path):
    """A network without one of the severities has no mean, and a note says so."""
    answer = decisions.Decisions(np.arange(4) // 2, {"label": np.arange(4)})
    for run, severities in (("all", (3, 5)), ("some", (3,))):
        numbers = corruption_error.numbers({f"fog-{x}": answer for x in severities})
        of = {("imagenet_c", "corruptions", "imagenet"): (numbers, None)}
        write(tmp_path / run, run, of)
    found = network_records.read([f"{tmp_path}/*"])
    notes = []
    (table,) = [
        block
        for _, block in networks.section_blocks(found, notes)
        if isinstance(block, tables.Table) and block.name == "corruptions"
    ]
    assert (table.head, table.rows) == (("Corruption", "all"), (("fog", "25.0"),))
    assert len(table.data) == 3  # The CSV file has each severity of each.
    (note,) = [note for note in notes if "severity" in note]
    assert note.startswith("some: ") and "severity 3 and 5;" in note
