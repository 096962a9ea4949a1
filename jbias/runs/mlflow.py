"""MLflow: one run, with a metric for each seed; in the workdir unless a server is named.

MLFLOW_TRACKING_URI names a server or a folder; without one it is `<workdir>/mlflow`, which
`mlflow ui --backend-store-uri=<workdir>/mlflow` shows. A run keeps its id in
`<workdir>/mlflow.json`. Steps that a resumed run repeats are not logged twice.
"""

import json
import os
import re
import time

from jbias import config as jc
from jbias.runs import loggers
from jbias.runtime import files

_LONGEST = 500  # Letters of a parameter's value: what servers of before took.


class _Run:
    def __init__(self, run: loggers.RunInfo):
        # Late: it reads its environment. A folder is what a run needs no server for.
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        from mlflow import entities, tracking

        self._metric = entities.Metric
        self._param = entities.Param
        folder = f"file:{os.fspath(run.workdir.absolute() / 'mlflow')}"
        uri = os.environ.get("MLFLOW_TRACKING_URI") or folder
        self._client = tracking.MlflowClient(tracking_uri=uri)
        path = run.workdir / "mlflow.json"
        if path.exists():
            self._id = json.loads(path.read_text("utf-8"))["run_id"]
            self._client.update_run(self._id, status="RUNNING")
        else:
            self._id = self._begun(run)
            files.write(path, json.dumps({"run_id": self._id}))
        self._last = {  # Of each metric, the step that was given away last.
            key: max(one.step for one in self._client.get_metric_history(self._id, key))
            for key in self._client.get_run(self._id).data.metrics
        }

    def _begun(self, run: loggers.RunInfo) -> str:
        there = self._client.get_experiment_by_name("jbias")
        of = there.experiment_id if there else self._client.create_experiment("jbias")
        begun = self._client.create_run(of, run_name=run.name).info.run_id
        told = {k: str(v)[:_LONGEST] for k, v in jc.flatten(run.config).items()}
        params = [self._param(key, value) for key, value in told.items() if value]
        for start in range(0, len(params), 100):  # What one call takes.
            self._client.log_batch(begun, params=params[start : start + 100])
        return begun

    def scalars(self, step: int, numbers: loggers.Numbers) -> None:
        """Takes the numbers of a step."""
        now = round(1000 * time.time())
        named = {
            re.sub(r"[^/\w.\- :]", "_", f"{tag}/{of}"): value
            for of, values in numbers.items()
            for tag, value in values.items()
        }
        metrics = [
            self._metric(key, value, now, step)
            for key, value in named.items()
            if step > self._last.get(key, -1)  # Else given away before a resumed start.
        ]
        for start in range(0, len(metrics), 1000):  # What one call takes.
            self._client.log_batch(self._id, metrics=metrics[start : start + 1000])

    def close(self) -> None:
        """Tells that nothing more comes, for now."""
        self._client.set_terminated(self._id)


def open(run: loggers.RunInfo) -> loggers.Logger:
    """Begins or goes on with the workdir's run of MLflow."""
    return _Run(run)
