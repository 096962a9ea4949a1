"""Reads pickles with an interpreter that cannot run code.

A pickle is a program for a stack machine. Python's own machine imports whatever the program
names, and calls it. This one knows containers, numbers and text; it refuses every other
instruction and every name but those of the expected kind of file, and says which. Its memory
is bounded by the size of the file: no instruction may declare more than is there, nor copy
it again.
"""

import itertools
import pickletools
import sys
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple

_STEPS = 2_000_000  # CIFAR-100 has some 300 000, a ResNet-50 and its optimiser 40 000.
_BITS = 128  # Of a number; PyTorch's own mark has 77.
_PROBES = 300_000_000  # If all numbers in dicts collide; 24,000 in one need as many.
_DEPTH = 100  # What hashes or compares deep tuples would leave the stack of C.


class Name(NamedTuple):
    """Stands for what a pickle would import."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


_MARK = object()


def check_key(key: Any) -> Any:
    """What may be the key of a dict: nothing in which others nest."""
    if not isinstance(key, (str, int, float, bytes, type(None))):
        raise ValueError("its pickle has a key that is no text or number")  # noqa: TRY004
    # All multiples of the modulus have one hash.
    if isinstance(key, (int, float)) and not abs(key) < sys.hash_info.modulus:
        raise ValueError("its pickle has a key of more than 60 bits")
    return key


def encode(text: Any, coding: Any) -> bytes:
    """What older protocols make bytes by, `_codecs.encode`."""
    if not isinstance(text, str) or coding not in ("latin1", "latin-1", b"latin1"):
        raise TypeError
    return text.encode("latin-1")


def _instructions(file: BinaryIO) -> Iterator[tuple]:
    giant = f"its pickle has a whole number of more than {_BITS} bits; save it anew"
    try:
        for one in pickletools.genops(file):
            if type(one[1]) is int and one[1].bit_length() > _BITS:
                raise ValueError(giant)
            yield one
    except ValueError as error:
        if "set_int_max_str_digits" in str(error):  # Python's advice is no remedy here.
            raise ValueError(giant) from error
        raise


class Machine:
    """The stack machine of one pickle; a kind of file is a subclass with its names."""

    calls: Mapping[tuple[str, str], Callable] = types.MappingProxyType({})
    remedy = "copy the file anew"  # Where it has what this machine does not know.

    def __init__(self):
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.rules: Mapping[str, Callable[[Any], Any]] = {}  # Before those of all.
        self.place, self.copied, self.probes = 0, 0, 0

    def run(self, file: BinaryIO) -> Any:
        """Interprets one pickle and leaves the file behind it.

        ValueError where it is damaged, says what the machine does not know, or nests
        too deeply.
        """
        with warnings.catch_warnings():  # Of escapes in damaged text.
            warnings.simplefilter("ignore", DeprecationWarning)
            for step, (code, argument, place) in enumerate(_instructions(file)):
                if step == _STEPS:
                    raise ValueError(f"its pickle has more than {_STEPS} instructions")
                self.place = place or 0
                if code.name == "STOP":
                    return _shallow(self.pop())
                self.do(code.name, argument)
        raise ValueError("its pickle has no end")

    def do(self, name: str, argument: Any) -> None:
        if name in self.rules:
            self.rules[name](argument)
        elif name in _PUSHED:
            self.stack.append(argument)
        elif name in _RULES:
            _RULES[name](self, argument)
        elif name not in _SILENT:
            raise ValueError(f"its pickle has {name}; {self.remedy}")

    def pop(self) -> Any:
        if not self.stack or self.stack[-1] is _MARK:
            raise ValueError("its pickle takes from an empty stack")
        return self.stack.pop()

    def top(self, kind: type) -> Any:
        if not self.stack or not isinstance(self.stack[-1], kind):
            raise ValueError(f"its pickle fills what is no {kind.__name__}")
        return self.stack[-1]

    def since_mark(self) -> list[Any]:
        items = []
        while self.stack:
            if (item := self.stack.pop()) is _MARK:
                return items[::-1]
            items.append(item)
        raise ValueError("its pickle lacks a mark")

    def tuple_of(self, count: int) -> None:
        self.stack.append(tuple([self.pop() for _ in range(count)][::-1]))

    def extend(self, items: list[Any]) -> None:
        self.top(list).extend(items)

    def dict_of(self, items: list[Any]) -> None:
        self.stack.append({})
        self.set_items(items)

    def set_items(self, items: list[Any]) -> None:
        target = self.top(dict)
        if len(items) % 2:
            raise ValueError("its pickle has a key without a value")
        for name, value in zip(items[::2], items[1::2]):
            target[check_key(name)] = value
            if isinstance(name, (int, float)):
                self.probe(target)

    def probe(self, target: dict) -> None:
        """Counts what an item by number may cost: numbers can be chosen to collide."""
        self.probes += len(target)
        if self.probes > _PROBES:
            raise ValueError(f"its pickle has too many numbers as keys; {self.remedy}")

    def put(self, index: int) -> None:
        if index > self.place:
            raise ValueError("its pickle notes more than it has")
        value = self.pop()
        self.stack.append(value)
        if index > len(self.memo) + 1:  # Python itself counts, from 0 or from 1.
            self.probe(self.memo)
        self.memo[index] = value

    def get(self, index: int) -> None:
        if index not in self.memo:
            raise ValueError("its pickle recalls what it never noted")
        self.stack.append(self.memo[index])

    def name(self, module: Any, name: Any) -> None:
        if not (isinstance(module, str) and isinstance(name, str)):
            raise ValueError("its pickle names something by no text")  # noqa: TRY004
        self.stack.append(self.named(module, name))

    def named(self, module: str, name: str) -> Name:
        """What a name stands for; ValueError for one that is not known."""
        if (module, name) not in self.calls:
            raise ValueError(f"it names {module[:80]}.{name[:80]}; {self.remedy}")
        return Name(module, name)

    def call(self, _: Any = None) -> None:
        arguments, called = self.pop(), self.pop()
        make = self.calls.get(called) if isinstance(called, Name) else None
        if make is None or not isinstance(arguments, tuple):
            raise ValueError("its pickle calls what is no function of such files")
        sized = (list, tuple, str, bytes)
        self.copied += sum(len(one) for one in arguments if isinstance(one, sized))
        if self.copied > _STEPS + self.place:  # One long text, given again and again.
            raise ValueError("its pickle copies more items than it has")
        try:
            self.stack.append(make(*arguments))
        except (TypeError, ValueError) as error:
            raise ValueError(f"it gives {called} wrong arguments: {error!r}") from error

    def build(self, _: Any = None) -> None:
        state = self.pop()
        self.stack.append(self.built(self.pop(), state))

    def built(self, thing: Any, state: Any) -> Any:
        """A thing with its state set; ValueError where it has none."""
        raise ValueError("its pickle sets the state of what has none")


def _shallow(found: Any) -> Any:
    """Refuses what nests too deeply, or in itself."""
    level = [[found]]
    for _ in range(_DEPTH + 1):
        held = (one.values() if isinstance(one, dict) else one for one in level)
        inner = itertools.chain.from_iterable(held)
        level = {id(x): x for x in inner if isinstance(x, (dict, list, tuple))}.values()
    if level:
        raise ValueError(f"it nests over {_DEPTH} deep, as no state dict or batch does")
    return found


_SILENT = ("PROTO", "FRAME")
_PUSHED = (
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4"),
    *("FLOAT", "BINFLOAT", "STRING", "BINSTRING", "SHORT_BINSTRING"),
    *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
)
_RULES: Mapping[str, Callable[[Machine, Any], Any]] = {
    "NONE": lambda m, _: m.stack.append(None),
    "NEWTRUE": lambda m, _: m.stack.append(True),
    "NEWFALSE": lambda m, _: m.stack.append(False),
    "MARK": lambda m, _: m.stack.append(_MARK),
    "POP": lambda m, _: m.stack.pop() if m.stack else m.pop(),
    "POP_MARK": lambda m, _: m.since_mark(),
    "DUP": lambda m, _: m.stack.extend([m.pop()] * 2),
    "EMPTY_LIST": lambda m, _: m.stack.append([]),
    "LIST": lambda m, _: m.stack.append(m.since_mark()),
    "APPEND": lambda m, _: m.extend([m.pop()]),
    "APPENDS": lambda m, _: m.extend(m.since_mark()),
    "EMPTY_TUPLE": lambda m, _: m.stack.append(()),
    "TUPLE": lambda m, _: m.stack.append(tuple(m.since_mark())),
    "TUPLE1": lambda m, _: m.tuple_of(1),
    "TUPLE2": lambda m, _: m.tuple_of(2),
    "TUPLE3": lambda m, _: m.tuple_of(3),
    "EMPTY_DICT": lambda m, _: m.stack.append({}),
    "DICT": lambda m, _: m.dict_of(m.since_mark()),
    "SETITEM": lambda m, _: m.set_items([m.pop(), m.pop()][::-1]),
    "SETITEMS": lambda m, _: m.set_items(m.since_mark()),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), lambda m, i: m.put(i)),
    "MEMOIZE": lambda m, _: m.put(len(m.memo)),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), lambda m, i: m.get(i)),
    "GLOBAL": lambda m, words: m.name(*str(words).split(" ", 1)),
    "STACK_GLOBAL": lambda m, _: m.name(*[m.pop(), m.pop()][::-1]),
    "REDUCE": Machine.call,
    "BUILD": Machine.build,
}
