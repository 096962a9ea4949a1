"""The processes of a run, once they have met: what one learns alone, all are told.

A signal, a damaged image, memory that is left: no process acts on what it alone knows,
as all must take the same steps in the same order. Process 0 alone reads and writes the
workdir. `processes` has how they meet, `hub` what they say to each other.
"""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils
from jaxtyping import PyTree

from jbias.multihost import hub, wire


def checkpoints_alone() -> dict[str, Any]:
    """Options with which orbax waits for no other process: the first one alone calls."""
    if jax.process_count() == 1:
        return {}
    this = {jax.process_index()}
    options = ocp.options.MultiprocessingOptions(
        primary_host=min(this), active_processes=this, barrier_sync_key_prefix="alone"
    )
    return {"multiprocessing_options": options, "create": False}


class Team:
    """The processes of a run; as it stands here, this one alone."""

    number, count = 0, 1

    @property
    def is_main(self) -> bool:
        """Whether this process reads and writes the workdir."""
        return self.number == 0

    @property
    def cores(self) -> int:
        """Cores of all machines that take part."""
        return len(os.sched_getaffinity(0))

    def all_gather(self, what: str, value: Any) -> list[Any]:
        """What each process says, in order, once all have; a barrier, too."""
        del what
        return [value]

    def broadcast(self, what: str, value: Any) -> Any:
        """What process 0 says."""
        return self.all_gather(what, value if self.is_main else None)[0]

    def all_min(self, number: int | None) -> int | None:
        """The least of what the processes say; None where one knows none."""
        told = self.all_gather("memory", number)
        return None if None in told else min(told)

    def gather_previous(self, value: Any) -> list[Any]:
        """What each process said at the call before, without a wait; alone, what is said."""
        return [value]

    def gather_results(self, what: str, act: Callable[[], Any]) -> list[Any]:
        """What `act` gives in each process; a ValueError of one is raised in all."""
        del what
        return [act()]

    @contextlib.contextmanager
    def raise_together(self, what: str, may_fail: bool = True) -> Iterator[None]:
        """Raises a ValueError from within in all processes, where one has it."""
        del what, may_fail
        yield

    def preempted(self, step: int) -> bool:
        """Whether jax has told of a preemption; all ask with the same ascending steps."""
        del step
        return False

    def reporting(self) -> contextlib.AbstractContextManager:
        """Within it this process tells what ends it: nobody else's line comes beside."""
        return contextlib.nullcontext()

    def fail(self, line: str, code: int) -> None:
        """Ends the others with what ended this one, and this process; alone, does nothing."""

    def broadcast_tree(self, tree: PyTree) -> PyTree:
        """What process 0 has in the place of these arrays, on the host."""
        return tree


ALONE = Team()


class Joined(Team):
    """One of several processes that have met; a thread listens to the others.

    Where another is lost, or has failed, the thread ends this process, wherever its own
    work stands, with one line and an exit code: `tell` hears both.
    """

    def __init__(self, line: wire.Line, number: int, facts: list[dict], tell: Callable):
        self.number, self.count, self._facts = number, len(facts), facts
        self._line, self._report = line, tell
        self._calls, self._pulses, self._closed = 0, 0, False
        self._asked, self._voice = None, threading.Lock()
        self._said: dict[str, list] = {}
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._listen, name="team", daemon=True)
        self._thread.start()

    @property
    def cores(self) -> int:
        # Tasks of one machine may share its cores, or have some each.
        return len(
            {(one["host"], core) for one in self._facts for core in one["cores"]}
        )

    def all_gather(self, what: str, value: Any) -> list[Any]:
        self._calls += 1
        what = f"{what}#{self._calls}"
        self._line.send(kind="say", what=what, value=value)
        return self._wait_for(what)

    def gather_results(self, what: str, act: Callable[[], Any]) -> list[Any]:
        error, found = None, None
        try:
            found = act()
        except ValueError as raised:
            error = raised
        told = self.all_gather(what, [found, None if error is None else str(error)])
        if error is not None:
            raise error
        for number, (_, line) in enumerate(told):
            if line is not None:
                raise ValueError(f"process {number} of {self.count}: {line}")
        return [found for found, _ in told]

    @contextlib.contextmanager
    def raise_together(self, what: str, may_fail: bool = True) -> Iterator[None]:
        if not may_fail:
            yield
            return
        error = None
        try:
            yield
        except ValueError as raised:
            error = raised

        def ended() -> None:
            if error is not None:
                raise error

        self.gather_results(what, ended)

    def gather_previous(self, value: Any) -> list[Any]:
        self._pulses += 1
        self._line.send(kind="say", what=f"a step#p{self._pulses}", value=value)
        if self._pulses == 1:
            return []
        return self._wait_for(f"a step#p{self._pulses - 1}")

    def _wait_for(self, what: str) -> list[Any]:
        with self._news:
            self._news.wait_for(lambda: what in self._said)
            return self._said.pop(what)

    def preempted(self, step: int) -> bool:
        # jax chooses one of the steps to come, so none may be left out.
        first = step if self._asked is None else self._asked + 1
        self._asked = step
        asked = range(first, step + 1)
        return any(multihost_utils.reached_preemption_sync_point(n) for n in asked)

    @contextlib.contextmanager
    def reporting(self) -> Iterator[None]:
        with self._voice:
            self._report = lambda *_: None
            yield

    def fail(self, line: str, code: int) -> None:
        self._line.send(kind="fail", line=line, code=code)
        time.sleep(2 * hub.PARTING)  # The thread ends this process before.

    def leave(self) -> None:
        """Ends the work of all, together."""
        self.all_gather("the end", None)
        jax.distributed.shutdown()
        self._closed = True
        self._line.send(kind="bye")
        self._line.shut()
        self._thread.join()

    def broadcast_tree(self, tree: PyTree) -> PyTree:
        leaves, structure = jax.tree.flatten(jax.device_get(tree))
        # As bytes: the sum that jax takes would make 0 of -0.
        sent = b"".join(leaf.tobytes() for leaf in leaves)
        found = multihost_utils.broadcast_one_to_all(np.frombuffer(sent, np.uint8))
        held, stop = np.asarray(found).tobytes(), 0
        for i, leaf in enumerate(leaves):
            start, stop = stop, stop + leaf.nbytes
            flat = np.frombuffer(held[start:stop], leaf.dtype)
            leaves[i] = flat.reshape(leaf.shape)
        return jax.tree.unflatten(structure, leaves)

    def _listen(self) -> None:
        beaten = turned = time.monotonic()
        while not self._closed:
            try:
                for word in self._line.read(hub.BEAT / 4):
                    self._take(word)
            except ConnectionError:
                if not self._closed:
                    self._first_lost("was lost")
                return
            before, turned = turned, time.monotonic()
            if turned - before > hub.SILENCE / 2:  # It is this one that stood still.
                self._line.heard = turned
            if turned - self._line.heard > hub.SILENCE:
                self._first_lost(f"gave no sign of life for {hub.SILENCE:g} s")
            if time.monotonic() - beaten > hub.BEAT:
                beaten = time.monotonic()
                self._line.beat()

    def _take(self, word: Mapping[str, Any]) -> None:
        if word.get("kind") == "said":
            with self._news:
                self._said[word["what"]] = word["values"]
                self._news.notify_all()
        if word.get("kind") == "end" and not self._closed:
            self._die(word["line"], word["code"])

    def _first_lost(self, how: str) -> None:
        facts = self._facts[0]
        where = f"process 0 of {self.count} ({facts['host']}, pid {facts['pid']})"
        self._die(f"processes: {where} {how}; {hub.REMEDY}", hub.LOST)

    def _die(self, line: str, code: int) -> None:
        with self._voice:
            self._report(line, code)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)  # The main thread may wait for the lost one for ever.
