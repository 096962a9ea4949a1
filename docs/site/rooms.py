"""Draws docs/rooms.svg: which parts of the package import which, as its files say.

python docs/site/rooms.py
"""

import ast
import pathlib
import re

import matplotlib.figure
import matplotlib.patches

from jbias.report import figures

DOCS = pathlib.Path(__file__).parents[1]
ROOT = DOCS.parent / "jbias"
BESIDE = ("configs", "launch")  # Rooms at the top of a checkout.
GROUPS = {
    "step": ("step", "feed", "order"),
    "results": ("results", "selection", "lines"),
    "training": ("train",),
    "strategies": ("seeds", "mesh"),
    "checkpoint": ("checkpoint",),
    "core": (
        *("config", "config_files", "presets", "entries", "kinds"),
        *("reads", "xla", "optim"),
    ),
}  # Files beside the folders that the picture shows as one; `part` names the others.
ABOUT = {
    "commands": "main, evaluate, look, ...",
    "training": "a run, put together",
    "measure": "suites, audits, studies",
    "feeding": "sets, batches, streams",
    "multihost": "processes of one run",
    "rundir": "what a run leaves",
    "strategies": "many seeds, one step",
    "terminal": "bars, lines, signals",
    "launch": "many runs",
    "prepare": "what runs need first",
    "configs": "named experiments",
    "report": "tables, figures, page",
    "step": "a step, order, batches",
    "evals": "decisions, measures",
    "algos": "an algorithm a file",
    "core": "config, presets, kinds",
    "checkpoint": "states, and what is beside",
    "results": "records, selection",
    "models": "networks with taps",
    "augment": "batches, feature maps",
    "data": "sources, preprocessing",
    "stats": "tests of score tables",
    "writers": "TensorBoard, W&B",
    "store": "whole files, locks",
    "foreign": "safe readers, limits",
}


def modules() -> dict[str, set[str]]:
    """What each folder or file right below the package imports of the others."""
    found: dict[str, set[str]] = {}
    tops = (ROOT, *(DOCS.parent / name for name in BESIDE))
    for path in sorted(path for top in tops for path in top.rglob("*.py")):
        inside = path.relative_to(ROOT if ROOT in path.parents else DOCS.parent)
        here = inside.parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Import | ast.ImportFrom):
                continue
            names = [alias.name for alias in node.names]
            if isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{name}" for name in names]
            told = (name.split(".")[1] for name in names if name.startswith("jbias."))
            found.setdefault(here, set()).update(told)
    return {name: used & set(found) - {name} for name, used in found.items()}


def part(name: str) -> str:
    """The box of a folder or file of the package."""
    if name in BESIDE or (ROOT / name).is_dir():
        return name
    for group, members in GROUPS.items():
        if name in members:
            return group
    if 'if __name__ == "__main__"' in (ROOT / f"{name}.py").read_text():
        return "commands"
    raise ValueError(f"docs/site/rooms.py: {name} must be in GROUPS, is not")


def arrows() -> set[tuple[str, str]]:
    """(who imports, what is imported), of the picture's boxes."""
    pairs = {(name, other) for name, used in modules().items() for other in used}
    box = {name: part(name) for pair in pairs for name in pair}
    return {(box[a], box[b]) for a, b in pairs if box[a] != box[b]}


def below(pairs: set[tuple[str, str]]) -> dict[str, set[str]]:
    """All that each name reaches; refuses a circle."""
    names = {name for pair in pairs for name in pair}
    reached = {name: {b for a, b in pairs if a == name} for name in names}
    while True:
        further = {a: r.union(*(reached[b] for b in r)) for a, r in reached.items()}
        if further == reached:
            break
        reached = further
    round_about = sorted(name for name in names if name in reached[name])
    if round_about:
        raise ValueError(f"docs/site/rooms.py: {', '.join(round_about)} are a circle")
    return reached


def shown(pairs: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """The arrows that do not follow from two others: the transitive reduction."""
    reached = below(pairs)
    return {
        (a, b)
        for a, b in pairs
        if not any(b in reached[c] for x, c in pairs if x == a and c != b)
    }


def places(pairs: set[tuple[str, str]]) -> dict[str, tuple[float, float]]:
    """Each box right below the lowest that imports it, near what it is joined to."""
    above = below({(b, a) for a, b in pairs})

    def depth(box: str) -> int:
        return 1 + max((depth(a) for a in above[box]), default=-1)

    rows: dict[int, list[str]] = {}
    for box in sorted(above):
        rows.setdefault(depth(box), []).append(box)
    at: dict[str, tuple[float, float]] = {}
    for y, row in sorted(rows.items()):
        over = {box: [at[a][0] for a, b in pairs if b == box] for box in row}
        near = {box: sum(xs) / max(1, len(xs)) for box, xs in over.items()}
        row = sorted(row, key=near.get)
        xs = [near[row[0]]]
        for box in row[1:]:
            xs.append(max(near[box], xs[-1] + 1))
        aside = (sum(xs) - sum(near.values())) / len(row)
        at |= {box: (x - aside, -y) for box, x in zip(row, xs, strict=True)}
    return at


def draw(path: pathlib.Path) -> None:
    """Writes the picture, and in its description all arrows, one a line."""
    pairs = arrows()
    kept = shown(pairs)
    at = places(kept)
    across, up = 2.3, 1.25
    drawing = matplotlib.figure.Figure(figsize=(8, 8), layout="constrained")
    axes = drawing.subplots()
    axes.set_axis_off()
    colour = {box: figures.style_of(i)["color"] for i, box in enumerate(at)}
    for a, b in sorted(kept):
        (x0, y0), (x1, y1) = at[a], at[b]
        axes.annotate(
            "",
            (across * x1, up * y1 + 0.3),
            (across * x0, up * y0 - 0.3),
            arrowprops=dict(
                arrowstyle="-|>", color=colour[a], lw=1.1, shrinkA=0, shrinkB=0
            ),
        )
    for box, (x, y) in at.items():
        corner = (across * x - 1.0, up * y - 0.28)
        axes.add_patch(
            matplotlib.patches.FancyBboxPatch(
                *(corner, 2.0, 0.56),
                **dict(boxstyle="round,pad=0.02", fc="white", ec=colour[box], zorder=4),
            )
        )
        middle = dict(ha="center", va="center", zorder=5)
        axes.text(across * x, up * y + 0.1, box, weight="bold", size=9, **middle)
        axes.text(
            across * x, up * y - 0.12, ABOUT[box], size=6.5, color="0.3", **middle
        )
    axes.autoscale_view()
    axes.set_aspect("equal")
    told = "\n".join(f"{a} imports {b}" for a, b in sorted(pairs))
    svg = figures.to_svg(drawing)
    path.write_text(re.sub(r"(<svg[^>]*>)", rf"\1\n <desc>{told}</desc>", svg, count=1))


if __name__ == "__main__":
    draw(DOCS / "rooms.svg")
