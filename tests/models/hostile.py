"""Hostile files by name, each with the words of the error that reading must raise."""

import contextlib
import io
import json
import pickle
import signal
import struct
import zipfile
from collections.abc import Iterator

import numpy as np

PROTO = b"\x80\x02"


@contextlib.contextmanager
def ending_within(seconds: int) -> Iterator[None]:
    """End the test process if the body takes longer, also inside a loop of C code."""
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def doubled_pickle(kind: str) -> bytes:
    """Return a pickle of a list or tuple nested 59 times: its repr or hash has 2^59 items."""
    start, end = {"list": (b"]", b"l"), "tuple": (b")", b"t")}[kind]
    steps = (b"q%c0(h%ch%c" % (i, i, i) + end for i in range(1, 60))
    return start + b"".join(steps)


def text(s: str) -> bytes:
    return b"X" + struct.pack("<I", len(s)) + s.encode()


def call_pickle(module: str, name: str, argument: str) -> bytes:
    """Return a pickle that calls module.name(argument)."""
    return PROTO + f"c{module}\n{name}\n".encode() + b"(" + text(argument) + b"tR."


def call_pickle_from_stack(module: str, name: str, argument: str) -> bytes:
    """Return a pickle that calls module.name(argument) with names from the stack."""
    short = b"".join(
        b"\x8c" + bytes([len(word)]) + word.encode() for word in (module, name)
    )
    return b"\x80\x04" + short + b"\x93" + b"(" + text(argument) + b"tR."


def storage(count: int = 4, kind: str = "FloatStorage") -> bytes:
    """Return the opcodes that push a storage of that size."""
    return (
        b"("
        + text("storage")
        + f"ctorch\n{kind}\n".encode()
        + text("0")
        + text("cpu")
        + b"\x8a\x08"
        + struct.pack("<q", count)
        + b"tQ"
    )


def integer(n: int) -> bytes:
    return b"\x8a\x08" + struct.pack("<q", n)


def tensor(shape=(4,), strides=(1,), offset=0, count=4) -> bytes:
    """Return the opcodes that push a tensor."""
    axes = [b"(" + b"".join(map(integer, axes)) + b"t" for axes in (shape, strides)]
    return (
        b"ctorch._utils\n_rebuild_tensor_v2\n("
        + storage(count)
        + integer(offset)
        + b"".join(axes)
        + b"\x89}tR"
    )


def state(*pushed: bytes) -> bytes:
    """Return a pickle of {"fc.weight": pushed[0], "x1": ...}."""
    items = b"".join(text(f"x{i}.weight") + value for i, value in enumerate(pushed))
    return PROTO + b"}(" + items + b"u."


def archive(pickled: bytes, numbers: bytes = bytes(16), **write_options) -> bytes:
    """Return a zip file as PyTorch writes it; `others` are arguments of zipfile.writestr."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as members:
        members.writestr("x/data.pkl", pickled, **write_options)
        members.writestr("x/data/0", numbers, **write_options)
    return file.getvalue()


def stream(pickled: bytes, storages: bytes = b"") -> bytes:
    """Return a file of PyTorch before 1.6."""
    head = (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True})
    return b"".join(pickle.dumps(x, protocol=2) for x in head) + pickled + storages


def members(*named: tuple[str, bytes], method=zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as out:
        for name, data in named:
            out.writestr(name, data)
    return file.getvalue()


def replace_bytes(data: bytes, old: bytes, new: bytes, which: int = 0) -> bytes:
    """Replace one occurrence of some bytes by other bytes of the same length."""
    assert len(old) == len(new)
    at = -1
    for _ in range(which + 1):
        at = data.index(old, at + 1)
    return data[:at] + new + data[at + len(old) :]


def safetensors(header, numbers: bytes = bytes(16), length: int | None = None) -> bytes:
    encoded = header if isinstance(header, bytes) else json.dumps(header).encode()
    length = len(encoded) if length is None else length
    return struct.pack("<Q", length) + encoded + numbers


def entry(start: int, stop: int, shape=(4,), dtype="F32", **extra_fields) -> dict:
    return dict(
        dtype=dtype, shape=list(shape), data_offsets=[start, stop], **extra_fields
    )


def pickles(canary: str) -> dict[str, tuple[bytes, str]]:
    """Return hostile pickles, and the words of their errors."""
    order = f"open({canary!r}, 'w')"
    touch = f"touch {canary}"
    deep = PROTO + b")" + b"\x85" * 30_000 + b"."
    laughs = b"(lq\x00" + b"".join(
        b"(" + b"h" + bytes([i]) + b"h" + bytes([i]) + b"lq" + bytes([i + 1])
        for i in range(60)
    )
    long_list = b"(" + b"K\x01" * 5000 + b"lq\x00"
    return {
        "os.system": (call_pickle("os", "system", touch), "os.system"),
        "posix.system": (call_pickle("posix", "system", touch), "posix.system"),
        "builtins.eval": (call_pickle("builtins", "eval", order), "builtins.eval"),
        "builtins.exec": (call_pickle("builtins", "exec", order), "builtins.exec"),
        "__builtin__.eval": (
            call_pickle("__builtin__", "eval", order),
            "__builtin__.eval",
        ),
        "getattr": (call_pickle("builtins", "getattr", order), "builtins.getattr"),
        "stacked": (call_pickle_from_stack("os", "system", touch), "os.system"),
        "dotted": (
            call_pickle_from_stack(
                "collections", "OrderedDict.__init__.__globals__", order
            ),
            "OrderedDict.__init__",
        ),
        "numpy": (
            call_pickle("numpy.testing._private.utils", "runstring", order),
            "utils.runstring",
        ),
        "torch": (call_pickle("torch.hub", "load", order), "torch.hub.load"),
        "torch_attribute": (call_pickle("torch", "load", canary), "torch.load"),
        "nested": (
            state(call_pickle("os", "system", touch)[2:-1]),
            "os.system",
        ),
        "inst": (PROTO + b"(" + text(touch) + b"ios\nsystem\n.", "INST"),
        "obj": (PROTO + b"(cos\nsystem\n" + text(touch) + b"o.", "os.system"),
        "newobj": (
            b"\x80\x02cos\nsystem\n" + text(touch) + b"\x85\x81.",
            "os.system",
        ),
        "newobj_ex": (
            b"\x80\x04ccollections\nOrderedDict\n)}\x92.",
            "NEWOBJ_EX",
        ),
        "extension": (PROTO + b"\x82\x01.", "EXT1"),
        "extension_4": (PROTO + b"\x84\x01\x00\x00\x00.", "EXT4"),
        "persistent": (PROTO + b"}(" + text("a") + text("evil") + b"Qu.", "no storage"),
        "persistent_text": (PROTO + b"Pevil\n.", "PERSID"),
        "build_function": (
            PROTO + b"ctorch._utils\n_rebuild_tensor_v2\n}(" + text("a") + b"K\x01ub.",
            "state of what has none",
        ),
        "build_class": (
            PROTO + b"ccollections\nOrderedDict\n}(" + text("a") + b"K\x01ub.",
            "state of what has none",
        ),
        "call_number": (PROTO + b"K\x01)R.", "no function"),
        "call_with_list": (PROTO + b"ccollections\nOrderedDict\n]R.", "no function"),
        "wrong_arguments": (
            PROTO + b"ctorch._utils\n_rebuild_tensor_v2\n(K\x01tR.",
            "wrong arguments",
        ),
        "set_of_names": (PROTO + b"\x8f.", "EMPTY_SET"),
        "memo": (PROTO + b"h\x07.", "never stored"),
        "memo_far": (PROTO + b"}r\xff\xff\xff\xff.", "stores more items than"),
        "empty_stack": (PROTO + b"R.", "empty stack"),
        "no_mark": (PROTO + b"}u.", "mark"),
        "no_end": (PROTO + b"}", "damaged|exhausted|end"),
        "long_text": (PROTO + b"X\xff\xff\xff\x7fab.", "expected|bytes"),
        "long_number": (PROTO + b"\x8b\xff\xff\xff\x7f1.", "not enough data"),
        "long_bytes": (
            b"\x80\x04\x8e" + b"\xff" * 7 + b"\x7fab.",
            "expected|bytes|exceeds",
        ),
        "digits": (b"L" + b"9" * 30_000 + b"L\n.", "of more than 128 bits"),
        "deep": (deep, "no state dict"),
        "deep_key": (
            PROTO + b"})" + b"\x85" * 30_000 + b"K\x01s.",
            "a key that is no text",
        ),
        "laughs": (PROTO + laughs + b".", "no state dict"),
        "copies": (
            PROTO + long_list + (b"ccollections\nOrderedDict\n(h\x00tR") * 500 + b".",
            "wrong arguments|copies more",
        ),
        "far_tensor": (state(tensor(shape=(5,))), "outside its storage"),
        "before": (state(tensor(offset=-1)), "outside its storage"),
        "backwards": (state(tensor(strides=(-1,))), "strides"),
        "axes": (state(tensor(shape=(2, 2))), "strides"),
        "big_storage": (state(tensor(count=2**40)), "bytes"),
        "negative_storage": (state(tensor(count=-4)), "impossible size"),
        "unknown_numbers": (
            state(b"ctorch\nfloat8\n"),
            "torch.float8",
        ),
        "garbage": (b"\xff\xfe\x00\x01garbage", "opcode|begin"),
    }


def archives(canary: str) -> dict[str, tuple[bytes, str]]:
    """Return zip files whose directory and content differ, and the words of their errors."""
    good = state(tensor())
    sound = archive(good)
    evil = call_pickle("os", "system", f"touch {canary}")
    bomb = members(
        ("x/data.pkl", good), ("x/data/0", bytes(10**6)), method=zipfile.ZIP_DEFLATED
    )
    directory = sound.index(b"PK\1\2")
    # The second entry of the directory points at the first member.
    second = sound.index(b"PK\1\2", directory + 4)
    overlapping = bytearray(sound)
    overlapping[second + 42 : second + 46] = bytes(4)
    declared = bytearray(sound)
    for at in (20, 24):  # Both sizes, in the directory alone.
        declared[second + at : second + at + 4] = struct.pack("<I", 2**31)
    pair = members(("x/data.pkl", good), ("x/data/0", bytes(16)), ("x/data/1", b""))
    return {
        "two_of_a_name": (pair.replace(b"x/data/1", b"x/data/0"), "two members"),
        "compressed": (bomb, "compressed"),
        "up": (
            members(("x/data.pkl", good), ("x/../../y", b""), ("x/data/0", bytes(16))),
            "path",
        ),
        "root": (members(("/x/data.pkl", good), ("x/data/0", bytes(16))), "path"),
        "windows": (members(("x\\..\\data.pkl", good), ("x/data.pkl", good)), "path"),
        "other_name": (
            replace_bytes(sound, b"x/data/0", b"x/data/1", which=0),
            "names|differ|no x/data|directory",
        ),
        "overlapping": (bytes(overlapping), "inside of another|differ|says"),
        "declared": (bytes(declared), "says|short"),
        "missing_numbers": (members(("x/data.pkl", good)), "has no x/data/0"),
        "short_numbers": (archive(good, bytes(12)), "16 bytes, got 12"),
        "two_pickles": (
            members(
                ("x/data.pkl", good), ("y/data.pkl", evil), ("x/data/0", bytes(16))
            ),
            "too many values|two",
        ),
        "no_pickle": (members(("x/other", good)), "no data.pkl"),
        "big_endian": (
            members(
                ("x/data.pkl", good), ("x/byteorder", b"big"), ("x/data/0", bytes(16))
            ),
            "little-endian",
        ),
        "cut": (sound[:-10], "zip|not"),
        "cut_in_half": (sound[: len(sound) // 2], "zip|not"),
        "wrong_sum": (
            replace_bytes(
                archive(good, b"0123456789abcdef"), b"0123456789", b"0123456780"
            ),
            "CRC",
        ),
    }


def tables() -> dict[str, tuple[bytes, str]]:
    """Return safetensors files with a wrong header, and the words of their errors."""
    good = {"a": entry(0, 16)}
    twice = b'{"a":%s,"a":%s}' % ((json.dumps(good["a"]).encode(),) * 2)
    places = "invalid offset for tensor"
    return {
        "length": (safetensors(good, length=2**63), "header has"),
        "length_past_end": (safetensors(good, length=500), "invalid header length"),
        "empty": (b"", "header too small"),
        "short": (b"\1\0\0", "header too small"),
        "no_json": (safetensors(b"{nonsense"), "invalid JSON"),
        "no_object": (safetensors(b"[1, 2]"), "invalid type"),
        "no_text": (safetensors(b"{\xff\xfe"), "invalid UTF-8"),
        "deep": (safetensors(b'{"a":' + b"[" * 200_000), "recursion limit"),
        "digits": (safetensors(b'{"a":' + b"9" * 10_000 + b"}"), "out of range"),
        "twice": (safetensors(twice), "a name twice"),
        "overlap": (
            safetensors({"a": entry(0, 16), "b": entry(8, 24)}, bytes(24)),
            places,
        ),
        "shared": (safetensors({"a": entry(0, 16), "b": entry(0, 16)}), places),
        "gap": (
            safetensors({"a": entry(0, 16), "b": entry(20, 36)}, bytes(36)),
            places,
        ),
        "rest": (safetensors(good, bytes(20)), "not fully covered"),
        "beyond": (safetensors(good, bytes(12)), "not fully covered"),
        "shape": (safetensors({"a": entry(0, 16, shape=(5,))}), "invalid shape"),
        "huge_shape": (
            safetensors({"a": entry(0, 16, shape=(2**62, 2**62))}),
            "overflow",
        ),
        "negative": (safetensors({"a": entry(0, 16, shape=(-4, -1))}), "invalid value"),
        "fraction": (safetensors({"a": entry(0, 16, shape=(4.0,))}), "invalid type"),
        "truth": (safetensors({"a": entry(0, 16, shape=(True, 4))}), "invalid type"),
        "backwards": (safetensors({"a": entry(16, 0)}), places),
        "type": (safetensors({"a": entry(0, 32, dtype="C64")}, bytes(32)), "complex64"),
        "narrow": (
            safetensors({"a": entry(0, 4, dtype="F8_E4M3")}, bytes(4)),
            "float8_e4m3fn",
        ),
        "type_of_type": (safetensors({"a": entry(0, 16, dtype=["F32"])}), "type"),
        "more_keys": (safetensors({"a": entry(0, 16, run="x")}), "must have"),
        "metadata": (
            safetensors({**good, "__metadata__": {"a": [1]}}),
            "expected a string",
        ),
    }


def npz_bomb() -> bytes:
    """Return a small file that expands to 64 MB."""
    file = io.BytesIO()
    np.savez_compressed(file, cls=np.zeros(2**24, np.float32))
    return file.getvalue()
