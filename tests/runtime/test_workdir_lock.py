"""A lock has one owner, whose process is named in errors, and is taken over if the owner
is silent.
"""

import errno
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

import pytest
from etils import epath

from jbias.runtime import workdir_lock
from tests import cases, smoke_runs

HOLDER = """
import sys, time
from etils import epath
import jbias.runtime.workdir_lock
jbias.runtime.workdir_lock.BEAT_SECONDS = 0.05
{before}
with jbias.runtime.workdir_lock.acquire(epath.Path(sys.argv[1]), "is at work here"):
    print("held", flush=True)
    time.sleep(60)
"""
# Another machine: another kernel, and a file system that knows no locks.
ABROAD = """
import errno, fcntl
import jbias.runtime.workdir_lock
def flock(file, how):
    raise OSError(errno.ENOLCK, "No locks available")
fcntl.flock = flock
jbias.runtime.workdir_lock.boot_id = lambda: "another kernel"
jbias.runtime.workdir_lock._host = lambda: "host-a"
"""


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setattr(workdir_lock, "PATIENCE_SECONDS", 1.0)
    return epath.Path(tmp_path / "lock")


@pytest.fixture
def holder(path):
    """Fixture: start another process that holds the lock until the test ends."""
    started = []

    def start(setup: str = "") -> subprocess.Popen:
        code = HOLDER.format(before=setup)
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(path)],
            cwd=smoke_runs.ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout.readline() == "held\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def refused(path) -> str:
    with (
        pytest.raises(ValueError, match="another process is at work") as caught,
        workdir_lock.acquire(path, "is at work here", lambda line: None),
    ):
        pass
    return str(caught.value)


@pytest.mark.parametrize("setup", ["", ABROAD], ids=["here", "abroad"])
def test_a_live_owner_is_named_and_the_other_refused(path, holder, setup):
    process = holder(setup)
    for _ in range(2):  # A refusal takes nothing from the owner.
        line = refused(path)
        assert f"process {process.pid} on " in line
        assert ("host-a" in line) == bool(setup)
        assert re.search(r"since 20\d\d-.*, last sign of life \d+ s ago; wait", line)
        assert workdir_lock.is_held(path)
    assert process.poll() is None


@pytest.mark.parametrize("setup", ["", ABROAD], ids=["here", "abroad"])
def test_the_lock_of_a_killed_owner_is_taken_over_with_a_message(path, holder, setup):
    process = holder(setup)
    process.send_signal(signal.SIGKILL)
    process.wait()
    lines, began = [], time.monotonic()
    with workdir_lock.acquire(path, "is at work here", lines.append):
        assert workdir_lock.is_held(path)
        assert f"took over the lock of process {process.pid} on" in lines[-1]
    waited = time.monotonic() - began >= workdir_lock.PATIENCE_SECONDS
    # The kernel releases locks of its own processes immediately.
    assert waited == bool(setup)
    assert not workdir_lock.is_held(path)


def test_an_owner_on_another_host_is_lost_only_if_silent(path, holder, monkeypatch):
    """The file's age and the clocks of other machines do not matter."""
    holder(ABROAD)
    os.utime(path, (1, 1))
    monkeypatch.setattr(time, "time", lambda: 4e9)
    refused(path)


def test_an_error_releases_the_lock_as_well(path):
    with pytest.raises(RuntimeError), workdir_lock.acquire(path, "is at work here"):
        raise RuntimeError("ended")
    assert path.read_bytes() == b""
    lines = []
    with workdir_lock.acquire(path, "is at work here", lines.append):
        assert lines == []


def test_a_released_lock_has_no_owner(path):
    lines = []
    for _ in range(2):
        with workdir_lock.acquire(path, "is at work here", lines.append):
            assert json.loads(path.read_text())["pid"] == os.getpid()
        assert path.read_text() == ""
    assert not lines


@pytest.mark.slow
@pytest.mark.parametrize("content", ["{", "x" * 320, '{"pid": 1}', "null", "\0\0"])
def test_a_damaged_lock_is_waited_for_and_taken(path, content):
    path.write_text(content)
    with workdir_lock.acquire(path, "is at work here", lambda line: None):
        assert json.loads(path.read_text())["pid"] == os.getpid()


def test_the_old_owner_is_stopped_before_it_writes(path, monkeypatch):
    with workdir_lock.acquire(path, "is at work here") as own_lock:
        own_lock.check()
        monkeypatch.setattr(workdir_lock, "boot_id", lambda: "another kernel")
        monkeypatch.setattr(fcntl, "flock", no_locks)
        with (
            workdir_lock.acquire(path, "is at work here", lambda line: None),
            pytest.raises(OSError, match="taken over by process .* continues there"),
        ):
            own_lock.check()
        with pytest.raises(OSError, match="taken over"):
            own_lock.check()  # Also once the other has ended.


def test_a_late_beat_is_written_to_no_other_file(path, tmp_path, monkeypatch):
    late, slow = threading.Event(), threading.Event()
    monkeypatch.setattr(workdir_lock, "BEAT_SECONDS", 0.01)

    def check(own_lock):
        slow.set()
        assert late.wait(10)  # A disk that hangs.

    with workdir_lock.acquire(path, "is at work here") as own_lock:
        monkeypatch.setattr(workdir_lock.Lock, "check", check)
        assert slow.wait(10)
    thread = next(t for t in threading.enumerate() if t.name == "lock beats")
    # New files get the descriptor of the released lock.
    other_files = [(tmp_path / str(i)).open("w") for i in range(3)]
    with workdir_lock.acquire(path, "begins next"):
        late.set()
        thread.join(10)
        assert json.loads(path.read_text())["token"] != own_lock.owner.token
    for file in other_files:
        file.close()
        assert (tmp_path / file.name).read_text() == ""


def no_locks(file, operation):
    raise OSError(errno.ENOLCK, "No locks available")


def test_a_removed_or_replaced_directory_is_detected(tmp_path):
    run = epath.Path(tmp_path / "run")
    run.mkdir()
    with workdir_lock.acquire(run / "lock", "is at work here") as own_lock:
        run.rename(tmp_path / "elsewhere")
        with pytest.raises(OSError, match="run has disappeared .*bring the disk back"):
            own_lock.check()
        run.mkdir()
        (run / "lock").write_text("")
        with pytest.raises(OSError, match="no longer the directory"):
            own_lock.check()
        (run / "lock").unlink()
        run.rmdir()
        (tmp_path / "elsewhere").rename(run)
        own_lock.check()


def test_a_lock_is_acquired_again_if_its_file_was_removed(path, monkeypatch):
    """A process that opened the file before would hold a lock that no process sees."""
    flock, removed = fcntl.flock, []

    def late(file, operation):
        if not removed:
            removed.append(path.unlink())
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    with workdir_lock.acquire(path, "is at work here") as own_lock:
        own_lock.check()


def test_disk_errors_are_raised_unchanged(path, monkeypatch):
    def failing(file, operation):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(fcntl, "flock", failing)
    with (
        pytest.raises(OSError, match="Input/output"),
        workdir_lock.acquire(path, "is at work here"),
    ):
        pass


def test_the_owner_is_known_while_the_lock_is_held(path, holder):
    """A second start that is refused does not change the first one's log."""
    assert not workdir_lock.is_held_elsewhere(path)
    with workdir_lock.acquire(path, "is at work here"):
        assert not workdir_lock.is_held_elsewhere(path)
    process = holder()
    assert workdir_lock.is_held_elsewhere(path)
    process.kill()
    process.wait()
    assert not workdir_lock.is_held_elsewhere(path)


@cases.each("kind", ["folder", "link", "dangling link", "pipe"])
def test_a_lock_that_is_no_plain_file_is_refused_in_one_line(tmp_path, kind):
    """The target of a link is not overwritten."""
    place, target = epath.Path(tmp_path / kind), tmp_path / "mine"
    target.write_text("precious")
    if kind == "folder":
        place.mkdir()
    elif kind == "pipe":
        os.mkfifo(place)
    else:
        os.symlink(target if kind == "link" else tmp_path / "nowhere", place)
    refused = pytest.raises(ValueError, match="must be a plain file.*; remove it")
    with refused, workdir_lock.acquire(place, "is at work here"):
        pass
    assert target.read_text() == "precious"
    assert not workdir_lock.is_held(place)
