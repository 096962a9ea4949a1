"""Have ratios fallen? Compares results of benchmarks with earlier ones.

    python -m benchmarks.check EARLIER LATER [--tolerance=0.15]

EARLIER and LATER are results (.json), or folders of them, in which files of the same
names are compared. Only ratios are: times belong to one machine at one hour. What was
measured on devices of different kinds, or in different settings, is passed over and
named. A ratio falls, too, where what stands under it became faster: then its rates in the
results tell. Exit codes: 0 no ratio fell by more than the tolerance, a share of it; 1 some did;
2 nothing could be compared.
"""

import argparse
import json
import pathlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any

SAME = ("setting", "precision")


def pairs(
    earlier: pathlib.Path, later: pathlib.Path
) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Results of the same name, read."""
    names = [""]
    if earlier.is_dir():
        names = sorted(path.name for path in earlier.glob("*.json"))
    for name in names:
        if (later / name).is_file():
            both = [json.loads((path / name).read_text()) for path in (earlier, later)]
            yield name or later.name, *both


def unlike(a: Mapping[str, Any], b: Mapping[str, Any]) -> str | None:
    """Why two results cannot be compared, if they cannot."""
    if "ratios" not in a or "ratios" not in b:
        return "no ratios"
    if a["device"]["kind"] != b["device"]["kind"]:
        return f"{a['device']['kind']} and {b['device']['kind']}"
    differing = [key for key in SAME if a.get(key) != b.get(key)]
    return f"another {differing[0]}" if differing else None


def fallen(
    earlier: Mapping[str, float], later: Mapping[str, float], tolerance: float
) -> dict[str, tuple[float, float]]:
    """Ratios of both, before and after, that fell by more than the tolerance."""
    return {
        name: (before, later[name])
        for name, before in earlier.items()
        if name in later and later[name] < (1 - tolerance) * before
    }


def main(argv: list[str] | None = None) -> int:
    """Compares, says what fell; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("earlier", type=pathlib.Path)
    parser.add_argument("later", type=pathlib.Path)
    parser.add_argument("--tolerance", type=float, default=0.15)
    options = parser.parse_args(argv)
    for path in (options.earlier, options.later):
        if not path.exists():
            parser.error(f"{path}: must be a result or a folder of them, got nothing")
    compared, bad = 0, 0
    for name, earlier, later in pairs(options.earlier, options.later):
        if why := unlike(earlier, later):
            print(f"{name}: not compared: {why}")
            continue
        both = set(earlier["ratios"]) & set(later["ratios"])
        compared += len(both)
        found = fallen(earlier["ratios"], later["ratios"], options.tolerance)
        bad += len(found)
        for ratio, (before, after) in found.items():
            print(f"{name}: {ratio} fell from {before:.3f} to {after:.3f}")
    print(
        f"{compared} ratios compared, {bad} fell by more than {options.tolerance:.0%}"
    )
    return 2 if not compared else int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
