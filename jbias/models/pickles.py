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

import numpy as np

_STEPS = 2_000_000  # A ResNet-50 with its optimiser has about 40 000.
_REMEDY = (
    "if you trust the file, save its weights alone, in an environment that has PyTorch "
    "and what the file asks for: "
    'torch.save(torch.load(FILE, weights_only=False)["state_dict"], NEW)'
)

# Numbers as they lie in the file; bfloat16 is the upper half of a float32.
STORAGES: Mapping[str, str] = types.MappingProxyType(
    {
        "DoubleStorage": "<f8",
        "FloatStorage": "<f4",
        "HalfStorage": "<f2",
        "BFloat16Storage": "bf16",
        "LongStorage": "<i8",
        "IntStorage": "<i4",
        "ShortStorage": "<i2",
        "CharStorage": "i1",
        "ByteStorage": "u1",
        "BoolStorage": "?",
    }
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


class Storage(NamedTuple):
    """What a pickle says of numbers that lie elsewhere in the file."""

    key: str
    kind: str  # A key of STORAGES.
    count: int


class Tensor(NamedTuple):
    """A tensor whose numbers are not read yet."""

    storage: str  # The key of a Storage.
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # In numbers, not in bytes.


class _Name(NamedTuple):
    """Stands for what a pickle would import."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


class _Dtype(NamedTuple):
    """A dtype of numpy, for its scalars."""

    dtype: np.dtype


_MARK = object()


def load(file: BinaryIO) -> tuple[Any, dict[str, Storage]]:
    """Interprets one pickle and leaves the file behind it; returns its storages as well.

    ValueError where it is damaged or says anything but tensors, containers, numbers and
    text.
    """
    machine = _Machine()
    with warnings.catch_warnings():  # Of escapes in damaged text.
        warnings.simplefilter("ignore", DeprecationWarning)
        return machine.run(file), machine.storages


def itemsize(storage: Storage) -> int:
    """Bytes of a number in a storage."""
    code = STORAGES[storage.kind]
    return 2 if code == "bf16" else np.dtype(code).itemsize


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
        self.storages: dict[str, Storage] = {}
        self.copied = 0

    def run(self, file: BinaryIO) -> Any:
        for step, (code, argument, _) in enumerate(pickletools.genops(file)):
            if step == _STEPS:
                raise ValueError(f"its pickle has more than {_STEPS} instructions")
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
            target[_key(key)] = value

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
        known = (module, name) in _CALLS or (
            module == "torch" and (name in STORAGES or name in _DTYPES)
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
        make = _CALLS.get(called) if isinstance(called, _Name) else None
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
            self.stack[-1], (collections.OrderedDict, _Dtype)
        ):
            raise ValueError("its pickle sets the state of what has none")
        if isinstance(self.stack[-1], _Dtype):
            dtype = self.stack.pop().dtype
            order = state[1] if isinstance(state, tuple) and len(state) > 1 else None
            if order not in ("<", ">", "=", "|"):
                raise ValueError("its pickle has a dtype of an unknown order")
            self.stack.append(_Dtype(dtype.newbyteorder(order)))

    def refer(self, _: Any = None) -> None:
        """A persistent id: here always a storage."""
        saved = self.pop()
        if not isinstance(saved, tuple) or len(saved) not in (5, 6):
            raise ValueError("it refers to what is no storage")
        kind, storage, key, _place, count, *view = saved
        if kind != "storage" or not isinstance(storage, _Name) or any(view):
            raise ValueError("it refers to what is no storage")
        if storage.name not in STORAGES or not isinstance(key, (str, int)):
            raise ValueError("it refers to a storage of unknown numbers")
        if type(count) is not int or not 0 <= count < 2**48:
            raise ValueError("it refers to a storage of an impossible size")
        made = Storage(str(key), storage.name, count)
        if self.storages.setdefault(made.key, made) != made:
            raise ValueError("it refers to one storage as two")
        self.stack.append(made)


def _key(key: Any) -> Any:
    if not isinstance(key, (str, int, float, bytes, type(None))):
        raise ValueError("its pickle has a key that is no text or number")  # noqa: TRY004
    return key


def _ordered(pairs: Any = ()) -> collections.OrderedDict:
    if not isinstance(pairs, (list, tuple)):
        raise TypeError
    made = collections.OrderedDict()
    for pair in pairs:
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise TypeError
        made[_key(pair[0])] = pair[1]
    return made


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, *rest: Any) -> Tensor:
    del rest  # Whether it takes gradients, and hooks.
    whole = isinstance(shape, (tuple, list)) and isinstance(strides, (tuple, list))
    if (
        not isinstance(storage, Storage)
        or not whole
        or max(len(shape), len(strides)) > 32
    ):
        raise TypeError
    if any(type(n) is not int for n in (offset, *shape, *strides)):
        raise TypeError
    return Tensor(storage.key, offset, tuple(shape), tuple(strides))


def _parameter(data: Any, *rest: Any) -> Tensor:
    del rest
    if not isinstance(data, Tensor):
        raise TypeError
    return data


def _size(items: Any) -> tuple:
    if not isinstance(items, (tuple, list)) or any(type(n) is not int for n in items):
        raise TypeError
    return tuple(items)


def _device(*words: Any) -> str:
    return ":".join(str(word)[:20] for word in words if isinstance(word, (str, int)))


def _dtype(code: Any, *rest: Any) -> _Dtype:
    del rest
    if not isinstance(code, str) or code.lstrip("<>|=")[:1] not in tuple("fiub?"):
        raise TypeError
    return _Dtype(np.dtype(code))


def _scalar(dtype: Any, data: Any) -> Any:
    if not isinstance(dtype, _Dtype):
        raise TypeError
    data = data.encode("latin-1") if isinstance(data, str) else data
    if not isinstance(data, bytes) or len(data) != dtype.dtype.itemsize:
        raise TypeError
    return np.frombuffer(data, dtype.dtype)[0].item()


def _encode(text: Any, coding: Any) -> bytes:
    if not isinstance(text, str) or coding not in ("latin1", "latin-1"):
        raise TypeError
    return text.encode("latin-1")


def _defaulting(factory: Any = None) -> dict:
    del factory  # The optimisers' dicts have one.
    return {}


_CALLS: Mapping[tuple[str, str], Callable] = types.MappingProxyType(
    {
        ("collections", "OrderedDict"): _ordered,
        ("collections", "defaultdict"): _defaulting,
        ("builtins", "dict"): _defaulting,
        ("__builtin__", "dict"): _defaulting,
        ("torch", "Size"): _size,
        ("torch", "device"): _device,
        ("torch._utils", "_rebuild_tensor"): _tensor,
        ("torch._utils", "_rebuild_tensor_v2"): _tensor,
        ("torch._utils", "_rebuild_parameter"): _parameter,
        ("numpy", "dtype"): _dtype,
        ("numpy.core.multiarray", "scalar"): _scalar,
        ("numpy._core.multiarray", "scalar"): _scalar,
        ("_codecs", "encode"): _encode,
    }
)
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
