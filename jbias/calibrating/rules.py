"""The rules of a study of calibration: bounds and limits, fixed in a file before the networks.

The hidden networks of a study test rules and curves that were fixed before these networks existed.
`seal` records, when hidden networks are made, the digests of the files of rules and curves and the
commit that has them; `check_seal` verifies them when the hidden networks are analysed.
"""

import dataclasses
import datetime
import hashlib
import itertools
import json
import pathlib
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

import jbias
from jbias import errors
from jbias.calibrating import flags, rows
from jbias.runtime import files

_REMEDY = "commit the rules and the curves, then make a new hidden set in another --out"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rules:
    """The bounds by which measures are judged, and the limits of flags.

    limits: see `flags.Limits`.
    share_families: families whose dial is a share of decisions, so that it is on the scale of
      measures; other families have ranks only. Those of them that see images are ranked.
      most_planting_error: largest difference of the dial of a mixture by images from the reliance
      that is verified on factorial stimuli, beyond which it is not as planted, and is left out.
    least_networks: fewest ranked networks for a verdict. least_rho: a measure ranks networks if
      the lower end of the interval of rho is at least this. most_error: largest mean absolute
      error of the dial of networks of groups that the curve has not seen, over all networks, and
      over those whose dial is in middle_dials; least_middle_networks: fewest of the latter for a
      verdict. Without this, three levels of a measure would be enough if most dials are at the ends.
    most_shift: largest increase of the error under a shortcut; least_shortcut_networks: fewest
      networks with a shortcut from which a measure is judged. least_learned: smallest share of
      decisions for the shortcut, less guesses, of the planted strength; networks that have not
      learned the shortcut are left out.
    best_networks: smallest share of the ranked networks that a measure needs values for, to be the
      one that others are compared with.
    bin_edges, bin_networks: ranges of accuracy above chance, and fewest networks of a range.
    size_networks: smallest share of the networks that a number of images must have been read for.
    draws, seed: of bootstrap intervals.
    """

    limits: flags.Limits = dataclasses.field(default_factory=flags.Limits)
    share_families: Sequence[str] = ("rule", "trained", "mixed_images")
    most_planting_error: float = 0.05
    least_networks: int = 15
    least_rho: float = 0.8
    most_error: float = 0.1
    middle_dials: Sequence[float] = (0.15, 0.85)
    least_middle_networks: int = 8
    most_shift: float = 0.1
    least_shortcut_networks: int = 5
    least_learned: float = 0.5
    best_networks: float = 0.9
    bin_edges: Sequence[float] = (0.0, 0.1, 0.4, 0.7, 1.0)
    bin_networks: int = 8
    size_networks: float = 0.9
    draws: int = 2000
    seed: int = 0

    @property
    def ranked_families(self) -> tuple[str, ...]:
        """Return the families that see images and whose dial is a share of decisions."""
        return tuple(x for x in self.share_families if x in rows.IMAGE_FAMILIES)

    @property
    def known_families(self) -> tuple[str, ...]:
        """Return the families whose dial is a share of decisions by construction."""
        known = (x for x in self.share_families if x not in rows.VERIFIED_FAMILIES)
        return tuple(known)

    def __post_init__(self):
        errors.check_choices(
            "rules", self.share_families, tuple(rows.FAMILIES), name="share_families"
        )
        for name in (
            "most_planting_error",
            "least_rho",
            "most_error",
            "most_shift",
            "least_learned",
            "best_networks",
        ):
            errors.check_share(f"rules: {name}", getattr(self, name))
        for name in (
            "least_networks",
            "least_middle_networks",
            "least_shortcut_networks",
            "bin_networks",
        ):
            errors.check_whole("rules", getattr(self, name), low=1, name=name)
        ends = tuple(self.middle_dials)
        errors.check(
            len(ends) == 2 and 0 <= ends[0] < ends[1] <= 1,
            "rules: middle_dials",
            "be two increasing numbers in [0, 1]",
            ends,
        )
        errors.check_whole("rules", self.draws, low=100, name="draws")
        errors.check_whole("rules", self.seed, low=0, name="seed")
        errors.check_range("rules", 0, 1, size_networks=self.size_networks)
        edges = self.bin_edges
        is_increasing = all(a < b for a, b in itertools.pairwise(edges))
        errors.check(
            len(edges) > 1 and is_increasing,
            "rules: bin_edges",
            "be two or more increasing numbers",
            edges,
        )


def read(path: pathlib.Path) -> Rules:
    """Return the rules of a JSON file; ValueError for an unknown, missing or invalid entry."""
    try:
        content = json.loads(path.read_text("utf-8"))
    except json.JSONDecodeError as error:
        errors.refuse(str(path), f"be JSON: {error}")
    names = {field.name for field in dataclasses.fields(Rules)}
    limit_names = {field.name for field in dataclasses.fields(flags.Limits)}
    limits = content.get("limits", {}) if isinstance(content, Mapping) else None
    if not isinstance(limits, Mapping):
        errors.refuse(str(path), 'be an object with an object "limits"', content)
    for entries, known in ((content, names), (limits, limit_names)):
        missing, unknown = known - entries.keys(), entries.keys() - known
        errors.check(
            not missing and not unknown,
            str(path),
            f"have the entries {', '.join(sorted(known))}",
            sorted(entries),
        )
    try:
        return Rules(**{**content, "limits": flags.Limits(**limits)})
    except TypeError as error:
        raise ValueError(f"{path}: must have numbers: {error}") from error


def to_json(rules: Rules) -> str:
    """Return the content of a file of rules."""
    return json.dumps(dataclasses.asdict(rules), indent=1) + "\n"


def seal(
    fixed: Sequence[pathlib.Path],
    path: pathlib.Path,
    *,
    time: datetime.datetime | None = None,
) -> None:
    """Record in the file `path` which files were fixed at a time, their commits, and a seed.

    The dials of the hidden networks are drawn from the seed, which is computed from the digests of
    the fixed files: another draw needs other files, if only by a blank, and a promise not to. "code" has the version of jbias, the
    commit of its checkout ("" without one), and whether files differ from the commit.
    fixed: the files of rules and curves, each in a commit of its git checkout and unchanged since;
    otherwise ValueError. time: None: the present. An existing seal of the same digests stays;
    ValueError for another one.
    """
    time = time or datetime.datetime.now(datetime.UTC)
    entries = {file.name: _committed(file) for file in fixed}
    if path.exists():
        sealed = json.loads(path.read_text("utf-8"))["files"]
        digests = {name: entry["sha256"] for name, entry in entries.items()}
        errors.check(
            {name: entry["sha256"] for name, entry in sealed.items()} == digests,
            str(path),
            "be the seal of the present rules and curves",
            errors.Words("a seal of others"),
            _REMEDY,
        )
        return
    content = {
        "sealed": time.isoformat(timespec="seconds"),
        "seed": _seed([entry["sha256"] for entry in entries.values()]),
        "files": entries,
        "code": _code(),
    }
    files.write(path, json.dumps(content, indent=1) + "\n")


def _seed(digests: Sequence[str]) -> int:
    """Return a seed that depends on digests of files, but not on their order."""
    joined = hashlib.sha256("".join(sorted(digests)).encode()).digest()
    return int.from_bytes(joined[:4]) >> 1


def _code() -> dict[str, Any]:
    """Return the version of jbias, the commit of its checkout, and whether it was changed."""
    module = pathlib.Path(__file__)
    try:
        commit = _git(module, "rev-parse", "HEAD")
        is_changed = bool(
            _git(module, "status", "--porcelain", "--", str(module.parents[1]))
        )
    except ValueError:
        commit, is_changed = "", False
    return {"version": jbias.__version__, "commit": commit, "changed": is_changed}


def hidden_seed(path: pathlib.Path) -> int:
    """Return the seed of the hidden networks of a seal; ValueError without one."""
    _require_seal(path)
    return int(json.loads(path.read_text("utf-8"))["seed"])


def _require_seal(path: pathlib.Path) -> None:
    """Raise ValueError if there is no seal."""
    if not path.exists():
        errors.refuse(
            str(path),
            "exist before hidden networks are used",
            remedy="run jbias calibrate --hidden --stages=make",
        )


def check_seal(fixed: Sequence[pathlib.Path], path: pathlib.Path) -> str:
    """Return a sentence on when rules and curves were fixed; ValueError if they have changed.

    fixed, path: see `seal`. ValueError, too, without a seal, and for a file whose commit is not
    older than the seal.
    """
    _require_seal(path)
    content = json.loads(path.read_text("utf-8"))
    sealed_at = datetime.datetime.fromisoformat(content["sealed"])
    commits = []
    for file in fixed:
        entry = content["files"].get(file.name)
        if entry is None or entry["sha256"] != digest(file):
            errors.refuse(
                str(file),
                "be as it was when the hidden networks were made",
                remedy=_REMEDY,
            )
        committed_at = _commit_time(file, entry["commit"])
        committed = _git(file, "show", f"{entry['commit']}:./{file.name}")
        if committed.strip() != file.read_text("utf-8").strip():
            errors.refuse(str(file), f"be as in commit {entry['commit'][:8]}")
        if committed_at > sealed_at:
            errors.refuse(
                str(file),
                "be committed before the hidden networks are made",
                errors.Words(f"commit {entry['commit'][:8]} of {committed_at}"),
                _REMEDY,
            )
        commits.append(f"{file.name} in commit {entry['commit'][:8]} of {committed_at}")
    return f"Fixed before the hidden networks of {sealed_at}: {', '.join(commits)}."


def _committed(file: pathlib.Path) -> dict[str, Any]:
    """Return the digest of a file and the last commit that changed it; ValueError without one."""
    if not file.exists():
        errors.refuse(str(file), "exist", remedy=_REMEDY)
    if _git(file, "status", "--porcelain", "--", file.name):
        errors.refuse(str(file), "be committed and unchanged", remedy=_REMEDY)
    commit = _git(file, "log", "-1", "--format=%H", "--", file.name)
    if not commit:
        errors.refuse(str(file), "be in a git commit", remedy=_REMEDY)
    return {"sha256": digest(file), "commit": commit}


def _commit_time(file: pathlib.Path, commit: str) -> datetime.datetime:
    """Return the committer's time of a commit; ValueError for an unknown commit."""
    return datetime.datetime.fromisoformat(
        _git(file, "show", "--no-patch", "--format=%cI", commit)
    )


def digest(file: pathlib.Path) -> str:
    """Return the SHA-256 digest of a file's bytes."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _git(file: pathlib.Path, *arguments: str) -> str:
    """Return the output of a git command in the folder of a file; ValueError if it fails."""
    folder = file.resolve().parent
    try:
        output = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ValueError(
            f"{file}: must be in a git checkout, as commits show when rules were fixed; "
            f"{_REMEDY}"
        ) from error
    return output.stdout.strip()
