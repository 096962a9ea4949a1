"""A SLURM of one's own on this machine: a controller and some nodes, without root or systemd.

    python -m benchmarks.slurm_cluster --folder=slurm --nodes=2

starts it, says how to talk to it, and ends it with Ctrl-C. Needs the programs of Debian's
packages slurm-wlm and munge. Each node is a slurmd with a name and a port of its own. The
processes of a job on several nodes meet at the first node's name: so names are addresses
that are all this machine's.
"""

import argparse
import contextlib
import csv
import getpass
import os
import pathlib
import platform
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

ROOT = pathlib.Path(__file__).parents[1]
PYTHON = (sys.executable, "-m")
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol")
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"

_CONF = """\
ClusterName=jbias
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock,cred_expire=30
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=5,bf_interval=5
ReturnToService=2
KillWait=120
MpiDefault=none
"""
_NODE = "NodeName={name} NodeHostname={host} NodeAddr={name} Port={port} CPUs={cores}"


def node(number: int) -> str:
    """The name of a node, from 0."""
    return f"127.0.0.{number + 1}"


def missing() -> list[str]:
    """The programs that are not here."""
    return [name for name in PROGRAMS if not shutil.which(name, path=_PATH)]


@contextlib.contextmanager
def started(
    folder: pathlib.Path, *, nodes: int = 2, cores: int = 1
) -> Iterator[dict[str, str]]:
    """Starts the daemons in a new folder; yields the environment that finds them.

    Nodes are called as `node` says; `cores` is what each tells that it has.
    """
    folder = folder.resolve()
    (folder / "state").mkdir(parents=True)
    folder.chmod(0o755)  # munged wants it so.
    names = [node(i) for i in range(nodes)]
    conf = folder / "slurm.conf"
    conf.write_text(_configuration(folder, names, cores))
    environment = {**os.environ, "PATH": _PATH, "SLURM_CONF": str(conf)}
    daemons: list[subprocess.Popen] = []
    try:
        _munge(folder, daemons)
        _start(["slurmctld", "-D", "-f", str(conf)], folder, environment, daemons)
        for name in names:
            command = ["slurmd", "-D", "-N", name, "-f", str(conf)]
            _start(command, folder, environment, daemons)
        _await(environment, names)
        yield environment
    finally:
        _cancel_all(environment)
        for daemon in reversed(daemons):
            daemon.terminate()
        for daemon in daemons:
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(timeout=20)
            daemon.kill()


def _cancel_all(environment: dict[str, str]) -> None:
    """Leaves no process of a job behind."""

    def call(*command: str) -> bytes:
        return subprocess.run(
            command, env=environment, capture_output=True, check=False
        ).stdout

    call("scancel", "--me", "--full", "--signal=KILL")
    call("scancel", "--me")
    with contextlib.suppress(RuntimeError):
        _until(lambda: not call("squeue", "--me", "--noheader"), "jobs are left", 20.0)


def _configuration(folder: pathlib.Path, names: list[str], cores: int) -> str:
    host = platform.node().partition(".")[0]
    free = _free_ports(len(names) + 1)
    told = {"host": host, "user": getpass.getuser(), "folder": folder}
    lines = [_CONF.format(port=free[0], **told)]
    for name, port in zip(names, free[1:], strict=True):
        lines.append(_NODE.format(name=name, host=host, port=port, cores=cores) + "\n")
    joined = ",".join(names)
    lines.append(f"PartitionName=all Nodes={joined} Default=YES MaxTime=INFINITE\n")
    return "".join(lines)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in found:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in found]


def _munge(folder: pathlib.Path, daemons: list[subprocess.Popen]) -> None:
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    places = {"key-file": key, "socket": folder / "munge.sock"}
    places |= {"pid-file": folder / "munged.pid", "seed-file": folder / "munge.seed"}
    flags = [f"--{name}={path}" for name, path in places.items()]
    command = ["munged", "--foreground", "--force", *flags]
    _start(command, folder, {**os.environ, "PATH": _PATH}, daemons)
    _until(places["socket"].exists, "munged opens no socket")


def _start(
    command: list[str], folder: pathlib.Path, environment: dict[str, str], daemons: list
) -> None:
    with (folder / "daemons.log").open("ab") as log:
        daemons.append(
            subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        )


def _await(environment: dict[str, str], names: list[str]) -> None:
    def ready() -> bool:
        command = ["sinfo", "--noheader", "--Node", "--format=%t"]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False
        )
        return done.stdout.split() == ["idle"] * len(names)

    _until(ready, "the nodes are not idle")


def _until(holds, otherwise: str, seconds: float = 60.0) -> None:
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began > seconds:
            raise RuntimeError(
                f"slurm: {otherwise} after {seconds:.0f} s; see its logs"
            )
        time.sleep(0.2)


def call(*command: str, environment: Mapping[str, str]) -> str:
    """What a command wrote; ends the benchmark where it fails."""
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(
            f"benchmarks.slurm: {' '.join(command)}: {done.stderr[-2000:]}"
        )
    return done.stdout + done.stderr


def event(began: float, what: str, job: str = "") -> dict[str, Any]:
    """What happened to a job, and when; tells it."""
    seconds = round(time.monotonic() - began, 1)
    print(f"{seconds:7.1f} s {job} {what}", file=sys.stderr, flush=True)
    return {"seconds": seconds, "job": job, "what": what}


def again(
    run: pathlib.Path, other: pathlib.Path, environment: Mapping[str, str]
) -> None:
    """Trains a trial of a search once more, in one process and another workdir."""
    with (run.parent / "trials.csv").open(newline="") as file:
        rows = {row["trial"]: row["command"] for row in csv.DictReader(file)}
    _, *words, _ = shlex.split(rows[run.name])
    call(sys.executable, *words, f"--workdir={other}", environment=environment)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--nodes", type=int, default=2)
    args = parser.parse_args()
    with started(args.folder, nodes=args.nodes) as environment:
        print(f"export SLURM_CONF={environment['SLURM_CONF']}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()


if __name__ == "__main__":
    main()
