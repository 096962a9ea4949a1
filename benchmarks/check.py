"""Compare results of benchmarks with earlier results, and print ratios that fell.

    python -m benchmarks.check EARLIER LATER [--tolerance=0.15]

EARLIER and LATER are results (.json), or folders of results, in which files of the same
name are compared. Only ratios are compared: times depend on the machine and its load.
Results from different kinds of devices or different settings are skipped, with a message. A
ratio also falls if its denominator became faster; the rates in the results show which. Exit
codes: 0 no ratio fell by more than the tolerance, a fraction of the ratio; 1 some did; 2
nothing could be compared.

Takes seconds.
"""

import argparse
import json
import pathlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any

CONDITIONS = ("setting", "precision")  # Must be equal in both results.


def pairs(
    earlier: pathlib.Path, later: pathlib.Path
) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Yield names in both places, with the earlier and the later result."""
    names = [""]
    if earlier.is_dir():
        names = sorted(path.name for path in earlier.glob("*.json"))
    for name in names:
        if (later / name).is_file():
            earlier_result = json.loads((earlier / name).read_text())
            later_result = json.loads((later / name).read_text())
            yield name or later.name, earlier_result, later_result


def incomparable(a: Mapping[str, Any], b: Mapping[str, Any]) -> str | None:
    """Return the reason why two results cannot be compared, or None."""
    if "ratios" not in a or "ratios" not in b:
        return "no ratios"
    if a["device"]["kind"] != b["device"]["kind"]:
        return f"{a['device']['kind']} and {b['device']['kind']}"
    differing = [key for key in CONDITIONS if a.get(key) != b.get(key)]
    return f"another {differing[0]}" if differing else None


def fallen(
    earlier: Mapping[str, float], later: Mapping[str, float], tolerance: float
) -> dict[str, tuple[float, float]]:
    """Return the ratios that fell by more than the tolerance: (earlier, later) by name."""
    return {
        name: (ratio, later[name])
        for name, ratio in earlier.items()
        if name in later and later[name] < (1 - tolerance) * ratio
    }


def main(argv: list[str] | None = None) -> int:
    """Compare, print the ratios that fell, and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "earlier", type=pathlib.Path, help="earlier result, or folder of results"
    )
    parser.add_argument(
        "later", type=pathlib.Path, help="later result, or folder of results"
    )
    parser.add_argument(
        "--tolerance",
        type=float,
        default=0.15,
        help="allowed fall, as a fraction of the earlier ratio (default: %(default)s)",
    )
    options = parser.parse_args(argv)
    for path in (options.earlier, options.later):
        if not path.exists():
            parser.error(f"{path}: must be a result or a folder of them, got nothing")
    num_compared, num_fallen = 0, 0
    for name, earlier, later in pairs(options.earlier, options.later):
        reason = incomparable(earlier, later)
        if reason:
            print(f"{name}: not compared: {reason}")
            continue
        num_compared += len(set(earlier["ratios"]) & set(later["ratios"]))
        falls = fallen(earlier["ratios"], later["ratios"], options.tolerance)
        num_fallen += len(falls)
        for ratio, (earlier_value, later_value) in falls.items():
            print(f"{name}: {ratio} fell from {earlier_value:.3f} to {later_value:.3f}")
    print(
        f"{num_compared} ratios compared, {num_fallen} fell by more than"
        f" {options.tolerance:.0%}"
    )
    return 2 if not num_compared else int(num_fallen > 0)


if __name__ == "__main__":
    sys.exit(main())
