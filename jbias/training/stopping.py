"""The stop on which all processes of a run agree."""

from collections.abc import Iterable

from jbias.runtime import processes


class AgreedStop:
    """The stop signal of a run: received by this process, and agreed on by all processes.

    received: name of the signal that this process has received, or ""; set by
    signals.StopSignal.attach. agreed: name of the signal for which all processes stop, or "".
    """

    def __init__(self, group: processes.ProcessGroup = processes.ALONE):
        self.received, self.agreed = "", ""
        self._group = group

    def agree_on(self, received: Iterable[str]) -> bool:
        """Set `agreed` to the first signal in the order of processes; return True if there is one.

        received: the name of the signal that each process has received, or "", in the order of
        processes; the same in all processes, so that all agree.
        """
        self.agreed = next(filter(None, received), "")
        return bool(self.agreed)

    def is_agreed(self, step: int | None = None) -> bool:
        """Return True if all processes must stop now; all processes must call this together.

        step: the current step, to react also to preemption notices of JAX's own service;
          None to react to signals only.
        """
        self.agreed = self.agreed or self._group.agree_to_stop(self.received, step)
        return bool(self.agreed)
