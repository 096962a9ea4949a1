"""Reader of BareBones: objects as photographs and as black silhouettes on white.

Layout, as the authors' scripts write it: <root>/data/<set>/metadata_with_silhouette.csv with a
line for each object and the columns image_path (the photograph), label and silhouette_path. Paths
are relative to <root>. The sets are coco, cub, DIS5K, thin (ThinObject5K) and voc; the table of
WTP-Bench is <root>/data/metadata_with_silhouette.csv. Folders, columns and forms of labels were
compared with the authors' files at these commits, without the images: those of the sets must be made
by the scripts, and the repository of WTP-Bench has its table and silhouettes, but no photographs (its
data/images/hq). The scripts for ImageNet-S are not public. Labels are as the scripts write them: VOC's
and COCO's own words, "Black Footed Albatross", "Chain Saw", and for DIS5K the fourth part of a file's
name.

Splits are "<set>/hq" for photographs and "<set>/silhouette". The benchmark's number is the
accuracy on photographs minus the accuracy on silhouettes of the same objects. Source: Baranwal,
Yadav and Rajora, BareBones: Benchmarking Zero-Shot Geometric Comprehension in VLMs, 2026,
https://arxiv.org/abs/2604.10528; VishalZ0110/WTP-Bench at 1381526, *-data_preprocess.py, and
eternal-f1ame/WTP-Bench at e29d66d, data/metadata_with_silhouette.csv.
"""

import os

from jbias.data import base, set_options
from jbias.data.sets.split_files import SplitFiles

_TABLE, _LABEL = "metadata_with_silhouette.csv", "label"
_COLUMNS = {"hq": "image_path", "silhouette": "silhouette_path"}
# By the set's name in splits, the folder of its table.
_FOLDERS = {
    "coco": "data/coco",
    "cub": "data/cub",
    "dis5k": "data/DIS5K",
    "thin": "data/thin",
    "voc": "data/voc",
    "wtp": "data",
}


def read(files: SplitFiles) -> base.Source:
    """Return the source of a split such as "cub/silhouette"; classes are the labels, sorted.

    Images are in the same order in both splits of a set, unless an object's names differ.
    base.Missing without the table; ValueError for a line without a label or a path, and for
    an image that does not exist.
    """
    name, _, form = files.part.base.partition("/")
    path = os.path.join(files.root, _FOLDERS[name], _TABLE)
    if not os.path.isfile(path):
        must = f"{files.where}: needs {_FOLDERS[name]}/{_TABLE} in {files.root!r}"
        raise base.Missing(f"{must}, which is not there")
    header, lines = set_options.read_csv(path)
    column = _COLUMNS[form]
    for needed in (_LABEL, column):
        if needed not in header:
            must = f"{path}: the header must have {_LABEL} and {column}"
            raise ValueError(f"{must}, got {', '.join(header)}; write the table again")
    labels: dict[str, str] = {}
    for number, row in lines:
        if not row[_LABEL] or not row[column]:
            must = f"{path}:{number}: a line must have {_LABEL} and {column}"
            raise ValueError(f"{must}, got {row}; write the table again")
        if labels.setdefault(row[column], row[_LABEL]) != row[_LABEL]:
            must = f"{path}:{number}: an image must have one label, got {row[_LABEL]!r}"
            raise ValueError(
                f"{must} after {labels[row[column]]!r}; leave the right one"
            )
    return files.build_labelled(files.root, labels)
