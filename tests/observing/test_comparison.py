"""Decisions are matched with the images and classes of a page."""

import numpy as np
import pytest
from PIL import Image

from jbias.observing import comparison, stimuli


def write(folder, classes, answers):
    """Write a folder of two images of each class, and decisions with these answers."""
    lines = ["imagename,object_response,category"]
    for name, answer in zip(classes, answers, strict=True):
        (folder / "shown" / name).mkdir(parents=True)
        for i in range(2):
            path = folder / "shown" / name / f"{i}.png"
            Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(path)
            lines.append(f"{name}/{i}.png,{answer},{answer}")
    (folder / "decisions.csv").write_text("\n".join(lines) + "\n")
    shown = stimuli.from_folder(str(folder / "shown"))
    return shown, comparison.of_folder(shown, str(folder / "decisions.csv"))


@pytest.mark.parametrize("answers", [("fox", "hen"), ("Fox", "HEN")])
def test_names_of_classes_agree_in_any_case(answers, tmp_path):
    """Each decision is the image's own class, whatever the case of its name."""
    shown, (compared,) = write(tmp_path, ("fox", "hen"), answers)
    (group,) = shown.groups
    assert compared.decisions[0].tolist() == [group.label.tolist()]
