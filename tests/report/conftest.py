"""Fake runs: records, config and provenance as training writes them."""

import json

import numpy as np
import pytest

from jbias.runs import results

ALGORITHMS = {
    "erm": ("ERM", 0.0),
    "padain": ("pAdaIN", 0.06),
    "sagnet": ("SagNet", 0.1),
}
SETS = (
    "silhouette",
    "edge",
    "sketch",
    "cue_conflict",
    "stylized",
    "recoloured",
    "corrupted",
)
IMAGES = {"valid": 1024, "cue_conflict": 1280}


def fake_config(name, seeds, **algo):
    return {
        "algo": {"name": name, **algo},
        "seeds": list(seeds),
        "model": {"name": "resnet18", "width": 16},
        "train": {"data": "shapes", "batch": 64},
        "epochs": 5,
        "run": {"workers": 2},
    }


def fake_provenance(config):
    data = {
        name: {
            "n": IMAGES.get(name, 800),
            "fingerprint": name.encode().hex(),
            "preprocessing": "none",
            "cite": "Hermann & Lampinen 2020, https://arxiv.org/abs/2006.12433",
        }
        for name in ("valid", *SETS)
    }
    return {
        "config": config,
        "code": {"version": "0.1.0", "commit": "0123abc"},
        "packages": {"jax": "0.10.2", "flax": "0.12.0", "numpy": "2.4.6"},
        "device": {"kind": "cpu", "count": 1, "cores": 2},
        "data": data,
        "started": "2026-01-02T03:04:05",
    }


def fake_records(run, algorithm, lift, seeds, *, epochs=5, sets=SETS, variant=""):
    """Yield the records of each epoch; scores rise to a limit that grows with `lift`."""
    for epoch in range(1, epochs + 1):
        records = []
        for seed in seeds:
            rng = np.random.default_rng([seed, epoch, len(run)])
            base = {
                "run": run,
                "algorithm": algorithm,
                "variant": variant,
                "model": "resnet18",
                "train_data": "shapes",
                "stage": 0,
                "seed": seed,
                "step": 100 * epoch,
                "epoch": float(epoch),
                "condition": "",
            }
            risen = 1 - np.exp(-epoch / 2)
            for i, name in enumerate(("valid", *sets)):
                n = IMAGES.get(name, 800)
                top = 0.9 if name == "valid" else 0.3 + 0.07 * i + lift * (1 + i % 3)
                count = int(n * np.clip(top * risen + rng.normal(0, 0.02), 0, 1))
                cell = {"dataset": name, "count": count, "n": n}
                records.append(
                    results.Record(**base, metric="accuracy", value=count / n, **cell)
                )
                if name == "cue_conflict":
                    cell = {"dataset": name, "count": count // 2, "n": count}
                    value = count // 2 / max(count, 1)
                    records.append(
                        results.Record(**base, metric="shape_bias", value=value, **cell)
                    )
                    cell |= {"count": n - count, "n": n}
                    records.append(
                        results.Record(
                            **base,
                            metric="fraction_neither",
                            value=(n - count) / n,
                            **cell,
                        )
                    )
            loss = {"dataset": "train", "metric": "loss", "value": 3 / epoch}
            records.append(results.Record(**base, **loss))
        yield records


def write_run(workdir, config, epochs_of_records, *, done=True):
    for records in epochs_of_records:
        results.write(workdir / "evals" / f"{records[0].step}.jsonl", records)
    (workdir / "config.json").write_text(json.dumps(config))
    (workdir / "provenance.json").write_text(json.dumps(fake_provenance(config)))
    if done:
        (workdir / "done").write_text("")


def make_runs(folder, *, seeds=(0, 1, 2), epochs=5, sets=SETS, names=tuple(ALGORITHMS)):
    for name in names:
        algorithm, lift = ALGORITHMS[name]
        records = fake_records(name, algorithm, lift, seeds, epochs=epochs, sets=sets)
        write_run(folder / name, fake_config(name, seeds), records)
    return folder


@pytest.fixture
def runs(tmp_path):
    """Return a folder of runs: 3 algorithms, 3 seeds, 5 test sets, 3 epochs."""
    sets = ("silhouette", "edge", "sketch", "cue_conflict", "corrupted")
    return make_runs(tmp_path / "runs", epochs=3, sets=sets)


@pytest.fixture(scope="session")
def many_runs(tmp_path_factory):
    """Return a folder of runs: 3 algorithms, 3 seeds, 7 test sets, 5 epochs."""
    return make_runs(tmp_path_factory.mktemp("many") / "runs")
