"""Replacement of jbias.main for tests of how runs are started and how they end.

    python tests/launch/fake_main.py '{"curve": [0.1, 0.2], ...}' --workdir=DIR

writes an evaluation a step, holds the lock, saves and leaves on SIGTERM or SIGUSR1, and goes on where
it was. "dies": how it ends at a step: by a signal's number, or by an exit code and words.
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


def main(told: dict, workdir: pathlib.Path) -> int:
    """Run the replacement."""
    workdir.mkdir(parents=True, exist_ok=True)
    asked = []

    def note(number: int, _) -> None:
        if number in asked:
            os._exit(99)  # A run that saves is killed by a second.
        asked.append(number)

    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, note)
    seen = {
        "devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "cores": sorted(os.sched_getaffinity(0)),
        "began": time.time(),
    }
    with (workdir / "lock").open("w") as lock, (workdir / "log.txt").open("a") as log:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        done = len([*workdir.glob("evals/*.jsonl")])
        (workdir / "config.json").write_text("{}")
        for step in range(done + 1, len(told["curve"]) + 1):
            time.sleep(told.get("seconds", 0.05))
            if asked:
                time.sleep(1.0)
                name = signal.Signals(asked[0]).name
                line = (
                    f"jbias: {name} at step {step - 1}: saved; the same command resumes"
                )
                print(line, file=log)
                print(line, flush=True)
                return 143
            evaluation(workdir, step, told["curve"][step - 1])
            print(f"at step {step}/{len(told['curve'])}", file=log, flush=True)
            once = workdir / "died"
            if told.get("dies") and not once.exists():
                once.touch()
                if "signal" in told["dies"]:
                    os.kill(os.getpid(), told["dies"]["signal"])
                print(told["dies"]["words"], flush=True)
                return told["dies"]["code"]
        seen["ended"] = time.time()
        (workdir / "seen.json").write_text(json.dumps(seen))
        (workdir / "done").write_text("finished\n")
    return 0


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[-1].removeprefix("--workdir="))
    sys.exit(main(json.loads(sys.argv[1]), folder))
