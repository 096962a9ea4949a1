"""The page: one HTML file with the images, the noise, the known decisions and the script."""

import functools
import hashlib
import json
import pathlib
import statistics
from collections.abc import Sequence
from typing import Any

import jinja2
import numpy as np

from jbias import __version__
from jbias.observing import comparison, masks, stimuli
from jbias.runtime import files, outputs

FOLDER = pathlib.Path(__file__).parent
NAME = "index.html"
MARK = '<meta name="generator" content="jbias observe">'
# Milliseconds of the parts of a trial: a cross, the image, the noise. A trial is longer than 2/3 s
# and has at most two flashes (image and noise), so that no second has more than three.
TIMES = {"cross": 400, "image": 200, "mask": 200}


def to_html(
    shown: stimuli.Stimuli,
    compared: Sequence[comparison.Compared],
    *,
    seed: int = 0,
) -> str:
    """Return the page.

    shown: its images. compared: networks and people with decisions about these images.
    seed: of the noise, and of the images of a session that has not all of them: these are the
    same for everybody.
    """
    from jbias.report import document  # Slow to import, so not before a refusal.

    has_other_people = any(group.dataset for group in shown.groups)
    people = comparison.published_people() if has_other_people else None
    content = {
        "name": shown.name,
        "classes": shown.classes,
        "examples": shown.examples,
        "groups": [_group(group) for group in shown.groups],
        "compared": [
            {
                "name": x.name,
                "about": x.note,
                "decisions": [array.tolist() for array in x.decisions],
            }
            for x in compared
        ],
        "people": people
        and {
            "name": f"{people.count} people on photographs",
            "shape_bias": people.shape_bias,
            "kappa": people.kappa,
        },
        "masks": [stimuli.to_url(mask) for mask in masks.make(seed=seed)],
        "times": TIMES,
        "seed": seed,
        # Of the 95 % interval, as in jbias.measures.decisions.wilson_interval.
        "z2": statistics.NormalDist().inv_cdf(0.975) ** 2,
        "version": __version__,
    }
    digest = hashlib.sha256(_to_json(content).encode())
    content["id"] = digest.hexdigest()[:16]  # Of the session that a browser tab keeps.
    script = (FOLDER / "page.js").read_text(encoding="utf-8")
    return _template().render(
        mark=MARK,
        policy=document.content_security_policy(script),
        style=(FOLDER / "page.css").read_text(encoding="utf-8"),
        script=script,
        content=_to_json(content),
        shown=shown,
        has_conflicts=any(group.has_conflicts for group in shown.groups),
        times=TIMES,
    )


def _group(group: stimuli.Group) -> dict[str, Any]:
    """Return a group for the page's script."""
    texture = np.full(len(group.label), -1) if group.texture is None else group.texture
    return {
        "title": group.title,
        "set": group.dataset,
        "images": group.images,
        "pictures": group.pictures,
        "label": group.label.tolist(),
        "texture": texture.tolist(),
        "blocks": group.blocks,
        "conflicts": group.has_conflicts,
    }


def _to_json(tree: Any) -> str:
    """Return JSON that is safe inside of a script element of HTML."""
    text = json.dumps(tree, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028")


@functools.cache
def _template() -> jinja2.Template:
    """Return the jinja2 template of the page."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.j2")


def check_out(out: str | pathlib.Path) -> bool:
    """Return True if the page would replace an earlier page.

    out: the folder. ValueError if the page cannot be written, or would replace another file.
    """
    outputs.check_writable_folder(out)
    path = pathlib.Path(out) / NAME
    outputs.check_no_link(path)
    if path.exists():
        is_page = path.is_file() and MARK in path.read_text("utf-8", "replace")[:2000]
        if not is_page:
            raise ValueError(
                f"--out: {path} exists already, and `jbias observe` did not write it; "
                "remove it or name another folder"
            )
    return path.exists()


def write(text: str, out: str | pathlib.Path) -> pathlib.Path:
    """Write the page into a folder, which is created; return the path of the file."""
    path = pathlib.Path(out) / NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write(path, text, lasting=False)
    return path
