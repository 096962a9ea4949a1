"""Pieces of a set, made in order by many threads or processes, ahead of their use."""

import contextlib
import itertools
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from multiprocessing import resource_tracker

import numpy as np

Piece = Mapping[str, np.ndarray]
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)  # The parent's affair.


def pieces(
    read: Callable[[int], Piece], first: int, stop: int, threads: int, workers: int = 0
) -> Iterator[Piece]:
    """Yields read(first), ..., read(stop - 1), a few of them made ahead.

    What comes depends on `read` alone, however many threads or processes there are.
    With `workers`, that many processes have `threads` threads each; `read` is pickled,
    and a program that uses them needs the `if __name__ == "__main__"` guard. Closing
    the iterator stops them. An error of `read` is raised where its piece would come.
    """
    import grain  # Slow to import, and only streams need it.

    options = grain.ReadOptions(threads, prefetch_buffer_size=2 * threads)
    data = grain.MapDataset.range(first, stop).map(read).to_iter_dataset(options)
    if workers:
        _parse_no_flags()
        many = grain.MultiprocessingOptions(workers, per_worker_buffer_size=2 * threads)
        data = data.mp_prefetch(many, worker_init_fn=_settle)
    iterator = iter(data)
    try:
        with _spared() if workers else contextlib.nullcontext():
            several = list(itertools.islice(iterator, 1))  # Begins the workers.
        yield from several
        yield from iterator
    finally:
        iterator.close()


def _settle(worker: int, workers: int) -> None:
    """Makes a worker a good child: it takes no accelerator, and ends with its parent."""
    del worker, workers
    os.environ["JAX_PLATFORMS"] = "cpu"
    if "jax" in sys.modules:  # Which has read that already.
        sys.modules["jax"].config.update("jax_platforms", "cpu")
    for number in STOPPING:  # Until now `_spared` has held them off.
        signal.signal(number, signal.SIG_IGN)

    def follow():
        multiprocessing.parent_process().join()
        os._exit(0)

    threading.Thread(target=follow, daemon=True).start()


@contextlib.contextmanager
def _spared() -> Iterator[None]:
    """Processes begun within do not end by what a scheduler sends to all of a job.

    The parent is to save first, with their help; it hears of it by its other threads.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        resource_tracker.ensure_running()  # Which lets some of them in again.
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _parse_no_flags() -> None:
    """Lets worker processes read absl's flags outside of absl's app.run."""
    from absl import flags

    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()
