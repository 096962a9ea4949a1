"""Fake runs under shifts with known accuracies."""

import json

import numpy as np
import pandas as pd

from jbias.runs import results

COLOURS = ("red", "yellow", "green", "blue")


def write(
    folder,
    level,
    accuracies,
    *,
    seeds=(0, 1, 2),
    n=1_000,
    attribute="colour",
    model="resnet18",
    algorithm="erm",
    variant="",
    data="colored_mnist",
    images=0,
    trained=8_000,
    steps=(100,),
    done=True,
    groups=(),
    shift_seed=0,
    likelihood=None,
    **config,
):
    """Write a workdir like those of training.

    accuracies: by test set, one for all seeds, one per seed, or either of these by step;
    counts are rounded. groups: metrics by (set, metric). likelihood: by set, one per image.
    """
    shift = dict(level=level, attribute=attribute, images=images, seed=shift_seed)
    settings = {
        "algo": {"name": algorithm},
        "variant": variant,
        "seeds": list(seeds),
        "model": {"name": model},
        "train": {
            "data": data,
            "shift": {**shift, "part": "train"},
            "root": str(folder),
        },
        "valid": {"data": data, "shift": {**shift, "part": "valid"}},
        "epochs": 5,
        "run": {"decisions": likelihood is not None},
        **config,
    }
    fields = dict(
        run=f"run-{folder.name}-{abs(hash(str(folder))) % 10**8}",
        algorithm=algorithm,
        variant=variant,
        model=model,
        train_data=data,
        stage=0,
        condition="",
    )
    accuracies = {"valid": {s: 0.8 + s / max(steps) / 10 for s in steps}, **accuracies}
    for step in steps:
        records = []
        for i, seed in enumerate(seeds):
            step_fields = fields | dict(seed=seed, step=step, epoch=step / 100)
            for name, value in accuracies.items():
                value = value[step] if isinstance(value, dict) else value
                value = value[i] if np.ndim(value) else value
                count = round(value * n)
                cell = dict(dataset=name, metric="accuracy", count=count, n=n)
                records.append(results.Record(**step_fields, **cell, value=count / n))
            for (name, metric), value in dict(groups).items():
                cell = dict(dataset=name, metric=metric, value=value, n=n)
                records.append(results.Record(**step_fields, **cell))
        results.write(folder / "evals" / f"{step}.jsonl", records)
    (folder / "config.json").write_text(json.dumps(settings))
    (folder / "provenance.json").write_text(json.dumps(_provenance(attribute, trained)))
    if done:
        (folder / "done").write_text("")
    for name, values in (likelihood or {}).items():
        frame = pd.concat(
            pd.DataFrame(
                {"seed": s, "image": range(len(values)), "prediction": 0}
                | {"label": 0, "likelihood": np.asarray(values, np.float32)}
            )
            for s in seeds
        )
        path = folder / f"decisions/{name}/{steps[-1]}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        frame.to_parquet(path, index=False)


def _provenance(attribute, trained):
    half = trained // 8
    tables = {"attribute": [[half, half, 0, 0], [half, half, 0, 0]]}
    data = {"n": trained, "names": ["low", "high"], "tables": tables}
    data["values"] = {"attribute": list(COLOURS), attribute: list(COLOURS)}
    return {
        "data": {"train/0": {**data, "fingerprint": f"{attribute}{trained}"}},
        "device": {"kind": "cpu", "count": 1},
        "code": {"commit": "0123abc"},
    }


def spread(mean, seeds, std=0.004):
    """Return accuracies of seeds with this mean, up to rounding."""
    z = np.linspace(-1, 1, len(seeds)) if len(seeds) > 1 else np.zeros(1)
    return [float(np.clip(mean + std * x, 0, 1)) for x in z]


def write_study(folder, *, seeds=(0, 1, 2)):
    """Write a study with models, attributes, kinds, remedies, values, clusters and sizes."""
    models = {
        "resnet18": 0.0,
        "squeezenet1_0": 0.04,
        "mobilenetv3_small": -0.05,
        "cnn": 0.02,
    }
    levels = {"M": 5, "C": 7, "J": 5}
    falls = {"M": 0.4, "C": 0.95, "J": 0.7}
    for model, lift in models.items():
        for kind, count in levels.items():
            for i in range(count) if model == "resnet18" else (0, count - 1):
                share = i / (count - 1)
                inside = 0.95 + lift * (1 + share) / 4
                fall = falls[kind] * share**3 * (1 - 3 * lift)
                write(
                    folder / f"{model}-{kind}{i}",
                    f"{kind}{i}",
                    {
                        "id": spread(inside, seeds),
                        "ood": spread(inside - fall * inside, seeds, 0.02),
                    },
                    seeds=seeds,
                    model=model,
                )
    for attribute in ("size", "place"):
        for level in ("M0", "M4", "C0", "C6"):
            write(
                folder / f"{attribute}-{level}",
                level,
                {"id": spread(0.95, seeds), "ood": spread(0.945, seeds)},
                seeds=seeds,
                attribute=attribute,
            )
    for algorithm, outside in (("group_dro", 0.6), ("irm", 0.3)):
        write(
            folder / algorithm,
            "C6",
            {"id": spread(0.93, seeds), "ood": spread(outside, seeds, 0.03)},
            seeds=seeds,
            algorithm=algorithm,
            groups={("ood", "worst_group_accuracy"): outside - 0.1},
        )
    for value in COLOURS:
        for images in (1_000, 0):
            other_values = {
                f"ood-{x}": spread(0.4 + 0.3 * (not images), seeds)
                for x in COLOURS
                if x != value
            }
            write(
                folder / f"only-{value}-{images}",
                f"only-{value}",
                {"id": spread(0.99, seeds), **other_values},
                seeds=seeds,
                images=images,
                trained=images or 12_000,
            )
    for i in range(1, 9):
        other_clusters = {
            f"ood-D{x}": spread(0.9 - 0.05 * i, seeds) for x in range(1, 9) if x != i
        }
        write(
            folder / f"only-D{i}",
            f"only-D{i}",
            {"id": spread(0.95, seeds), **other_clusters},
            seeds=seeds,
            attribute="cluster",
            data="celeba",
        )
    random = np.random.default_rng(0)
    steps = tuple(range(50, 1001, 50))
    for level, end in (("M4", 0.5), ("C6", 0.2)):
        curve = {s: spread(1 - np.exp(-s / 80), seeds, 0.02) for s in steps}
        outside = {s: spread(end * (1 - np.exp(-s / 150)), seeds, 0.05) for s in steps}
        write(
            folder / f"learning-{level}",
            level,
            {"id": curve, "ood": outside},
            seeds=seeds,
            attribute="hair",
            data="celeba",
            steps=steps,
            likelihood={"id": random.beta(9, 1, 400), "ood": random.beta(1, 3, 400)},
        )
    return folder
