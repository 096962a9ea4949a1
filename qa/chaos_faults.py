"""Faults of a single process: functions that harm a run and return the outcome.

A fault takes the paths of a trial (chaos_runs.Bench) and a random generator. It returns one
of the outcomes of chaos_runs and, for a lost run, the reason. KINDS lists all faults; those of
two processes are in `chaos_processes`.
"""

import errno
import os
import random
import resource
import shutil
import signal
import subprocess
import time
import types
from collections.abc import Callable, Mapping

from jbias.runtime import workdir_lock
from qa import chaos_digests, chaos_hooks, chaos_runs

NAMED = "not to be made anew"  # Message of a run about decisions that stay lost.
ERRORS = (errno.ENOSPC, errno.EIO, errno.ESTALE, errno.EROFS, errno.EDQUOT)


def kill_at_point(point: str) -> Callable:
    """Return a fault that sends SIGKILL at a random occurrence of a point."""

    def kill(bench, rng):
        number = rng.randint(1, bench.counts[point])
        die = chaos_hooks.act_at(bench.workdir, point, number, chaos_hooks.die)
        return chaos_runs.judge(bench, bench.run(die))

    return kill


def kill_at_any_time(bench, rng):
    """Send SIGKILL at a random time, which may interrupt libraries in C++ as well."""
    child = bench.start()
    time.sleep(rng.uniform(0, bench.counts["seconds"]))
    child.kill()
    ended = child.wait()
    return chaos_runs.judge(bench, ended) if ended.code else (chaos_runs.MISSED, "")


def kill_twice(bench, rng):
    """Send SIGKILL at a random point, and again while the run resumes."""
    ends = []
    for point in rng.choices(("save", "rename", "eval", "touch"), k=2):
        number = rng.randint(1, max(bench.counts[point] // 2, 1))
        die = chaos_hooks.act_at(bench.workdir, point, number, chaos_hooks.die)
        ends.append(bench.run(die))
    return chaos_runs.judge(bench, *ends)


def terminate(bench, rng):
    """Send SIGTERM at a random point; the run must save a checkpoint and resume."""

    def end():
        os.kill(os.getpid(), signal.SIGTERM)

    number = rng.randint(bench.counts["touch"] // 3, bench.counts["touch"])
    return chaos_runs.judge(
        bench, bench.run(chaos_hooks.act_at(bench.workdir, "touch", number, end))
    )


def fail_write(bench, rng):
    """Let one random write, save or rename fail with an error of the system."""
    point = rng.choice(("write", "save", "eval", "rename"))
    number = rng.randint(1, bench.counts[point])
    act = chaos_hooks.fail(rng.choice(ERRORS))
    return chaos_runs.judge(
        bench, bench.run(chaos_hooks.act_at(bench.workdir, point, number, act))
    )


def limit_file_size(bench, rng):
    """Limit the size of all files that the run writes, from a random point on."""
    size = rng.choice((0, 100, 1000, 10000))

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    number = rng.randint(1, bench.counts["touch"])
    hook = chaos_hooks.act_at(bench.workdir, "touch", number, limit)
    return chaos_runs.judge(bench, bench.run(lambda: (ignore_size_signal(), hook())))


def ignore_size_signal() -> None:
    """Let a write beyond the size limit raise an error instead of ending the process."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def fill_disk(bench, rng):
    """Run on a disk with too little free space, then free space and resume."""
    used = sum(p.stat().st_size for p in bench.unbroken.rglob("*") if p.is_file())
    size = 4 * used + 2**20
    options = ("-t", "tmpfs", "-o", f"size={size}", "tmpfs")
    with chaos_hooks.mounted(bench.workdir.parent, *options):
        filler = bench.workdir.parent / "filler"
        free = int(rng.uniform(0, 1.3 * used))
        with filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, size - free - 65536)
        first = bench.run()
        filler.unlink()
        return chaos_runs.judge(bench, first)


def remount_read_only(bench, rng):
    """Remount the workdir read-only at a random point."""

    frozen = bench.trial / "frozen"

    def freeze():  # First at another path, so that no write comes in between.
        for command in (
            ["mount", "--bind", bench.workdir, frozen],
            ["mount", "-o", "remount,ro,bind", frozen],
            ["mount", "--bind", frozen, bench.workdir],
        ):
            subprocess.run(command, check=True, capture_output=True)

    bench.workdir.mkdir()
    frozen.mkdir()
    number = rng.randint(1, bench.counts["touch"])
    try:
        first = bench.run(chaos_hooks.act_at(bench.workdir, "touch", number, freeze))
    finally:
        for path in (bench.workdir, frozen):
            command = ["umount", "--lazy", path]
            subprocess.run(command, check=False, capture_output=True)
    return chaos_runs.judge(bench, first)


def remove_workdir(bench, rng):
    """Move the workdir away at a random point, sometimes replace it, then restore it.

    A save in progress may still be written to the old path. If the workdir is replaced by
    another folder, the run must not touch the marker file in that folder.
    """
    aside, is_replaced = bench.trial / "aside", rng.random() < 0.5
    marker = bench.workdir / "mine"

    def vanish():
        bench.workdir.rename(aside)
        if is_replaced:
            bench.workdir.mkdir()
            marker.touch()

    number = rng.randint(10, bench.counts["touch"])
    hook = chaos_hooks.act_at(bench.workdir, "touch", number, vanish)
    first = bench.start(hook, compare=False).wait()
    if aside.exists():
        finished_elsewhere = first.code == 0 and not (aside / "done").exists()
        if finished_elsewhere or is_replaced != marker.exists():
            return chaos_runs.LOST, f"continued without its workdir: {first}"
        shutil.rmtree(bench.workdir, ignore_errors=True)
        aside.rename(bench.workdir)
    return chaos_runs.judge(bench, first)


def damage_file(*patterns: str) -> Callable:
    """Return a fault that cuts, empties or flips bits of a file of a broken run.

    patterns: globs of the files to choose from, relative to the workdir.
    """

    def damage(bench, rng):
        bench.copy_broken_run(rng)
        paths = {p for pattern in patterns for p in bench.workdir.glob(pattern)}
        path = rng.choice(sorted(p for p in paths if p.is_file()))
        content = path.read_bytes()
        path.write_bytes(_damage(content, rng))
        digests = chaos_digests.digest_protected(bench.workdir)
        first = bench.run()
        if first.is_refusal:
            if chaos_digests.digest_protected(bench.workdir) != digests:
                why = f"refused but changed files: {first.output[-500:]}"
                return chaos_runs.LOST, why
            path.write_bytes(content)
        name = path.relative_to(bench.workdir)
        outcome, why = chaos_runs.judge(bench, first)
        return outcome, why and f"{name}: {why}"

    return damage


def damage_result(*patterns: str, done: bool) -> Callable:
    """Return a fault that damages or deletes a result of a broken or finished run.

    The run must make the file again or report it; a reported file is then restored.

    patterns: globs of the files to choose from. done: take the finished run.
    """

    def damage(bench, rng):
        if done:
            shutil.copytree(bench.unbroken, bench.workdir)
        else:
            bench.copy_broken_run(rng)
        paths = {p for pattern in patterns for p in bench.workdir.glob(pattern)}
        path = rng.choice(sorted(paths))
        content = path.read_bytes()
        path.unlink()
        if rng.random() < 0.7:
            path.write_bytes(_damage(content, rng))
        first = bench.start(compare=False).wait()
        if (
            first.is_refusal
            or f"{path.name} " in first.output
            and NAMED in first.output
        ):
            path.write_bytes(content)
        outcome, why = chaos_runs.judge(bench, first)
        return outcome, why and f"{path.relative_to(bench.workdir)}: {why}"

    return damage


def _damage(content: bytes, rng: random.Random) -> bytes:
    """Return `content` emptied, cut, or with one or eight bits flipped."""
    if not content or rng.random() < 0.1:
        return b""
    if rng.random() < 0.4:
        return content[: rng.randrange(len(content))]
    damaged = bytearray(content)
    for _ in range(rng.choice((1, 1, 8))):
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def start_twice(bench, rng):
    """Start two runs in one workdir and sometimes kill the first one."""
    first = bench.start()
    time.sleep(rng.uniform(0, bench.counts["seconds"]))
    if rng.random() < 0.3:
        first.kill()
    second = bench.start()
    ends = [child.wait() for child in (first, second)]
    for ended in ends:
        if ended.code == 2 and "another process is at work" not in ended.output:
            return chaos_runs.LOST, f"refused for another reason: {ended}"
    if all(ended.is_refusal for ended in ends):
        return chaos_runs.LOST, f"neither run continued: {ends}"
    return chaos_runs.judge(bench, *ends)


def lock_from_another_host(bench, rng):
    """Put another host's lock into a broken run's workdir.

    The run must refuse if the other host is alive, and continue if it is dead.
    """
    bench.copy_broken_run(rng)
    path, is_alive = bench.workdir / "lock", rng.random() < 0.5
    path.write_text("")
    with path.open("r+b") as file:
        other = workdir_lock.Lock(
            path, file.fileno(), workdir_lock.Owner("host-a", "b", 7, "s", "t")
        )
        other.beat()
        # A heartbeat may take seconds on a busy disk.
        patience = 30.0 if is_alive else 1.0
        child = bench.start(lambda: setattr(workdir_lock, "PATIENCE_SECONDS", patience))
        while is_alive and not child.is_over:
            other.beat()
            time.sleep(0.05)
        first = child.wait()
    if first.is_refusal != is_alive or "host-a" not in first.output:
        state = "alive" if is_alive else "dead"
        return chaos_runs.LOST, f"the other host is {state}: {first}"
    path.write_text("")
    return chaos_runs.judge(bench, first)


def jump_clock(bench, rng):
    """Move the clock back and forth by days, before and after a SIGKILL."""
    seed = rng.random()

    def replace_clock():
        jump_rng, real_time = random.Random(seed), time.time
        offset = 0.0

        def jumping_time() -> float:
            nonlocal offset
            if jump_rng.random() < 0.02:
                offset = jump_rng.uniform(-1e6, 1e6)
            return real_time() + offset

        time.time = jumping_time
        time.time_ns = lambda: int(jumping_time() * 1e9)

    number = rng.randint(1, bench.counts["touch"])
    die = chaos_hooks.act_at(bench.workdir, "touch", number, chaos_hooks.die)
    first = bench.run(lambda: (replace_clock(), die()))
    return chaos_runs.judge(bench, first, bench.run(replace_clock))


def slow_down_disk(bench, rng):
    """Delay 20 accesses to the disk by 0.05 s each, then let one write fail."""
    number = rng.randint(1, bench.counts["touch"])
    fail = chaos_hooks.fail(rng.choice(ERRORS))
    install_failure = chaos_hooks.act_at(bench.workdir, "write", 1 + number // 8, fail)

    def install_hooks():
        def wait():
            time.sleep(0.05)

        for i in range(20):
            chaos_hooks.act_at(bench.workdir, "touch", number + i, wait)()
        install_failure()

    return chaos_runs.judge(bench, bench.run(install_hooks))


Fault = Callable[[chaos_runs.Bench, random.Random], tuple[str, str]]
KINDS: Mapping[str, Fault] = types.MappingProxyType(
    {
        "SIGKILL in a save": kill_at_point("save"),
        "SIGKILL in an evaluation's writing": kill_at_point("eval"),
        "SIGKILL before a rename": kill_at_point("rename"),
        "SIGKILL after a step": kill_at_point("step"),
        "SIGKILL at any time": kill_at_any_time,
        "SIGKILL twice": kill_twice,
        "SIGTERM": terminate,
        "disk full": fill_disk,
        "file cannot grow": limit_file_size,
        "write fails": fail_write,
        "slow disk": slow_down_disk,
        "read-only": remount_read_only,
        "workdir vanishes": remove_workdir,
        "damaged checkpoint": damage_file("checkpoints/**/*"),
        "damaged records": damage_file("evals/*.jsonl"),
        "lost decisions": damage_result("decisions/*/*", done=False),
        "lost when done": damage_result("decisions/*/*", "evals/*", done=True),
        "damaged facts": damage_file("*.json", "log.txt"),
        "two starts": start_twice,
        "another host's lock": lock_from_another_host,
        "clock jumps": jump_clock,
    }
)
