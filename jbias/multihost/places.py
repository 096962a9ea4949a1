"""Which of the processes of a run this is: told by flags, or by the cluster."""

import os
from typing import NamedTuple

import jax

# What jax can be told, and finds where it is not.
_DETECTED = ("coordinator_address", "num_processes", "process_id", "local_device_ids")
_DETECTED += ("cluster_detection_method",)


class Place(NamedTuple):
    """Where a process stands among those of a run."""

    coordinator: str  # HOST:PORT, at process 0.
    count: int
    number: int
    devices: list[int] | None = None  # Of its machine; None: all.


def place(address: str | None, count: int | None, number: int | None) -> Place:
    """Reads the flags, or without them what SLURM, Open MPI or a TPU's host says.

    A count of 1 alone trains alone, whatever is said there. ValueError where the flags
    do not fit each other.
    """
    given = [address, count, number]
    if count == 1 and address is None and number is None:
        return Place("", 1, 0)
    if all(one is None for one in given):
        return _detected()
    if None in given:
        names = ("--coordinator", "--processes", "--process")
        absent = [name for name, one in zip(names, given) if one is None]
        raise ValueError(
            f"processes: --coordinator=HOST:PORT, --processes=N and --process=I go "
            f"together, got no {' and no '.join(absent)}"
        )
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise ValueError(
            f"processes: --coordinator must be HOST:PORT, where process 0 is, got "
            f"{address!r}"
        )
    if count < 1 or not 0 <= number < count:
        raise ValueError(
            f"processes: --process must be 0 to {max(0, count - 1)} of --processes="
            f"{count}, got {number}"
        )
    return Place(address, count, number)


def _detected() -> Place:
    """What jax's own detection finds; alone, where it finds nothing."""
    remedy = "--processes=1 trains alone; or give --coordinator, --processes, --process"
    try:
        # Nothing public tells it without starting all of jax's service.
        from jax._src import clusters

        found = clusters.ClusterEnv.auto_detect_unset_distributed_params(
            **dict.fromkeys(_DETECTED), initialization_timeout=300
        )
    except (
        Exception
    ) as error:  # Each cluster raises its own, another jax what it likes.
        raise ValueError(
            f"processes: the cluster that this seems to be does not say which processes "
            f"there are (jax {jax.__version__}: {error}); {remedy}"
        ) from error
    where = Place(*found)
    if None in where[:3] or where.count == 1:
        return Place("", 1, 0)
    if not 0 <= where.number < where.count:
        raise ValueError(
            "processes: the cluster that this seems to be must say 0 to "
            f"{where.count - 1} for a process of {where.count}, got {where.number}; "
            f"{remedy}"
        )
    told = os.environ.get("JAX_LOCAL_DEVICE_IDS")  # jax looks, if given none.
    return where._replace(devices=None) if told else where
