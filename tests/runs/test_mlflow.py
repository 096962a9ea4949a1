"""The MLflow logger, with the real client on a folder."""

import pytest

from jbias.runs import loggers

mlflow = pytest.importorskip("mlflow")


def open_logger(folder, step=0):
    config = {"seeds": (0, 1), "optim": {"rate": 0.1}, "run": {"write": "mlflow"}}
    run_loggers = loggers.Loggers(pytest.fail)
    run_loggers.begin(["mlflow"], loggers.RunInfo(folder, "erm-shapes-x", config, step))
    return run_loggers


def test_a_resumed_run_logs_each_number_once(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    rows = {
        step: {
            f"algo.p=1,optim.rate=0.1/seed-{seed}": {"valid/accuracy": step + seed}
            for seed in range(2)
        }
        for step in (5, 10, 15)
    }
    first = open_logger(tmp_path)
    first.scalars(5, rows[5])
    first.scalars(10, {"mean": {"progress/loss": 1.0}})
    first.close()
    second = open_logger(tmp_path, step=5)  # As after a kill.
    for step, row in rows.items():
        second.scalars(step, row)
    second.close()
    client = mlflow.MlflowClient(tracking_uri=f"file:{tmp_path}/mlflow")
    (experiment,) = client.search_experiments(filter_string="name = 'jbias'")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.run_name == "erm-shapes-x" and run.info.status == "FINISHED"
    assert run.data.params["optim.rate"] == "0.1"
    for seed in range(2):
        key = f"valid/accuracy/algo.p_1_optim.rate_0.1/seed-{seed}"
        history = client.get_metric_history(run.info.run_id, key)
        points = [(metric.step, metric.value) for metric in history]
        assert points == [(step, step + seed) for step in rows]
