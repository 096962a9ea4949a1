"""Replacement of jbias.main for tests of how runs are started and how they end.

    python tests/launch/fake_main.py '{"curve": [0.1, 0.2], ...}' --workdir=DIR

writes an evaluation per step, holds the lock, saves and stops on SIGTERM or SIGUSR1, and
resumes at the last step. "dies": how it ends at a step: by a signal's number, or by an exit
code and words.
"""

import fcntl
import json
import os
import pathlib
import signal
import sys
import time


def evaluation(workdir: pathlib.Path, step: int, value: float) -> None:
    """Write the records of a step; test accuracy is 1 minus validation accuracy."""
    common = {"run": workdir.name, "algorithm": "erm", "variant": "", "model": "cnn"}
    common |= {"train_data": "shapes", "stage": 0, "seed": 0, "step": step}
    common |= {"epoch": 1.0, "condition": "", "metric": "accuracy", "status": "ok"}
    common |= {"count": None, "n": None}
    values = {"valid": value, "edge": 1 - value}
    records = [{**common, "dataset": k, "value": v} for k, v in values.items()]
    path = workdir / f"evals/{step}.jsonl"
    path.parent.mkdir(exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text("".join(json.dumps(record) + "\n" for record in records))
    part.rename(path)


def main(behaviour: dict, workdir: pathlib.Path) -> int:
    """Run the replacement."""
    workdir.mkdir(parents=True, exist_ok=True)
    signals_received = []

    def note(number: int, _) -> None:
        if number in signals_received:
            os._exit(99)  # A second signal ends a run that is saving.
        signals_received.append(number)

    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, note)
    job = {
        "devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "cores": sorted(os.sched_getaffinity(0)),
        "began": time.time(),
    }
    with (workdir / "lock").open("w") as lock, (workdir / "log.txt").open("a") as log:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        num_done = len([*workdir.glob("evals/*.jsonl")])
        (workdir / "config.json").write_text("{}")
        for step in range(num_done + 1, len(behaviour["curve"]) + 1):
            time.sleep(behaviour.get("seconds", 0.05))
            if signals_received:
                time.sleep(1.0)
                name = signal.Signals(signals_received[0]).name
                line = (
                    f"jbias: {name} at step {step - 1}: saved; the same command resumes"
                )
                print(line, file=log)
                print(line, flush=True)
                return 143
            evaluation(workdir, step, behaviour["curve"][step - 1])
            print(f"at step {step}/{len(behaviour['curve'])}", file=log, flush=True)
            once = workdir / "died"
            if behaviour.get("dies") and not once.exists():
                once.touch()
                if "signal" in behaviour["dies"]:
                    os.kill(os.getpid(), behaviour["dies"]["signal"])
                print(behaviour["dies"]["words"], flush=True)
                return behaviour["dies"]["code"]
        job["ended"] = time.time()
        (workdir / "seen.json").write_text(json.dumps(job))
        (workdir / "done").write_text("finished\n")
    return 0


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[-1].removeprefix("--workdir="))
    sys.exit(main(json.loads(sys.argv[1]), folder))
