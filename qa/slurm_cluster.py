"""Start a SLURM cluster on this machine: a controller and nodes, without root or systemd.

    python -m qa.slurm_cluster --folder=slurm

Starts the cluster and prints `export SLURM_CONF=...`, which makes SLURM's commands in another
terminal use the cluster; press Ctrl-C to stop it. Writes SLURM's configuration and logs to
--folder. Needs the programs of Debian's packages slurm-wlm and munge. Each node is a slurmd with a
port of its own. Nodes are named by loopback addresses (127.0.0.1, 127.0.0.2, ...), so that
processes of a job on several nodes can connect.

Takes seconds to start (an estimate), and runs until it is stopped.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from qa import command

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
    """Return the name of node `number`, counted from 0."""
    return f"127.0.0.{number + 1}"


def missing() -> list[str]:
    """Return the names of required programs that are not installed."""
    return [name for name in PROGRAMS if not shutil.which(name, path=_PATH)]


def require_programs(arguments: argparse.ArgumentParser) -> None:
    """Exit with an error of one line if required programs are not installed."""
    absent = ", ".join(missing())
    if absent:
        arguments.error(f"SLURM: no {absent}; install Debian's slurm-wlm and munge")


@contextlib.contextmanager
def started(
    folder: pathlib.Path, *, nodes: int = 2, cores: int = 1
) -> Iterator[dict[str, str]]:
    """Start the daemons in a new folder, yield the environment that finds them, end them.

    Names of nodes come from `node`. cores: CPU cores that each node announces.
    """
    folder = folder.resolve()
    (folder / "state").mkdir(parents=True)
    folder.chmod(0o755)  # munged refuses other modes.
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
    """Cancel all jobs of this user, and wait until none is left."""

    def call(*command: str) -> bytes:
        return subprocess.run(
            command, env=environment, capture_output=True, check=False
        ).stdout

    call("scancel", "--me", "--full", "--signal=KILL")
    call("scancel", "--me")
    with contextlib.suppress(RuntimeError):
        _until(lambda: not call("squeue", "--me", "--noheader"), "jobs are left", 20.0)


def _configuration(folder: pathlib.Path, names: list[str], cores: int) -> str:
    """Return the text of slurm.conf."""
    host = platform.node().partition(".")[0]
    ports = _free_ports(len(names) + 1)
    user = getpass.getuser()
    lines = [_CONF.format(port=ports[0], host=host, user=user, folder=folder)]
    for name, port in zip(names, ports[1:], strict=True):
        lines.append(_NODE.format(name=name, host=host, port=port, cores=cores) + "\n")
    joined = ",".join(names)
    lines.append(f"PartitionName=all Nodes={joined} Default=YES MaxTime=INFINITE\n")
    return "".join(lines)


def _free_ports(count: int) -> list[int]:
    """Return numbers of ports that are free at this moment."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for unbound in sockets:
            unbound.bind(("127.0.0.1", 0))
        return [bound.getsockname()[1] for bound in sockets]


def _munge(folder: pathlib.Path, daemons: list[subprocess.Popen]) -> None:
    """Start munged, which authenticates SLURM's messages, and wait for its socket."""
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    munge_socket = folder / "munge.sock"
    command = [
        "munged",
        "--foreground",
        "--force",
        f"--key-file={key}",
        f"--socket={munge_socket}",
        f"--pid-file={folder / 'munged.pid'}",
        f"--seed-file={folder / 'munge.seed'}",
    ]
    _start(command, folder, {**os.environ, "PATH": _PATH}, daemons)
    _until(munge_socket.exists, "munged opens no socket")


def _start(
    command: list[str], folder: pathlib.Path, environment: dict[str, str], daemons: list
) -> None:
    """Start a daemon, and append its process to `daemons`."""
    with (folder / "daemons.log").open("ab") as log:
        daemons.append(
            subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        )


def _await(environment: dict[str, str], names: list[str]) -> None:
    """Wait until all nodes are idle."""

    def is_ready() -> bool:
        command = ["sinfo", "--noheader", "--Node", "--format=%t"]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False
        )
        return done.stdout.split() == ["idle"] * len(names)

    _until(is_ready, "the nodes are not idle")


def _until(is_met: Callable[[], bool], failure: str, seconds: float = 60.0) -> None:
    """Wait for a condition; raise RuntimeError with `failure` after `seconds`."""
    start = time.monotonic()
    while not is_met():
        if time.monotonic() - start > seconds:
            raise RuntimeError(f"slurm: {failure} after {seconds:.0f} s; see its logs")
        time.sleep(0.2)


def call(command: Sequence[str], *, environment: Mapping[str, str]) -> str:
    """Run a command; return its output, or raise SystemExit if it fails."""
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"qa.slurm: {' '.join(command)}: {done.stderr[-2000:]}")
    return done.stdout + done.stderr


def event(start: float, description: str, job: str = "") -> dict[str, Any]:
    """Print an event and return it, with the seconds since `start`."""
    seconds = round(time.monotonic() - start, 1)
    print(f"{seconds:7.1f} s {job} {description}", file=sys.stderr, flush=True)
    return {"seconds": seconds, "job": job, "what": description}


def train_again(
    run: pathlib.Path, other: pathlib.Path, environment: Mapping[str, str]
) -> None:
    """Train a trial of a sweep again, in one process, in workdir `other`."""
    with (run.parent / "trials.csv").open(newline="") as file:
        rows = {row["trial"]: row["command"] for row in csv.DictReader(file)}
    _, *words, _ = shlex.split(rows[run.name])
    command = [sys.executable, *words, f"--workdir={other}"]
    call(command, environment=environment)


def main() -> None:
    """Run a cluster until Ctrl-C."""
    parser = command.parser("slurm_cluster", __doc__)
    parser.add_argument(
        "--folder",
        type=pathlib.Path,
        required=True,
        metavar="DIR",
        help="new folder for SLURM's files (required)",
    )
    parser.add_argument(
        "--nodes",
        type=int,
        default=2,
        metavar="N",
        help="number of nodes (default: %(default)s)",
    )
    args = parser.parse_args()
    require_programs(parser)
    with started(args.folder, nodes=args.nodes) as environment:
        print(f"export SLURM_CONF={environment['SLURM_CONF']}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()


if __name__ == "__main__":
    main()
