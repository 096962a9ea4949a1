"""Malformed sweeps: axes on the command line, sweep files, and stored sweeps."""

import json
import pathlib

from hypothesis import strategies as st

from qa.fuzz import attempts, configs, mutations

_CONFIG = "jbias:erm:smoke,seeds=1,model=cnn"
_KEYS = ("optim.rate", "epochs", "seeds", "algo", "model.width", "x", "", "run.memory")
_AXES = (
    "[]",
    "[0.1]",
    "[0.1, 0.1]",
    "[[0.1]]",
    "[nan]",
    "[1e999, -1e999]",
    "[None, 'x']",
    "choice()",
    "choice(1, 2)",
    "uniform(0, 1)",
    "uniform(1, 0)",
    "uniform(0)",
    "uniform(nan, 1)",
    "uniform(0, 1e999)",
    "uniform(-1e308, 1e308)",
    "[*range(9)]",
    "log_uniform(0, 1)",
    "log_uniform(1e-320, 1)",
    "uniform(a=1)",
    "choice(*[1])",
    "uniform(0, 10**400)",
    f"uniform(0, {'9' * 400})",
    f"[{'9' * 5000}]",
    "[x, y]",
    "[(1, 2), (3,)]",
    "[{}, {'a': []}]",
    f"[{'[' * 90}{']' * 90}]",
    "[-True, 1j]",
    "['\\x1b[2J', '\\x07']",
    "['\\ud800']",
    "['a\\nb', 'c']",
    "[0.1,",
    "[f'{1}']",
)
# As a sweep stores its search in search.json.
_SEARCH = {
    "search": "grid",
    "trials": 10,
    "seed": 0,
    "stop": "never",
    "fewest": 3,
    "grace": 0,
    "config": [_CONFIG],
    "changes": ["--config.optim.rate=[0.1, 0.2]", "--config.epochs=1"],
}
# As a sweep file returns it.
_SWEEP = {
    "config": [_CONFIG],
    "axes": {"optim.rate": [0.1, 0.2]},
    "changes": {"epochs": 1.0},
    "search": "grid",
    "trials": 3,
    "seed": 0,
    "stop": "median",
}


def write_inputs(folder: pathlib.Path) -> None:
    """Write a stored sweep, and a sweep file with the JSON file that it reads."""
    (folder / "begun/.sweep").mkdir(parents=True)
    (folder / "begun/.sweep/search.json").write_text(json.dumps(_SEARCH))
    configs.write_inputs(folder)
    text = (folder / "mine.py").read_text().replace("mine.json", "sweep.json")
    text = text.replace("get_config", "get_sweep")
    text = text.replace("import ml_collections\n", "")
    text = text.replace("ml_collections.ConfigDict", "")
    (folder / "sweep.py").write_text(text)
    (folder / "sweep.json").write_text(json.dumps(_SWEEP))


@st.composite
def sweeps(draw: st.DrawFn, folder: pathlib.Path, out: pathlib.Path) -> attempts.Case:
    """Draw a malformed axis, sweep file or stored sweep."""
    kind = draw(st.sampled_from(("axis", "axis", "begun", "file")))
    if kind == "axis":
        return _draw_axis(draw, out)
    if kind == "begun":
        file, argv = "begun/.sweep/search.json", ("status", f"--workdir={folder}/begun")
    else:
        file = "sweep.json"
        argv = (
            "run",
            f"--sweep={folder}/sweep.py",
            f"--workdir={out}/runs",
            "--dry-run",
        )
    data, words = (folder / file).read_bytes(), file
    if draw(st.integers(0, 3)):
        tree, words = draw(mutations.changed(json.loads(data)))
        data = json.dumps(tree).encode()
        if file != "sweep.json":  # sweep.py reads this file, so it must be plain JSON.
            data = mutations.to_json(tree)
    else:
        data = draw(mutations.edited(data))
    return attempts.Case(f"{file} {words}", argv, file, data)


def _draw_axis(draw: st.DrawFn, out: pathlib.Path) -> attempts.Case:
    """Draw a sweep whose command line has a malformed axis."""
    key = draw(st.sampled_from(_KEYS))
    text = draw(st.sampled_from((*_AXES, *_AXES, *mutations.TEXTS)))
    search = draw(st.sampled_from(("--search=grid", "--search=random")))
    change = f"--config.{key}={text}"
    argv = (
        "run",
        f"--config={_CONFIG}",
        change,
        search,
        "--trials=3",
        "--dry-run",
        f"--workdir={out}/runs",
    )
    return attempts.Case(change[:300] + search, argv)
