"""A card with any changed number, decision, digest, text or entry is found out."""

import copy
import csv
import hashlib
import io
import json
import shutil

import pytest

from jbias.cards import card, cli, eval_results, tables, verify
from jbias.measures import spectral_bias
from tests.cards import planted


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """Return the folder of a small card with all kinds of numbers of unchanged images."""
    folder = tmp_path_factory.mktemp("card") / "card"
    cues = planted.conflict_table(planted.decide(50, 60, 20, 5))
    hub = eval_results.parse("owner/set@0123456", "https://example.org")
    card.make(planted.results(cues), str(folder), hub=hub)
    assert not verify.verify(folder).differences
    return folder


@pytest.fixture
def folder(original, tmp_path):
    """Return a copy of the card that a test may change."""
    return shutil.copytree(original, tmp_path / "card")


def leaves(value, path=()):
    """Yield the path of each entry of a tree that is no list or dict."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, entry in items:
            yield from leaves(entry, (*path, key))
    else:
        yield path


def change(content, path):
    """Return a copy of a card with another value at a path."""
    content = copy.deepcopy(content)
    place = content
    for key in path[:-1]:
        place = place[key]
    value = place[path[-1]]
    if isinstance(value, str):
        place[path[-1]] = f"{value}x"
    else:
        place[path[-1]] = 1 if value is None else value + 1
    return content


def test_every_changed_entry_is_found(original, folder):
    content = planted.read(original)
    paths = [*leaves(content)]
    assert len(paths) > 70
    for path in paths:
        planted.save(folder, change(content, path), sealed=False)
        assert verify.verify(folder).differences, path


def test_every_changed_number_is_named_though_the_digest_fits(original, folder):
    content = planted.read(original)
    for i, number in enumerate(content["numbers"]):
        for path in leaves(number):
            planted.save(folder, change(content, ("numbers", i, *path)), sealed=True)
            lines = verify.verify(folder).differences
            names = f"{number['name']} on", f"numbers[{i}]", f"{number['set']}x"
            assert any(name in line for name in names for line in lines), path


def test_every_changed_decision_is_named(original, folder):
    path = folder / "decisions/cue-conflict.csv"
    header, *rows = path.read_text().splitlines()
    for i, row in enumerate(rows):
        image, decision, *cells = row.split(",")
        other = "dog" if decision != "dog" else "cat"
        altered = [*rows[:i], ",".join([image, other, *cells]), *rows[i + 1 :]]
        path.write_text("\n".join([header, *altered, ""]))
        lines = verify.verify(folder).differences
        expected = (
            f"decisions/cue-conflict.csv:{i + 2}: the row of '{image}' has changed"
        )
        assert expected in lines


def test_a_decision_with_new_checks_changes_a_digest_or_a_number(original, folder):
    """First the check of the row fits, then also the SHA-256 of the table, then the digest."""
    path, content = folder / "decisions/cue-conflict.csv", planted.read(original)
    header, *rows = csv.reader(io.StringIO(path.read_text()))
    row = rows[0]
    assert row[1] == row[2]  # For the shape.
    row[1] = row[3]
    row[-1] = tables.row_check(row[:-1])
    path.write_text("\n".join(map(",".join, [header, *rows])) + "\n")
    lines = verify.verify(folder).differences
    assert any("its SHA-256 is" in line for line in lines)
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    content["decisions"][0]["sha256"] = sha256
    planted.save(folder, content, sealed=False)
    lines = verify.verify(folder).differences
    assert any("since its digest" in line for line in lines)
    planted.save(folder, content, sealed=True)
    lines = verify.verify(folder).differences
    assert not any("SHA-256" in line or "digest" in line for line in lines)
    for key in ("value", "lower", "upper", "count"):
        start = f"shape_bias on cue-conflict: {key} is "
        assert sum(line.startswith(start) for line in lines) == 1
    assert any(line.startswith("accuracy_texture on") for line in lines)


def test_rows_that_are_missing_twice_or_added_are_found(original, folder):
    path = folder / "decisions/cue-conflict.csv"
    lines = path.read_text().splitlines(keepends=True)
    for text, word in {
        "".join(lines[:-1]): "134 rows",
        "".join([*lines, lines[-1]]): "row per image",
        "".join(lines[:1]): "0 rows",
        "": "cannot be read",
    }.items():
        path.write_text(text)
        assert any(word in line for line in verify.verify(folder).differences)


def test_changed_cells_of_filtered_images_are_named(tmp_path):
    conditions = [spectral_bias.CLEAN] + [
        spectral_bias.condition_name(cutoff, high=high)
        for high in (False, True)
        for cutoff in spectral_bias.CONVENTIONS[""]
    ]
    options = {"draws": 100, "seed": 0, "side": 32}
    table = planted.filtered_table("spectral", conditions, num_images=5, **options)
    cues = planted.conflict_table(planted.decide(50, 60, 20, 5))
    content = card.make(planted.results(cues, table), str(tmp_path / "card"))
    header, rows = tables._cells(table)
    for column in (1, 2, 5):
        altered = [[*row, tables.row_check(row)] for row in rows]
        altered[3][column] = "e"
        path = tmp_path / "card" / table.file
        path.write_bytes(tables._to_parquet(header, altered))
        lines = verify.verify(tmp_path / "card").differences
        assert f"{table.file}:5: the row of '000003' has changed" in lines
    path.write_bytes(
        tables._to_parquet(header, [[*x, tables.row_check(x)] for x in rows])
    )
    content["decisions"][1]["options"]["seed"] = 1
    planted.save(tmp_path / "card", content, sealed=True)
    lines = verify.verify(tmp_path / "card").differences
    assert any("low_frequency_bias on photos: seed is 0" in line for line in lines)


def test_changed_texts_are_named(original, folder):
    for name in ("badge.svg", "section.md", ".eval_results/jbias.yaml"):
        path = folder / name
        text = path.read_text()
        for altered in (text.replace("45", "54"), text + " ", "", text[:-1]):
            path.write_text(altered)
            (line,) = verify.verify(folder).differences
            assert line == f"{name}: is not the text that follows from card.json"
        path.unlink()
        (line,) = verify.verify(folder).differences
        assert line.startswith(f"{name}: cannot be read")
        path.write_text(text)
    (folder / "decisions/more.csv").write_text("more")
    (line,) = verify.verify(folder).differences
    assert line == "decisions/more.csv: is not in card.json"


def test_numbers_left_out_or_added_are_named(original, folder):
    content = planted.read(original)
    planted.save(folder, {**content, "numbers": content["numbers"][:-1]}, sealed=True)
    lines = verify.verify(folder).differences
    assert "accuracy_texture on cue-conflict: the card lacks this number" in lines[0]
    doubled = [*content["numbers"], content["numbers"][0]]
    planted.save(folder, {**content, "numbers": doubled}, sealed=True)
    assert (
        "shape_bias on cue-conflict: is in the card 2 times"
        in (verify.verify(folder).differences[0])
    )
    planted.save(folder, {**content, "numbers": content["numbers"][1:]}, sealed=True)
    assert any("lacks" in line for line in verify.verify(folder).differences)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "{}",
        "[" * 100_000,
        '{"schema": NaN}',
        '{"a": 1e999}',
        "\0",
        "é",
    ],
)
def test_files_that_are_no_cards_are_refused(text, folder, capsys):
    (folder / card.FILE).write_bytes(text.encode("latin-1"))
    assert cli.main([f"--verify={folder}"]) in (1, 2)
    output = capsys.readouterr()
    assert "card.json" in output.out + output.err and "Traceback" not in output.err


@pytest.mark.parametrize(
    "name",
    ["../outside.csv", "decisions/../../outside.csv", "/etc/passwd", "decisions/a.csv"],
)
def test_tables_outside_of_the_card_are_not_read(name, original, folder):
    content = planted.read(original)
    content["decisions"][0]["file"] = name
    planted.save(folder, content, sealed=True)
    lines = verify.verify(folder).differences
    must = ("must match", "must name the table decisions/cue-conflict.csv")
    assert any(word in line for word in must for line in lines)


def test_the_command_says_what_it_verified(original, folder, capsys):
    assert cli.main([f"--verify={folder}"]) == 0
    assert "verified, 3 numbers of 135 decisions" in capsys.readouterr().out
    content = planted.read(original)
    content["numbers"][0]["value"] = 0.9
    planted.save(folder, content, sealed=True)
    assert cli.main([f"--verify={folder / card.FILE}"]) == 1
    first, *_ = capsys.readouterr().out.splitlines()
    start = "difference: shape_bias on cue-conflict: value is 0.9 in the card, 0.45"
    assert first.startswith(start)


def test_a_card_says_the_same_after_a_round_trip(original):
    content = planted.read(original)
    assert card.to_text(content) == (original / card.FILE).read_text()
    assert card.digest(json.loads(card.to_text(content))) == content["digest"]


def test_changed_doubts_are_named(tmp_path):
    """A doubt that is gone, one that was made up, and one that is there twice."""
    table = planted.conflict_table(planted.decide(60, 60, 1080, 0))
    folder = tmp_path / "card"
    content = card.make(planted.results(table), str(folder))
    (doubt,) = content["doubts"]
    for doubts, word in {
        (): "is 0 times in the card, 1 times",
        (doubt, "more"): "'more': is 1 times in the card, 0 times",
        (doubt, doubt): "is 2 times in the card, 1 times",
    }.items():
        planted.save(folder, {**content, "doubts": [*doubts]}, sealed=True)
        lines = verify.verify(folder).differences
        assert any(line.startswith("doubt ") and word in line for line in lines)
