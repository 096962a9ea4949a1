"""Reads pickles of PyTorch by interpreting them, so that none can run anything.

A pickle is a program for a stack machine. The one of Python imports what the program
names and calls it. This one knows containers, numbers, text and tensors; every other
instruction and every other name is refused, and said. Its memory is bounded by the size
of the file: no instruction may declare more than is there.
"""

import collections
import pickletools
import types
import warnings
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, NamedTuple

from jbias.models import pickle_values

_STEPS = 2_000_000  # A ResNet-50 with its optimiser has about 40 000.
_BITS = 128  # Of a number; PyTorch's own mark has 77.
GIANT = (
    f"its pickle has a whole number of more than {_BITS} bits, which no network has; copy "
    "or save the file anew"
)
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


class _Name(NamedTuple):
    """Stands for what a pickle would import."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


_MARK = object()


def load(file: BinaryIO) -> tuple[Any, dict[str, pickle_values.Storage]]:
    """Interprets one pickle and leaves the file behind it; returns its storages as well.

    ValueError where it is damaged or says anything but tensors, containers, numbers and
    text.
    """
    machine = _Machine()
    with warnings.catch_warnings():  # Of escapes in damaged text.
        warnings.simplefilter("ignore", DeprecationWarning)
        return machine.run(file), machine.storages


def _is_hostile(module: str, name: str) -> bool:
    """Whether what a pickle names runs commands or code, which no network needs."""
    if module in ("builtins", "__builtin__"):
        return name in _EVALUATING
    return module.partition(".")[0] in _HOSTILE


class _Machine:
    """The stack machine of one pickle."""

    def __init__(self):
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.storages: dict[str, pickle_values.Storage] = {}
        self.copied = 0

    def run(self, file: BinaryIO) -> Any:
        for step, (code, argument, _) in enumerate(pickletools.genops(file)):
            if step == _STEPS:
                raise ValueError(f"its pickle has more than {_STEPS} instructions")
            if type(argument) is int and argument.bit_length() > _BITS:
                raise ValueError(GIANT)
            name = code.name
            if name == "STOP":
                return self.pop()
            if name in _PUSHED:
                self.stack.append(argument)
            elif name in _RULES:
                _RULES[name](self, argument)
            elif name not in _SILENT:
                raise ValueError(f"its pickle has the instruction {name}; {_REMEDY}")
        raise ValueError("its pickle has no end")

    def pop(self) -> Any:
        if not self.stack or self.stack[-1] is _MARK:
            raise ValueError("its pickle takes from an empty stack")
        return self.stack.pop()

    def top(self, kind: type) -> Any:
        if not self.stack or type(self.stack[-1]) not in (kind, *_LIKE.get(kind, ())):
            raise ValueError(f"its pickle fills what is no {kind.__name__}")
        return self.stack[-1]

    def since_mark(self) -> list[Any]:
        items = []
        while self.stack:
            item = self.stack.pop()
            if item is _MARK:
                return items[::-1]
            items.append(item)
        raise ValueError("its pickle lacks a mark")

    def tuple_of(self, count: int) -> None:
        self.stack.append(tuple([self.pop() for _ in range(count)][::-1]))

    def set_items(self, items: list[Any]) -> None:
        target = self.top(dict)
        if len(items) % 2:
            raise ValueError("its pickle has a key without a value")
        for key, value in zip(items[::2], items[1::2]):
            target[pickle_values.key(key)] = value

    def put(self, index: int) -> None:
        value = self.pop()
        self.stack.append(value)
        self.memo[index] = value

    def get(self, index: int) -> None:
        if index not in self.memo:
            raise ValueError("its pickle recalls what it never noted")
        self.stack.append(self.memo[index])

    def name(self, module: Any, name: Any) -> None:
        if not (isinstance(module, str) and isinstance(name, str)):
            raise ValueError("its pickle names something by no text")  # noqa: TRY004
        known = (module, name) in pickle_values.CALLS or (
            module == "torch" and (name in pickle_values.STORAGES or name in _DTYPES)
        )
        if not known and _is_hostile(module, name):
            raise ValueError(
                f"it asks for {module[:80]}.{name[:80]}: it wants to run a command: "
                "do not load it, here or with PyTorch"
            )
        if not known:
            raise ValueError(
                f"it asks for {module[:80]}.{name[:80]}, which is no tensor; {_REMEDY}"
            )
        self.stack.append(_Name(module, name))

    def call(self, _: Any = None) -> None:
        arguments, called = self.pop(), self.pop()
        make = pickle_values.CALLS.get(called) if isinstance(called, _Name) else None
        if make is None or not isinstance(arguments, tuple):
            raise ValueError("its pickle calls what is no function of tensors")
        sized = (list, tuple, str, bytes)
        self.copied += sum(len(one) for one in arguments if isinstance(one, sized))
        if self.copied > _STEPS:  # One long list, given again and again.
            raise ValueError(f"its pickle copies more than {_STEPS} items")
        try:
            self.stack.append(make(*arguments))
        except TypeError as error:
            raise ValueError(f"it gives {called} wrong arguments") from error

    def build(self, _: Any = None) -> None:
        """Sets the state of an object: here only what can be left out."""
        state = self.pop()
        if not self.stack or not isinstance(
            self.stack[-1], (collections.OrderedDict, pickle_values.Dtype)
        ):
            raise ValueError("its pickle sets the state of what has none")
        if isinstance(self.stack[-1], pickle_values.Dtype):
            dtype = self.stack.pop().dtype
            order = state[1] if isinstance(state, tuple) and len(state) > 1 else None
            if order not in ("<", ">", "=", "|"):
                raise ValueError("its pickle has a dtype of an unknown order")
            self.stack.append(pickle_values.Dtype(dtype.newbyteorder(order)))

    def refer(self, _: Any = None) -> None:
        """A persistent id: here always a storage."""
        saved = self.pop()
        if not isinstance(saved, tuple) or len(saved) not in (5, 6):
            raise ValueError("it refers to what is no storage")
        kind, storage, key, _place, count, *view = saved
        if kind != "storage" or not isinstance(storage, _Name) or any(view):
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


_LIKE = {dict: (collections.OrderedDict,)}
_SILENT = frozenset(("PROTO", "FRAME"))
_PUSHED = frozenset(
    (
        *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4"),
        *("FLOAT", "BINFLOAT", "STRING", "BINSTRING", "SHORT_BINSTRING"),
        *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
        *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
    )
)
_RULES: Mapping[str, Callable[[_Machine, Any], Any]] = types.MappingProxyType(
    {
        "NONE": lambda m, _: m.stack.append(None),
        "NEWTRUE": lambda m, _: m.stack.append(True),
        "NEWFALSE": lambda m, _: m.stack.append(False),
        "MARK": lambda m, _: m.stack.append(_MARK),
        "POP": lambda m, _: m.stack.pop() if m.stack else m.pop(),
        "POP_MARK": lambda m, _: m.since_mark(),
        "DUP": lambda m, _: m.stack.extend([m.pop()] * 2),
        "EMPTY_LIST": lambda m, _: m.stack.append([]),
        "LIST": lambda m, _: m.stack.append(m.since_mark()),
        "APPEND": lambda m, _: _append(m, [m.pop()]),
        "APPENDS": lambda m, _: _append(m, m.since_mark()),
        "EMPTY_TUPLE": lambda m, _: m.stack.append(()),
        "TUPLE": lambda m, _: m.stack.append(tuple(m.since_mark())),
        "TUPLE1": lambda m, _: m.tuple_of(1),
        "TUPLE2": lambda m, _: m.tuple_of(2),
        "TUPLE3": lambda m, _: m.tuple_of(3),
        "EMPTY_DICT": lambda m, _: m.stack.append({}),
        "DICT": lambda m, _: _dict(m, m.since_mark()),
        "SETITEM": lambda m, _: m.set_items([m.pop(), m.pop()][::-1]),
        "SETITEMS": lambda m, _: m.set_items(m.since_mark()),
        "PUT": lambda m, index: m.put(index),
        "BINPUT": lambda m, index: m.put(index),
        "LONG_BINPUT": lambda m, index: m.put(index),
        "MEMOIZE": lambda m, _: m.put(len(m.memo)),
        "GET": lambda m, index: m.get(index),
        "BINGET": lambda m, index: m.get(index),
        "LONG_BINGET": lambda m, index: m.get(index),
        "GLOBAL": lambda m, words: m.name(*str(words).split(" ", 1)),
        "STACK_GLOBAL": lambda m, _: m.name(*[m.pop(), m.pop()][::-1]),
        "REDUCE": _Machine.call,
        "NEWOBJ": _Machine.call,
        "BUILD": _Machine.build,
        "BINPERSID": _Machine.refer,
    }
)


def _append(machine: _Machine, items: list[Any]) -> None:
    machine.top(list).extend(items)


def _dict(machine: _Machine, items: list[Any]) -> None:
    machine.stack.append({})
    machine.set_items(items)
