"""Reads pickles of PyTorch: `jbias.untrusted.pickles` with tensors, and nothing else."""

import collections
from typing import Any, BinaryIO

from jbias.models import pickle_values
from jbias.untrusted import pickles

_REMEDY = (
    "if you trust the file, save its weights alone, in an environment that has PyTorch "
    "and what the file asks for: "
    'torch.save(torch.load(FILE, weights_only=False)["state_dict"], NEW)'
)

_DTYPES = frozenset(
    (
        *("float64", "double", "float32", "float", "float16", "half", "bfloat16"),
        *("int64", "long", "int32", "int", "int16", "short", "int8", "uint8", "bool"),
    )
)


# Modules that run commands or code; of builtins, functions that do.
_HOSTILE = frozenset(
    (
        *("os", "posix", "nt", "subprocess", "_posixsubprocess", "commands", "pty"),
        *("shutil", "sys", "socket", "importlib", "runpy", "ctypes", "marshal"),
    )
)
_EVALUATING = frozenset(
    (
        *("eval", "exec", "execfile", "compile", "open", "file", "__import__"),
        *("apply", "breakpoint", "input"),
    )
)


def load(file: BinaryIO) -> tuple[Any, dict[str, pickle_values.Storage]]:
    """Interprets one pickle and leaves the file behind it; returns its storages as well.

    ValueError where it is damaged or says anything but tensors, containers, numbers and
    text.
    """
    machine = _Machine()
    return machine.run(file), machine.storages


def _is_hostile(module: str, name: str) -> bool:
    """Whether what a pickle names runs commands or code, which no network needs."""
    if module in ("builtins", "__builtin__"):
        return name in _EVALUATING
    return module.partition(".")[0] in _HOSTILE


class _Machine(pickles.Machine):
    """Knows tensors, and the storages that they refer to."""

    calls = pickle_values.CALLS
    remedy = _REMEDY

    def __init__(self):
        super().__init__()
        self.storages: dict[str, pickle_values.Storage] = {}
        self.rules = {"NEWOBJ": self.call, "BINPERSID": self.refer}

    def named(self, module: str, name: str) -> pickles.Name:
        kinds = (*pickle_values.STORAGES, *_DTYPES) if module == "torch" else ()
        if (module, name) in self.calls or name in kinds:
            return pickles.Name(module, name)
        asked = f"it asks for {module[:80]}.{name[:80]}"
        if _is_hostile(module, name):
            asked += ": it wants to run a command: do not load it, here or with PyTorch"
            raise ValueError(asked)
        raise ValueError(f"{asked}, which is no tensor; {_REMEDY}")

    def built(self, thing: Any, state: Any) -> Any:
        """Sets what can be left out, but for the order of bytes of a dtype."""
        if isinstance(thing, collections.OrderedDict):
            return thing
        if not isinstance(thing, pickle_values.Dtype):
            return super().built(thing, state)
        order = state[1] if isinstance(state, tuple) and len(state) > 1 else None
        if order not in ("<", ">", "=", "|"):
            raise ValueError("its pickle has a dtype of an unknown order")
        return pickle_values.Dtype(thing.dtype.newbyteorder(order))

    def refer(self, _: Any = None) -> None:
        """A persistent id: here always a storage."""
        saved = self.pop()
        if not isinstance(saved, tuple) or len(saved) not in (5, 6):
            raise ValueError("it refers to what is no storage")
        kind, storage, key, _place, count, *view = saved
        if kind != "storage" or not isinstance(storage, pickles.Name) or any(view):
            raise ValueError("it refers to what is no storage")
        if storage.name not in pickle_values.STORAGES or not isinstance(
            key, (str, int)
        ):
            raise ValueError("it refers to a storage of unknown numbers")
        if type(count) is not int or not 0 <= count < 2**48:
            raise ValueError("it refers to a storage of an impossible size")
        made = pickle_values.Storage(str(key), storage.name, count)
        if self.storages.setdefault(made.key, made) != made:
            raise ValueError("it refers to one storage as two")
        self.stack.append(made)
