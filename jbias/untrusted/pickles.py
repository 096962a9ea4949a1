"""A pickle reader that cannot run code.

A pickle is a program for a stack machine. Python's machine imports and calls all functions that
the program names. This machine only builds containers, numbers and text. It refuses every other
instruction, and every name that the expected kind of file does not use. The error names what
was refused. Its memory is bounded by the size of the file: no instruction may declare or copy
more items than the file has.
"""

import itertools
import pickletools
import sys
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple

_MAX_STEPS = (
    2_000_000  # CIFAR-100 has about 300,000, a ResNet-50 with optimiser 40,000.
)
_MAX_BITS = 128  # Of a whole number; PyTorch's magic number has 77.
# Comparisons if the hashes of all numbers in dicts collide; 24,000 keys of one dict need this.
_MAX_PROBES = 300_000_000
_MAX_DEPTH = 100  # Hashing or comparing deeper tuples could overflow the C stack.


class Name(NamedTuple):
    """A placeholder for an object that a pickle would import."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


_MARK = object()


def check_key(key: Any) -> Any:
    """Return a key of a dict unchanged; raise ValueError unless it is allowed.

    Allowed are text, bytes, None, and numbers of absolute value below the modulus of Python's
    hash, 2^61 - 1; not NaN.
    """
    if not isinstance(key, (str, int, float, bytes, type(None))):
        raise ValueError("its pickle has a key that is no text or number")  # noqa: TRY004
    # All multiples of the modulus have the same hash.
    if isinstance(key, (int, float)) and not abs(key) < sys.hash_info.modulus:
        raise ValueError("its pickle has a key of more than 60 bits")
    return key


def encode(text: Any, encoding: Any) -> bytes:
    """Return text as bytes in Latin-1; raise TypeError for other arguments.

    This replaces `_codecs.encode`, which pickles of old protocols call to store bytes.
    """
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1", b"latin1"):
        raise TypeError
    return text.encode("latin-1")


def _instructions(
    file: BinaryIO,
) -> Iterator[tuple[pickletools.OpcodeInfo, Any, int | None]]:
    """Yield (opcode, argument, position in bytes) of each instruction of a pickle.

    ValueError for a damaged pickle and for whole numbers of more than 128 bits.
    """
    too_large = (
        f"its pickle has a whole number of more than {_MAX_BITS} bits; save it again"
    )
    try:
        for opcode, argument, position in pickletools.genops(file):
            if type(argument) is int and argument.bit_length() > _MAX_BITS:
                raise ValueError(too_large)
            yield opcode, argument, position
    except ValueError as error:
        if "set_int_max_str_digits" in str(
            error
        ):  # Python's advice does not help here.
            raise ValueError(too_large) from error
        raise


class Machine:
    """A stack machine for one pickle; subclasses define the names that a kind of file may use.

    calls: {(module, name): function to call instead}, for the names that a pickle may
    call. remedy: end of messages about unknown instructions and names.
    """

    calls: Mapping[tuple[str, str], Callable] = types.MappingProxyType({})
    remedy = "copy the file again"

    def __init__(self):
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        # Functions of an instruction's argument, which override the general rules.
        self.rules: Mapping[str, Callable[[Any], Any]] = {}
        self.position = 0  # In the file, in bytes.
        self.num_copied = 0  # Items in arguments of calls.
        self.num_probes = 0

    def run(self, file: BinaryIO) -> Any:
        """Return the content of the pickle at the file's position; read to the pickle's end.

        Raise ValueError if it is damaged, has unknown instructions or names, has more than two
        million instructions, or nests too deeply.
        """
        with warnings.catch_warnings():  # About escapes in damaged text.
            warnings.simplefilter("ignore", DeprecationWarning)
            for step, (opcode, argument, position) in enumerate(_instructions(file)):
                if step == _MAX_STEPS:
                    raise ValueError(
                        f"its pickle has more than {_MAX_STEPS} instructions"
                    )
                self.position = position or 0
                if opcode.name == "STOP":
                    return _check_depth(self.pop())
                self.execute(opcode.name, argument)
        raise ValueError("its pickle has no end")

    def execute(self, opcode: str, argument: Any) -> None:
        """Execute one instruction; raise ValueError if it is unknown.

        opcode: name of the instruction, such as "BINPUT". argument: the instruction's argument,
        or None.
        """
        if opcode in self.rules:
            self.rules[opcode](argument)
        elif opcode in _PUSHED:
            self.stack.append(argument)
        elif opcode in _RULES:
            _RULES[opcode](self, argument)
        elif opcode not in _IGNORED:
            raise ValueError(f"its pickle has {opcode}; {self.remedy}")

    def pop(self) -> Any:
        """Remove and return the top of the stack; ValueError if it is empty or a mark."""
        if not self.stack or self.stack[-1] is _MARK:
            raise ValueError("its pickle takes from an empty stack")
        return self.stack.pop()

    def peek(self, kind: type) -> Any:
        """Return the item on top of the stack; raise ValueError unless it is a `kind`."""
        if not self.stack or not isinstance(self.stack[-1], kind):
            raise ValueError(f"its pickle adds items to what is no {kind.__name__}")
        return self.stack[-1]

    def pop_to_mark(self) -> list[Any]:
        """Remove the items above the last mark and the mark; return the items in their order.

        ValueError without a mark.
        """
        items = []
        while self.stack:
            item = self.stack.pop()
            if item is _MARK:
                return items[::-1]
            items.append(item)
        raise ValueError("its pickle lacks a mark")

    def push_tuple(self, count: int) -> None:
        """Replace the top `count` items of the stack by a tuple of them, in their order."""
        self.stack.append(tuple([self.pop() for _ in range(count)][::-1]))

    def extend(self, items: list[Any]) -> None:
        """Append items to the list on top of the stack."""
        self.peek(list).extend(items)

    def push_dict(self, items: list[Any]) -> None:
        """Push a dict of items: key, value, key, value, ..."""
        self.stack.append({})
        self.set_items(items)

    def set_items(self, items: list[Any]) -> None:
        """Set items (key, value, key, value, ...) of the dict on top of the stack.

        ValueError if no dict is on top, for a key without a value, and as `check_key` does.
        """
        target = self.peek(dict)
        if len(items) % 2:
            raise ValueError("its pickle has a key without a value")
        for key, value in zip(items[::2], items[1::2]):
            target[check_key(key)] = value
            if isinstance(key, (int, float)):
                self.count_probes(target)

    def count_probes(self, target: dict) -> None:
        """Add len(target), the worst cost of one access by a number, to the total cost.

        ValueError if the total exceeds _MAX_PROBES: numbers can be chosen so that their hashes
        collide. target: the dict that is accessed.
        """
        self.num_probes += len(target)
        if self.num_probes > _MAX_PROBES:
            raise ValueError(f"its pickle has too many numbers as keys; {self.remedy}")

    def memoize(self, index: int) -> None:
        """Store the item on top of the stack, which stays there, in the memo at `index`.

        ValueError if `index` exceeds the position in the file: the pickle cannot have that many
        items.
        """
        if index > self.position:
            raise ValueError("its pickle stores more items than it has")
        value = self.pop()
        self.stack.append(value)
        if index > len(self.memo) + 1:  # Python counts up, from 0 or from 1.
            self.count_probes(self.memo)
        self.memo[index] = value

    def recall(self, index: int) -> None:
        """Push the item of the memo at `index`; raise ValueError if it does not exist."""
        if index not in self.memo:
            raise ValueError("its pickle recalls an item that it never stored")
        self.stack.append(self.memo[index])

    def push_name(self, module: Any, name: Any) -> None:
        """Push the result of `resolve_name`; ValueError if an argument is no text."""
        if not (isinstance(module, str) and isinstance(name, str)):
            raise ValueError("its pickle has a name that is no text")  # noqa: TRY004
        self.stack.append(self.resolve_name(module, name))

    def resolve_name(self, module: str, name: str) -> Name:
        """Return the placeholder of a name; raise ValueError unless `calls` has the name."""
        if (module, name) not in self.calls:
            raise ValueError(f"it names {module[:80]}.{name[:80]}; {self.remedy}")
        return Name(module, name)

    def call(self, _: Any = None) -> None:
        """Replace a name and a tuple of arguments on the stack by the result of the call.

        The function is the entry of `calls` for the name. ValueError if the stack has no name
        and tuple on top, for wrong arguments, and if all calls together copy more items than
        the file can have.
        """
        arguments, name = self.pop(), self.pop()
        function = self.calls.get(name) if isinstance(name, Name) else None
        if function is None or not isinstance(arguments, tuple):
            raise ValueError("its pickle calls what is no function of such files")
        sized = (list, tuple, str, bytes)
        self.num_copied += sum(
            len(argument) for argument in arguments if isinstance(argument, sized)
        )
        # A small pickle could pass the same long text many times.
        if self.num_copied > _MAX_STEPS + self.position:
            raise ValueError("its pickle copies more items than it has")
        try:
            self.stack.append(function(*arguments))
        except (TypeError, ValueError) as error:
            raise ValueError(f"it gives {name} wrong arguments: {error!r}") from error

    def build(self, _: Any = None) -> None:
        """Replace an object and its state on the stack by the object with that state."""
        state = self.pop()
        self.stack.append(self.set_state(self.pop(), state))

    def set_state(self, instance: Any, state: Any) -> Any:
        """Raise ValueError: no object of this class has a state.

        Subclasses return `instance`, an object of the pickle, with its pickled `state` set.
        """
        raise ValueError("its pickle sets the state of what has none")


def _check_depth(content: Any) -> Any:
    """Return `content` unchanged; ValueError if it contains itself or nests too deeply.

    Dicts, lists and tuples may be nested up to 100 levels deep.
    """
    level = [[content]]
    for _ in range(_MAX_DEPTH + 1):
        items = (x.values() if isinstance(x, dict) else x for x in level)
        inner = itertools.chain.from_iterable(items)
        level = {id(x): x for x in inner if isinstance(x, (dict, list, tuple))}.values()
    if level:
        raise ValueError(
            f"it nests over {_MAX_DEPTH} deep, as no state dict or batch does"
        )
    return content


_IGNORED = ("PROTO", "FRAME")
_PUSHED = (
    "INT",
    "BININT",
    "BININT1",
    "BININT2",
    "LONG",
    "LONG1",
    "LONG4",
    "FLOAT",
    "BINFLOAT",
    "STRING",
    "BINSTRING",
    "SHORT_BINSTRING",
    "UNICODE",
    "BINUNICODE",
    "SHORT_BINUNICODE",
    "BINUNICODE8",
    "BINBYTES",
    "SHORT_BINBYTES",
    "BINBYTES8",
)


def _push_global(machine: Machine, names: Any) -> None:
    """Execute GLOBAL: push a name; names: the argument, "module name"."""
    module, _, name = str(names).partition(" ")
    machine.push_name(module, name)


def _push_stack_global(machine: Machine, _: Any) -> None:
    """Execute STACK_GLOBAL: replace module and name on the stack by the result of `push_name`."""
    name, module = machine.pop(), machine.pop()
    machine.push_name(module, name)


def _set_item(machine: Machine, _: Any) -> None:
    """Execute SETITEM: move a key and a value from the stack into the dict below."""
    value, key = machine.pop(), machine.pop()
    machine.set_items([key, value])


_RULES: Mapping[str, Callable[[Machine, Any], Any]] = {
    "NONE": lambda m, _: m.stack.append(None),
    "NEWTRUE": lambda m, _: m.stack.append(True),
    "NEWFALSE": lambda m, _: m.stack.append(False),
    "MARK": lambda m, _: m.stack.append(_MARK),
    "POP": lambda m, _: m.stack.pop() if m.stack else m.pop(),
    "POP_MARK": lambda m, _: m.pop_to_mark(),
    "DUP": lambda m, _: m.stack.extend([m.pop()] * 2),
    "EMPTY_LIST": lambda m, _: m.stack.append([]),
    "LIST": lambda m, _: m.stack.append(m.pop_to_mark()),
    "APPEND": lambda m, _: m.extend([m.pop()]),
    "APPENDS": lambda m, _: m.extend(m.pop_to_mark()),
    "EMPTY_TUPLE": lambda m, _: m.stack.append(()),
    "TUPLE": lambda m, _: m.stack.append(tuple(m.pop_to_mark())),
    "TUPLE1": lambda m, _: m.push_tuple(1),
    "TUPLE2": lambda m, _: m.push_tuple(2),
    "TUPLE3": lambda m, _: m.push_tuple(3),
    "EMPTY_DICT": lambda m, _: m.stack.append({}),
    "DICT": lambda m, _: m.push_dict(m.pop_to_mark()),
    "SETITEM": _set_item,
    "SETITEMS": lambda m, _: m.set_items(m.pop_to_mark()),
    "PUT": Machine.memoize,
    "BINPUT": Machine.memoize,
    "LONG_BINPUT": Machine.memoize,
    "MEMOIZE": lambda m, _: m.memoize(len(m.memo)),
    "GET": Machine.recall,
    "BINGET": Machine.recall,
    "LONG_BINGET": Machine.recall,
    "GLOBAL": _push_global,
    "STACK_GLOBAL": _push_stack_global,
    "REDUCE": Machine.call,
    "BUILD": Machine.build,
}
