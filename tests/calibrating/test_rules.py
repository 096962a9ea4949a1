"""Rules are read as written, and a seal holds only for what was committed before."""

import datetime
import json
import pathlib
import subprocess

import pytest

import jbias
from jbias.calibrating import flags, rules

ROOT = pathlib.Path(__file__).parents[2]
HOUR = datetime.timedelta(hours=1)


def git(folder, *arguments) -> None:
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    subprocess.run(
        ["git", "-C", folder, *identity, *arguments], check=True, capture_output=True
    )


@pytest.fixture
def fixed(tmp_path):
    """Return the files of rules and curves, committed in a new checkout."""
    files = [tmp_path / name for name in ("rules.json", "curves.json")]
    for file in files:
        file.write_text(rules.to_json(rules.Rules()))
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "Rules")
    return files


def later() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC) + HOUR


def test_files_return_the_rules_that_were_written(tmp_path):
    path = tmp_path / "rules.json"
    written = rules.Rules(most_error=0.2, limits=flags.Limits(chance_p=0.01))
    path.write_text(rules.to_json(written))
    read = rules.read(path)
    assert read.most_error == 0.2 and read.limits.chance_p == 0.01
    assert rules.to_json(read) == path.read_text()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"most_eror": 0.1}, "have the entries"),
        ({"limits": 3}, "limits"),
        ({"limits": {"chance_p": 0.01}}, "have the entries chance_p"),
        ({"most_error": 2}, "between 0 and 1"),
        ({"most_error": "a"}, "must"),
        ({"least_networks": 0}, "least_networks"),
        ({"draws": 10}, "draws"),
        ({"share_families": ["rule", "ruler"]}, "share_families"),
        ({"bin_edges": [0.5, 0.2]}, "increasing"),
    ],
)
def test_wrong_rules_are_refused(tmp_path, change, message):
    path = tmp_path / "rules.json"
    path.write_text(json.dumps({**json.loads(rules.to_json(rules.Rules())), **change}))
    with pytest.raises(ValueError, match=message):
        rules.read(path)


def test_a_seal_holds_until_a_file_changes(fixed, tmp_path):
    path = tmp_path / "sealed.json"
    rules.seal(fixed, path, time=later())
    first = path.read_text()
    assert "rules.json in commit" in rules.check_seal(fixed, path)
    rules.seal(fixed, path, time=later() + HOUR)
    assert path.read_text() == first  # The first seal stays, with its seed.
    assert 0 <= rules.hidden_seed(path) < 2**31
    fixed[0].write_text(rules.to_json(rules.Rules(most_error=0.2)))
    with pytest.raises(ValueError, match="be as it was"):
        rules.check_seal(fixed, path)
    git(tmp_path, "commit", "-qam", "Other rules")
    with pytest.raises(ValueError, match="be as it was"):
        rules.check_seal(fixed, path)
    with pytest.raises(ValueError, match="new hidden set"):
        rules.seal(fixed, path, time=later())


def test_nothing_is_sealed_before_it_is_committed(fixed, tmp_path):
    path = tmp_path / "sealed.json"
    for use in (lambda: rules.check_seal(fixed, path), lambda: rules.hidden_seed(path)):
        with pytest.raises(ValueError, match="exist before hidden networks"):
            use()
    fixed[1].write_text("changed")
    with pytest.raises(ValueError, match="committed and unchanged"):
        rules.seal(fixed, path, time=later())
    assert not path.exists()


def test_the_seed_of_hidden_networks_is_that_of_the_fixed_files(fixed, tmp_path):
    """Nobody can draw the hidden networks again without other rules or curves."""
    seeds = []
    for number in range(2):
        path = tmp_path / f"sealed-{number}.json"
        rules.seal(fixed[:: 1 - 2 * number], path)
        seeds.append(rules.hidden_seed(path))
    assert seeds[0] == seeds[1]
    path = tmp_path / "sealed-few.json"
    rules.seal(fixed[:1], path)
    assert rules.hidden_seed(path) != seeds[0]


def test_a_seal_names_the_code_that_hidden_networks_are_made_with(fixed, tmp_path):
    path = tmp_path / "sealed.json"
    rules.seal(fixed, path)
    code = json.loads(path.read_text())["code"]
    assert code["version"] == jbias.__version__ and {*code} > {"commit", "changed"}


def test_rules_of_a_later_commit_are_refused(fixed, tmp_path):
    """A seal that claims an earlier time than its commits does not hold."""
    path = tmp_path / "sealed.json"
    rules.seal(fixed, path, time=later() - 48 * HOUR)
    with pytest.raises(ValueError, match="committed before the hidden networks"):
        rules.check_seal(fixed, path)


def test_a_commit_without_these_rules_is_refused(fixed, tmp_path):
    path = tmp_path / "sealed.json"
    rules.seal(fixed, path, time=later())
    changed = rules.to_json(rules.Rules(most_error=0.2))
    fixed[0].write_text(changed)
    content = json.loads(path.read_text())
    content["files"]["rules.json"]["sha256"] = rules.digest(fixed[0])
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="be as in commit"):
        rules.check_seal(fixed, path)


def test_rules_outside_a_checkout_cannot_be_sealed(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    path = tmp_path / "rules.json"
    path.write_text(rules.to_json(rules.Rules()))
    with pytest.raises(ValueError, match="git checkout"):
        rules.seal([path], tmp_path / "sealed.json", time=later())
