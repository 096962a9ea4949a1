"""Logger for MLflow: one MLflow run, with metrics per seed.

MLFLOW_TRACKING_URI names a server or a folder; the default is the folder
`<workdir>/mlflow`, which `mlflow ui --backend-store-uri=<workdir>/mlflow` shows. The id of
the MLflow run is in `<workdir>/mlflow.json`. Steps that a resumed run repeats are not
logged twice.
"""

import json
import os
import re
import time

from jbias import config as jc
from jbias.runs import loggers
from jbias.runtime import files

_MAX_LETTERS = 500  # Of a parameter's value: the limit of older servers.


class _MlflowLogger:
    """A logger that writes to one MLflow run; see `loggers.Logger`."""

    def __init__(self, run: loggers.RunInfo):
        # mlflow reads the environment when it is imported. Without this variable it needs
        # a server.
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
            self._id = self._create_run(run)
            files.write(path, json.dumps({"run_id": self._id}))
        self._last_steps = {}  # By metric.
        for key in self._client.get_run(self._id).data.metrics:
            history = self._client.get_metric_history(self._id, key)
            self._last_steps[key] = max(metric.step for metric in history)

    def _create_run(self, run: loggers.RunInfo) -> str:
        """Create an MLflow run in the experiment "jbias"; return its id.

        The parameters of the MLflow run are the entries of the config by dotted keys. Texts are cut
        at 500 letters, and empty texts are left out.
        """
        experiment = self._client.get_experiment_by_name("jbias")
        if experiment:
            experiment_id = experiment.experiment_id
        else:
            experiment_id = self._client.create_experiment("jbias")
        run_id = self._client.create_run(experiment_id, run_name=run.name).info.run_id
        values = {k: str(v)[:_MAX_LETTERS] for k, v in jc.flatten(run.config).items()}
        params = [self._param(key, value) for key, value in values.items() if value]
        for start in range(0, len(params), 100):  # The limit of one call.
            self._client.log_batch(run_id, params=params[start : start + 100])
        return run_id

    def scalars(self, step: int, numbers: loggers.Numbers) -> None:
        """Log the numbers of a step as MLflow metrics called "<tag>/<owner>".

        Steps that are logged already are skipped. Characters that MLflow does not allow become _.
        """
        timestamp = round(1000 * time.time())
        metrics = []
        for owner, values in numbers.items():
            for tag, value in values.items():
                key = re.sub(r"[^/\w.\- :]", "_", f"{tag}/{owner}")
                # A resumed run repeats steps that are logged already.
                if step > self._last_steps.get(key, -1):
                    metrics.append(
                        self._metric(key, value, timestamp=timestamp, step=step)
                    )
        for start in range(0, len(metrics), 1000):  # The limit of one call.
            self._client.log_batch(self._id, metrics=metrics[start : start + 1000])

    def close(self) -> None:
        """Mark the MLflow run as finished; a resumed run opens it again."""
        self._client.set_terminated(self._id)


def open(run: loggers.RunInfo) -> loggers.Logger:
    """Create or resume the MLflow run of a workdir, and return its logger."""
    return _MlflowLogger(run)
