"""Threads of a run share a few malloc arenas."""

import gc
import os
import platform
import subprocess
import sys

import pytest

from jbias.runtime import heap

MOST = max(2, (os.cpu_count() or 1) // 4)
# Asks for something, so that a command ends at once; then many threads want memory.
CODE = """
import ctypes, sys, threading
from jbias import main
sys.argv = ["jbias.main"]
try:
    main.command()
except SystemExit as ended:
    assert ended.code == 2
libc, gate = ctypes.CDLL(None), threading.Barrier(12)
libc.malloc.restype = libc.fopen.restype = ctypes.c_void_p
def take():
    gate.wait()
    libc.malloc(ctypes.c_size_t(50000))
    gate.wait()
threads = [threading.Thread(target=take) for _ in range(12)]
[one.start() for one in threads], [one.join() for one in threads]
file = ctypes.c_void_p(libc.fopen(b"/dev/stdout", b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of glibc's heap alone")
@pytest.mark.parametrize(("max_arenas", "max_heaps"), [(None, MOST), ("4", 4)])
def test_threads_of_a_command_share_heaps(max_arenas, max_heaps):
    env = {k: v for k, v in os.environ.items() if k != "MALLOC_ARENA_MAX"}
    env |= {"MALLOC_ARENA_MAX": max_arenas} if max_arenas else {}
    ran = subprocess.run(
        [sys.executable, "-c", CODE], env=env, stdout=subprocess.PIPE, check=True
    )
    assert 1 < ran.stdout.count(b"<heap nr=") <= max_heaps


FAULTS = """
import resource
from jbias.runtime import heap
heap.keep_freed(10**8)
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    bytearray(b"x") * (5 * 10**7)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(faults(), faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of glibc's heap alone")
@pytest.mark.parametrize("is_set", [False, True])
def test_freed_memory_is_kept_unless_the_environment_says_otherwise(is_set):
    """A second large array reuses pages: it causes few page faults."""
    env = {k: v for k, v in os.environ.items() if k[:6] not in ("MALLOC", "GLIBC_")}
    env |= {"MALLOC_TRIM_THRESHOLD_": "131072"} if is_set else {}
    ran = subprocess.run(
        [sys.executable, "-c", FAULTS], env=env, capture_output=True, check=True
    )
    first, second = map(int, ran.stdout.split())
    assert first > 1000 and (second > 1000) == is_set


def test_collection_resumes_after_work_without_it():
    with pytest.raises(ValueError), heap.no_collection():
        assert not gc.isenabled()
        raise ValueError
    assert gc.isenabled()
    gc.disable()
    try:
        with heap.no_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_an_exit_runs_handlers_but_searches_no_cycles():
    code = """
import atexit, gc
from jbias.runtime import heap
atexit.register(lambda: print(gc.get_freeze_count() > 0))
heap.skip_last_collection()
heap.skip_last_collection()
print(gc.get_freeze_count())
"""
    ran = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True
    )
    assert ran.stdout.split() == ["0", "True"]
