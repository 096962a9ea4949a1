"""Kinds of faults: each harms one run, and tells from its Bench how that ended.

A fault is a function; another kind is one more in KINDS, those of peers in `chaos_peers`.
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

from benchmarks import chaos_ends, chaos_hooks, chaos_runs
from jbias.runtime import lock

NAMED = "not to be made anew"  # What a run says of decisions that stay lost.
ERRORS = (errno.ENOSPC, errno.EIO, errno.ESTALE, errno.EROFS, errno.EDQUOT)


def killed_at_a_point(point: str) -> Callable:
    """Ended by SIGKILL at a random passing of a point."""

    def fault(bench, random_):
        number = random_.randint(1, bench.counts[point])
        die = chaos_hooks.at(bench.workdir, point, number, chaos_hooks.die)
        return chaos_runs.judged(bench, bench.run(die))

    return fault


def killed_at_a_time(bench, random_):
    """SIGKILL whenever, in the writers of other languages too."""
    child = bench.start()
    time.sleep(random_.uniform(0, bench.counts["seconds"]))
    child.kill()
    ended = child.ended()
    return chaos_runs.judged(bench, ended) if ended.code else (chaos_runs.MISSED, "")


def killed_twice(bench, random_):
    """And once more while it takes up what is left."""
    ends = []
    for point in random_.choices(("save", "rename", "eval", "touch"), k=2):
        number = random_.randint(1, max(bench.counts[point] // 2, 1))
        die = chaos_hooks.at(bench.workdir, point, number, chaos_hooks.die)
        ends.append(bench.run(die))
    return chaos_runs.judged(bench, *ends)


def terminated(bench, random_):
    """SIGTERM at a random moment: saves, and goes on after."""

    def end():
        os.kill(os.getpid(), signal.SIGTERM)

    number = random_.randint(bench.counts["touch"] // 3, bench.counts["touch"])
    return chaos_runs.judged(
        bench, bench.run(chaos_hooks.at(bench.workdir, "touch", number, end))
    )


def write_fails(bench, random_):
    """The system refuses a random write, save or rename, once."""
    point = random_.choice(("write", "save", "eval", "rename"))
    number = random_.randint(1, bench.counts[point])
    act = chaos_hooks.fail(random_.choice(ERRORS))
    return chaos_runs.judged(
        bench, bench.run(chaos_hooks.at(bench.workdir, point, number, act))
    )


def file_cannot_grow(bench, random_):
    """From a random moment on no file grows over a size, whoever writes it."""
    size = random_.choice((0, 100, 1000, 10000))

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    number = random_.randint(1, bench.counts["touch"])
    hook = chaos_hooks.at(bench.workdir, "touch", number, limit)
    return chaos_runs.judged(bench, bench.run(lambda: (quiet_limit(), hook())))


def quiet_limit() -> None:
    """An error, not the end of the process, for a file that is too large."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def disk_full(bench, random_):
    """A disk with too little room, at a random fill; then there is room again."""
    used = sum(p.stat().st_size for p in bench.unbroken.rglob("*") if p.is_file())
    size = 4 * used + 2**20
    options = ("-t", "tmpfs", "-o", f"size={size}", "tmpfs")
    with chaos_hooks.mounted(bench.workdir.parent, *options):
        filler = bench.workdir.parent / "filler"
        free = int(random_.uniform(0, 1.3 * used))
        with filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, size - free - 65536)
        first = bench.run()
        filler.unlink()
        return chaos_runs.judged(bench, first)


def read_only(bench, random_):
    """The file system is remounted read-only at a random moment."""

    frozen = bench.trial / "frozen"

    def freeze():  # Elsewhere first: nobody may write there meanwhile.
        for command in (
            ["mount", "--bind", bench.workdir, frozen],
            ["mount", "-o", "remount,ro,bind", frozen],
            ["mount", "--bind", frozen, bench.workdir],
        ):
            subprocess.run(command, check=True, capture_output=True)

    bench.workdir.mkdir()
    frozen.mkdir()
    number = random_.randint(1, bench.counts["touch"])
    try:
        first = bench.run(chaos_hooks.at(bench.workdir, "touch", number, freeze))
    finally:
        for path in (bench.workdir, frozen):
            command = ["umount", "--lazy", path]
            subprocess.run(command, check=False, capture_output=True)
    return chaos_runs.judged(bench, first)


def vanished(bench, random_):
    """The workdir is gone at a random moment, or another is in its place; it returns.

    What is being saved just then may still be written in its place.
    """
    aside, another = bench.trial / "aside", random_.random() < 0.5
    mine = bench.workdir / "mine"

    def vanish():
        bench.workdir.rename(aside)
        if another:
            bench.workdir.mkdir()
            mine.touch()

    number = random_.randint(10, bench.counts["touch"])
    hook = chaos_hooks.at(bench.workdir, "touch", number, vanish)
    first = bench.start(hook, compare=False).ended()
    if aside.exists():
        over = first.code == 0 and not (aside / "done").exists()
        if over or another != mine.exists():
            return chaos_runs.LOST, f"went on where the workdir had been: {first}"
        shutil.rmtree(bench.workdir, ignore_errors=True)
        aside.rename(bench.workdir)
    return chaos_runs.judged(bench, first)


def damaged_file(*patterns: str) -> Callable:
    """A file of a broken run is cut, emptied, or has bits the other way."""

    def fault(bench, random_):
        bench.broken(random_)
        found = {p for pattern in patterns for p in bench.workdir.glob(pattern)}
        path = random_.choice(sorted(p for p in found if p.is_file()))
        content = path.read_bytes()
        path.write_bytes(_harmed(content, random_))
        before = chaos_ends.held(bench.workdir)
        first = bench.run()
        if first.refused:
            if chaos_ends.held(bench.workdir) != before:
                return (
                    chaos_runs.LOST,
                    f"refused and changed what was there: {first.said[-500:]}",
                )
            path.write_bytes(content)
        name = path.relative_to(bench.workdir)
        outcome, why = chaos_runs.judged(bench, first)
        return outcome, why and f"{name}: {why}"

    return fault


def lost_result(*patterns: str, done: bool) -> Callable:
    """A file of a broken run, or of one that is done, is damaged or gone.

    Made anew, or told of, and then its owner has a copy.
    """

    def fault(bench, random_):
        if done:
            shutil.copytree(bench.unbroken, bench.workdir)
        else:
            bench.broken(random_)
        found = {p for pattern in patterns for p in bench.workdir.glob(pattern)}
        path = random_.choice(sorted(found))
        content = path.read_bytes()
        path.unlink()
        if random_.random() < 0.7:
            path.write_bytes(_harmed(content, random_))
        first = bench.start(compare=False).ended()
        if first.refused or f"{path.name} " in first.said and NAMED in first.said:
            path.write_bytes(content)
        outcome, why = chaos_runs.judged(bench, first)
        return outcome, why and f"{path.relative_to(bench.workdir)}: {why}"

    return fault


def _harmed(content: bytes, random_: random.Random) -> bytes:
    if not content or random_.random() < 0.1:
        return b""
    if random_.random() < 0.4:
        return content[: random_.randrange(len(content))]
    harmed = bytearray(content)
    for _ in range(random_.choice((1, 1, 8))):
        harmed[random_.randrange(len(harmed))] ^= 1 << random_.randrange(8)
    return bytes(harmed)


def started_twice(bench, random_):
    """Two starts in one workdir; where one is killed, the other may have it."""
    first = bench.start()
    time.sleep(random_.uniform(0, bench.counts["seconds"]))
    if random_.random() < 0.3:
        first.kill()
    second = bench.start()
    ends = [child.ended() for child in (first, second)]
    for ended in ends:
        if ended.code == 2 and "another process is at work" not in ended.said:
            return chaos_runs.LOST, f"refused for another reason: {ended}"
    if all(ended.refused for ended in ends):
        return chaos_runs.LOST, f"neither went on: {ends}"
    return chaos_runs.judged(bench, *ends)


def lock_of_another_host(bench, random_):
    """A host that died leaves its name in the lock; one that lives is left alone."""
    bench.broken(random_)
    path, alive = bench.workdir / "lock", random_.random() < 0.5
    path.write_text("")
    with path.open("r+b") as file:
        other = lock.Lock(path, file.fileno(), lock.Owner("host-a", "b", 7, "s", "t"))
        other.beat()
        patience = 30.0 if alive else 1.0  # A busy disk's beat may take seconds.
        child = bench.start(lambda: setattr(lock, "PATIENCE_SECONDS", patience))
        while alive and not child.over:
            other.beat()
            time.sleep(0.05)
        first = child.ended()
    if first.refused != alive or "host-a" not in first.said:
        return chaos_runs.LOST, f"alive {alive}: {first}"
    path.write_text("")
    return chaos_runs.judged(bench, first)


def clock_jumps(bench, random_):
    """The clock goes back and forth by days, until a kill and after."""
    seed = random_.random()

    def before():
        steps, real = random.Random(seed), time.time
        offset = 0.0

        def jumping() -> float:
            nonlocal offset
            if steps.random() < 0.02:
                offset = steps.uniform(-1e6, 1e6)
            return real() + offset

        time.time, time.time_ns = jumping, lambda: int(jumping() * 1e9)

    number = random_.randint(1, bench.counts["touch"])
    die = chaos_hooks.at(bench.workdir, "touch", number, chaos_hooks.die)
    first = bench.run(lambda: (before(), die()))
    return chaos_runs.judged(bench, first, bench.run(before))


def slow_disk(bench, random_):
    """A disk that takes long for each of many accesses, and then fails for once."""
    number = random_.randint(1, bench.counts["touch"])
    fail = chaos_hooks.fail(random_.choice(ERRORS))
    fails = chaos_hooks.at(bench.workdir, "write", 1 + number // 8, fail)

    def slow():
        def wait():
            time.sleep(0.05)

        for i in range(20):
            chaos_hooks.at(bench.workdir, "touch", number + i, wait)()
        fails()

    return chaos_runs.judged(bench, bench.run(slow))


Fault = Callable[[chaos_runs.Bench, random.Random], tuple[str, str]]
KINDS: Mapping[str, Fault] = types.MappingProxyType(
    {
        "SIGKILL in a save": killed_at_a_point("save"),
        "SIGKILL in an evaluation's writing": killed_at_a_point("eval"),
        "SIGKILL before a rename": killed_at_a_point("rename"),
        "SIGKILL after a step": killed_at_a_point("step"),
        "SIGKILL at any time": killed_at_a_time,
        "SIGKILL twice": killed_twice,
        "SIGTERM": terminated,
        "disk full": disk_full,
        "file cannot grow": file_cannot_grow,
        "write fails": write_fails,
        "slow disk": slow_disk,
        "read-only": read_only,
        "workdir vanishes": vanished,
        "damaged checkpoint": damaged_file("checkpoints/**/*"),
        "damaged records": damaged_file("evals/*.jsonl"),
        "lost decisions": lost_result("decisions/*/*", done=False),
        "lost when done": lost_result("decisions/*/*", "evals/*", done=True),
        "damaged facts": damaged_file("*.json", "log.txt"),
        "two starts": started_twice,
        "another host's lock": lock_of_another_host,
        "clock jumps": clock_jumps,
    }
)
