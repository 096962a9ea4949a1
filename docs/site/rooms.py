"""Draws docs/rooms.svg: which parts of the package import which, as its files say.

python docs/site/rooms.py
"""

import ast
import itertools
import pathlib
import re

import matplotlib.figure
import matplotlib.patches
import matplotlib.path

from jbias.report import plots

DOCS = pathlib.Path(__file__).parents[1]
ROOT = DOCS.parent / "jbias"
BESIDE = ("configs", "launch")  # Rooms at the top of a checkout.
GROUPS = {
    "config": ("config", "extensions", "run_spec", "seals", "signatures"),
    "build": ("build",),
    "estimates": ("run_estimates", "checking"),
    "train": ("train", "until_decided"),
    "torch": ("torch", "timm_networks"),
    "errors": ("errors", "numerals"),
}  # Files beside the folders that the picture shows; `part` finds the commands.
ABOUT = {
    "commands": "main, evaluate, look, ...",
    "train": "steps; seeds until decided",
    "papers": "published studies",
    "estimates": "would a run fit, its cost",
    "prepare": "what runs need first",
    "planting": "networks with known biases",
    "cards": "a model's numbers, proved",
    "measuring": "one model, on what is there",
    "configs": "named experiments",
    "launch": "many runs",
    "training": "what a run is made of",
    "report": "tables, figures, pages",
    "observing": "people in a browser",
    "evals": "networks on suites",
    "answers": "published decisions",
    "asking": "questions to chat models",
    "calibrating": "measures of planted networks",
    "measures": "decisions to numbers",
    "stimuli": "images to conditions",
    "torch": "networks of PyTorch",
    "build": "what a config names",
    "runs": "what a run leaves",
    "deciding": "seeds until decided",
    "algos": "an algorithm a file",
    "models": "networks with taps",
    "augment": "what a batch undergoes",
    "data": "sources, splits, shifts",
    "config": "configs, and their entries",
    "scores": "files of scores",
    "stats": "tests of score tables",
    "runtime": "process, files, devices",
    "untrusted": "safe readers, limits",
    "errors": "checks, numbers in text",
}


def modules() -> dict[str, set[str]]:
    """What each folder or file right below the package imports of the others."""
    found: dict[str, set[str]] = {}
    tops = (ROOT, *(DOCS.parent / name for name in BESIDE))
    every = {path for top in tops for path in top.rglob("*.py")}
    for path in sorted(every - {ROOT / "__init__.py"}):  # Which is in no room.
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


def places(pairs: set[tuple[str, str]]) -> dict[str | tuple, tuple[float, float]]:
    """Each box right above the highest that it imports, near what it is joined to.

    An arrow past other boxes has a place in their row: (who imports, what, row).
    """
    under = below(pairs)

    def floor(box: str) -> int:
        return 1 + max((floor(other) for other in under[box]), default=-1)

    ways = [way(*pair, *map(floor, pair)) for pair in sorted(pairs)]
    rows: dict[int, list] = {}
    joined: dict[str | tuple, list] = {}
    for over, one in [step for stops in ways for step in itertools.pairwise(stops)]:
        joined.setdefault(over, []).append(one)
        joined.setdefault(one, []).append(over)
    for name in joined:
        row = name[2] if isinstance(name, tuple) else floor(name)
        rows.setdefault(row, []).append(name)
    at = {n: (float(x), y) for y, row in rows.items() for x, n in enumerate(row)}
    for _ in range(40):  # Down and up, until hardly anything moves.
        for y in (*sorted(rows, reverse=True), *sorted(rows)):
            near = {
                n: sum(at[o][0] for o in joined[n]) / len(joined[n]) for n in rows[y]
            }
            row = sorted(rows[y], key=near.get)
            xs = [near[row[0]]]
            for last, name in itertools.pairwise(row):
                xs.append(max(near[name], xs[-1] + wide(last) + wide(name)))
            aside = (sum(xs) - sum(near.values())) / len(row)
            at |= {name: (x - aside, y) for name, x in zip(row, xs, strict=True)}
    return at


def way(over: str, one: str, top: int, end: int) -> list[str | tuple]:
    """The places that an arrow goes through, from row `top` down to row `end`."""
    return [over, *((over, one, row) for row in range(top - 1, end, -1)), one]


def wide(name: str | tuple) -> float:
    """Half of what a box, or an arrow past boxes, takes of a row."""
    return 0.1 if isinstance(name, tuple) else 0.5


def draw(path: pathlib.Path) -> None:
    """Writes the picture, and in its description all arrows, one a line."""
    pairs = arrows()
    kept = shown(pairs)
    at = places(kept)
    across, up = 2.3, 1.25
    drawing = matplotlib.figure.Figure(figsize=(8, 7.4), layout="constrained")
    axes = drawing.subplots()
    axes.set_axis_off()
    boxes = [name for name in at if isinstance(name, str)]
    colour = {box: plots.style_of(i)["color"] for i, box in enumerate(sorted(boxes))}
    for a, b in sorted(kept):
        stops = [at[name] for name in way(a, b, at[a][1], at[b][1])]
        points = [(across * x, up * y + e) for x, y in stops for e in (0.3, -0.3)][1:-1]
        line = matplotlib.path.Path(points)
        axes.add_patch(
            matplotlib.patches.FancyArrowPatch(
                path=line, arrowstyle="-|>", mutation_scale=10, color=colour[a], lw=1.1
            )
        )
    for box in boxes:
        x, y = at[box]
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
    svg = plots.to_svg(drawing)
    path.write_text(re.sub(r"(<svg[^>]*>)", rf"\1\n <desc>{told}</desc>", svg, count=1))


if __name__ == "__main__":
    draw(DOCS / "rooms.svg")
