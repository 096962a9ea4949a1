"""Cards that were changed and sealed again, with all digests rewritten, are found out."""

import dataclasses
import json
import os
import shutil

import numpy as np
import pytest

from jbias.cards import card, cli, numbers, published, stimuli, tables, verify
from tests.cards import forging, planted


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """Return the folder of a small card of a table of decisions."""
    folder = tmp_path_factory.mktemp("card") / "card"
    table = planted.conflict_table(planted.decide(50, 60, 20, 5))
    card.make(planted.results(table, kind="decisions"), str(folder))
    assert not verify.verify(folder).differences
    return folder


@pytest.fixture
def folder(original, tmp_path):
    """Return a copy of the card that a test may change."""
    return forging.copy(original, tmp_path)


def is_neither(row):
    """Return True for a row that is decided for neither cue."""
    return row[1] not in (row[2], row[3], "na")


def test_rows_without_a_cue_that_were_removed_are_found(original, folder):
    """The number of images, or their names, are others; else the badge says a smaller part."""
    _, rows = forging.read_rows(original)
    rows_with_cue = [row for row in rows if not is_neither(row)]
    assert len(rows_with_cue) == 115
    forging.forge(folder, rows_with_cue)
    lines = "\n".join(verify.verify(folder).differences)
    assert "stimuli of cue-conflict: images is 135 in the card, 115" in lines
    assert "stimuli of cue-conflict: names is" in lines
    forging.forge(folder, rows_with_cue, images=115)
    (line,) = verify.verify(folder).differences
    assert line.startswith("stimuli of cue-conflict: names is")
    names = planted.results(planted.conflict_table({x[0]: x[1] for x in rows_with_cue}))
    entry = names.stimuli["cue-conflict"]
    forging.forge(folder, rows_with_cue, **entry)
    assert not verify.verify(folder).differences
    for name in ("badge.svg", "section.md"):
        assert "115 of 1,280 images" in (folder / name).read_text()
    for total in (115, None, 1281):
        forging.forge(folder, rows_with_cue, **entry | {"published": total})
        (line,) = verify.verify(folder).differences
        assert line.startswith("stimuli of cue-conflict: published is")


def test_another_name_of_the_stimuli_is_found(original, folder):
    _, rows = forging.read_rows(original)
    forging.forge(folder, rows, name="folder drawings", published=None)
    lines = verify.verify(folder).differences
    assert any("is not the published set cue-conflict" in line for line in lines)


def test_images_that_are_not_published_are_found(original, folder):
    _, rows = forging.read_rows(original)
    rows[0][0], rows[1][0] = "airplane77-bicycle2", "000001"
    forging.forge(folder, rows)
    lines = "\n".join(verify.verify(folder).differences)
    assert "geirhos/cue-conflict has no image '000001'" in lines
    assert "lacks 2 of the images in all" in lines


def test_classes_that_are_not_those_of_the_names_are_found(original, folder):
    """A decision for neither cue becomes one for the texture, by another texture; also by none."""
    _, rows = forging.read_rows(original)
    row = next(row for row in rows if is_neither(row))
    texture, row[3] = row[3], row[1]
    forging.forge(folder, rows, **_entry(rows))
    lines = "\n".join(verify.verify(folder).differences)
    assert f"such as {row[1]!r} for {texture!r}" in lines
    row[2] = row[3] = ""
    forging.forge(folder, rows, **_entry(rows))
    lines = "\n".join(verify.verify(folder).differences)
    assert "classes are left out in some of the rows" in lines


def _entry(rows):
    """Return the entry of the stimuli of forged rows."""
    table = tables.Table(
        dataset="cue-conflict",
        num_classes=16,
        images=tuple(row[0] for row in rows),
        label=tuple(row[2] for row in rows),
        texture=tuple(row[3] for row in rows),
        decided={"": tuple(row[1] for row in rows)},
    )
    entry = stimuli.describe(
        published.CUE_CONFLICT, [table], digest="", preprocessing=""
    )
    return {key: x for key, x in entry.items() if key not in ("digest",)}


@pytest.mark.slow
def test_every_decision_that_changes_a_count_is_found(original, folder):
    """Each decision in turn for the other cue, neither or none, with all digests rewritten."""
    content, (header, rows) = planted.read(original), forging.read_rows(original)
    entry = content["decisions"][0]
    for i, row in enumerate(rows):
        for answer in (row[2], row[3], "na"):
            if answer == row[1]:
                continue
            altered = [*rows[:i], [row[0], answer, *row[2:]], *rows[i + 1 :]]
            entry["sha256"] = forging.write_rows(folder, header, altered)
            planted.save(folder, content, sealed=True)
            lines = verify.verify(folder).differences
            assert any(" on cue-conflict: " in line for line in lines), (i, answer)


def test_every_entry_of_the_stimuli_is_checked(original, folder):
    content = planted.read(original)
    for key, value in {
        "name": "geirhos/edge",
        "images": 136,
        "published": 1281,
        "names": "0" * 64,
        "digest": "0" * 64,
    }.items():
        changed = json.loads(json.dumps(content))
        changed["stimuli"]["cue-conflict"][key] = value
        forging.seal(folder, changed)
        assert verify.verify(folder).differences, key


def test_keys_that_are_there_twice_are_refused(original, folder, capsys):
    path = folder / card.FILE
    text = path.read_text()
    for key in ('"value": 0.9,', '"n": 9999,'):
        name = key.partition(":")[0]
        path.write_text(text.replace(f"{name}:", f"{key} {name}:", 1))
        assert cli.main([f"--verify={folder}"]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "is there twice" in line and name.strip('"') in line


def test_files_that_are_not_of_the_card_are_named(original, folder):
    (folder / ".eval_results").mkdir()
    (folder / ".eval_results/jbias.yaml").write_text("- value: 1.0\n")
    (folder / "README.md").write_text("mine")
    (folder / "decisions/more").mkdir()
    (folder / "decisions/more.csv").write_text("mine")
    os.mkfifo(folder / "pipe")
    lines = verify.verify(folder).differences
    assert {line.partition(":")[0] for line in lines} == {
        ".eval_results",
        "README.md",
        "decisions/more",
        "decisions/more.csv",
        "pipe",
    }


def test_forged_results_for_the_hub_are_named(tmp_path):
    table = planted.conflict_table(planted.decide(50, 60, 20, 5))
    hub = {"benchmark": "owner/set", "revision": "", "source": ""}
    folder = tmp_path / "card"
    card.make(planted.results(table), str(folder), hub=hub)
    path = folder / ".eval_results/jbias.yaml"
    path.write_text(path.read_text().replace("value: 0.4", "value: 0.9"))
    (folder / ".eval_results/more.yaml").write_text("- value: 1.0\n")
    assert verify.verify(folder).differences == (
        ".eval_results/jbias.yaml: is not the text that follows from card.json",
        ".eval_results/more.yaml: is not in card.json",
    )


@pytest.mark.parametrize(
    "name", ["badge.svg", "decisions/cue-conflict.csv", "decisions", "card.json"]
)
def test_symbolic_links_are_differences_and_not_followed(
    name, folder, tmp_path, capsys
):
    """The content behind the link is right, and yet is not read."""
    shutil.move(folder / name, tmp_path / "elsewhere")
    (folder / name).symlink_to(tmp_path / "elsewhere")
    code = cli.main([f"--verify={folder}"])
    output = capsys.readouterr()
    assert code == (2 if name == "card.json" else 1)
    assert "symbolic link" in output.out + output.err
    if name != "card.json":
        assert f"difference: {name}: is a symbolic link" in output.out


def test_names_of_sets_and_models_become_safe_names_of_files(tmp_path):
    for name in ("a b", "a:b", "../a", "a/b", "..", "é", ".hidden", "a" * 300):
        safe = tables.safe_name(name)
        assert safe != name and len(safe) < 120
        assert not {*safe} & {*" :/\\"} and safe.isascii() and safe[0] != "."
    assert tables.safe_name("a b") != tables.safe_name("a:b")
    assert tables.safe_name("resnet50.a1_in1k") == "resnet50.a1_in1k"
    table = planted.conflict_table(planted.decide(50, 60, 20, 5))
    renamed = tables.Table(**{**vars(table), "dataset": "my set: 1"})
    folder = tmp_path / "card"
    content = card.make(planted.results(renamed), str(folder))
    (entry,) = content["decisions"]
    assert entry["set"] == "my set: 1" and " " not in entry["file"]
    assert (folder / entry["file"]).exists()
    assert not verify.verify(folder).differences


def test_names_that_look_published_are_found(tmp_path):
    """Made-up images under a name that a reader takes for the published one."""
    renamed = {
        " geirhos/cue-conflict": "cue-conflict ",
        "geirhos/cue-conflict ": "own-cue-conflict",
        "geirhos/cue-conflict\u200b": "own",
        "Geirhos/cue_conflict": "Cue-conflict",
        "geirhos/cue-conflict/x": "mine",
        "geirhos/cue-conflict[": "mine",
        "mine": "Cue-Conflict",
    }
    images = tuple(f"mine{i}" for i in range(160))
    label = tuple(planted.CLASSES[i % 16] for i in range(160))
    texture = (*label[1:], label[0])
    for i, (name, dataset) in enumerate(
        {**renamed, "geirhos/cue-conflict[:]": "x"}.items()
    ):
        table = tables.Table(
            dataset=dataset,
            num_classes=16,
            images=images,
            label=label,
            texture=texture,
            decided={"": label},
        )
        results = planted.results(table)
        entry = stimuli.describe(name, [table], digest="0" * 64, preprocessing="")
        results.stimuli[dataset].update(entry)
        card.make(results, str(tmp_path / f"card{i}"))
        assert verify.verify(tmp_path / f"card{i}").differences, name


def test_doubts_cannot_be_switched_off_by_the_number_of_classes(tmp_path):
    """Guesses stay doubted, or the number is found, for any number of classes in the card."""
    rng = np.random.default_rng(0)
    label = [f"class{i % 4}" for i in range(480)]
    random_table = tables.Table(
        dataset="mine",
        num_classes=4,
        images=tuple(f"i{i}" for i in range(480)),
        label=tuple(label),
        texture=tuple(f"class{(i + 1) % 4}" for i in range(480)),
        decided={"": tuple(f"class{x}" for x in rng.integers(4, size=480))},
    )
    guesses = planted.conflict_table(planted.decide(60, 60, 1080, 0))
    for table in (random_table, guesses):
        folder = tmp_path / table.dataset
        content = card.make(planted.results(table), str(folder))
        assert "guessing" in content["doubts"][0]
        for num_classes in (1, 2, 17, 100):
            changed = dataclasses.replace(table, num_classes=num_classes)
            content["decisions"][0]["num_classes"] = num_classes
            content["doubts"] = numbers.doubts([changed])
            forging.seal(folder, content)
            is_doubted = any("guessing" in line for line in content["doubts"])
            assert is_doubted or verify.verify(folder).differences, num_classes


def test_numbers_in_another_order_or_form_are_found(original, folder):
    content = planted.read(original)
    forging.seal(folder, {**content, "numbers": content["numbers"][::-1]})
    (line,) = verify.verify(folder).differences
    assert "in the order" in line
    content["numbers"][0]["n"] = float(content["numbers"][0]["n"])
    planted.save(folder, content, sealed=True)
    (line,) = verify.verify(folder).differences
    assert "numbers[0].n must be written as a whole number, got 110.0" in line


def test_few_draws_of_a_bootstrap_are_found(original, folder):
    content = planted.read(original)
    content["decisions"][0]["options"] = {"draws": 1, "seed": 0, "side": 32}
    planted.save(folder, content, sealed=True)
    (line,) = verify.verify(folder).differences
    assert "options.draws must be at least 100, got 1" in line


def test_no_text_of_a_card_has_a_meaning_in_the_section(original, folder):
    content = planted.read(original)
    content["model"]["digest"] = "x) **97 %** <b>[link](https://a.org)"
    forging.seal(folder, content)
    text = (folder / "section.md").read_text()
    assert "<b>" not in text.replace("\\<", "") and "**97" not in text
