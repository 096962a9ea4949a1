"""The pickle reader: dicts with numbers chosen to collide are refused, others are read."""

import io
import pickle
import sys

import pytest

from jbias.untrusted import pickles
from tests import cases

P = sys.hash_info.modulus  # All multiples have the hash 0.


def read(data: bytes):
    return pickles.Machine().run(io.BytesIO(data))


@cases.each("key", [P, -P, 2 * P, 2**100, 2.0**900, float("inf")])
def test_keys_with_the_hash_of_a_smaller_number_are_refused(key):
    with pytest.raises(ValueError, match="a key of more than 60 bits"):
        read(pickle.dumps({key: None}))


@cases.each("spread", [1, 2**44, 0.5])
def test_the_number_of_numeric_keys_is_limited(spread):
    content = {k * spread: None for k in range(24_000)}
    assert read(pickle.dumps(content)) == content
    content |= {-k * spread: None for k in range(1, 2_000)}
    with pytest.raises(ValueError, match="too many numbers as keys"):
        read(pickle.dumps(content))


def test_the_limit_of_numeric_keys_counts_all_dicts():
    content = [dict.fromkeys(range(15_000)) for _ in range(3)]
    with pytest.raises(ValueError, match="too many numbers as keys"):
        read(pickle.dumps(content))


def test_the_number_of_text_keys_is_not_limited():
    content = dict.fromkeys(map(str, range(60_000)))
    assert read(pickle.dumps(content)) == content


def test_a_memo_in_unusual_order_is_limited():
    indices = range(500_000, 450_000, -1)
    puts = b"".join(b"r" + index.to_bytes(4, "little") for index in indices)
    with pytest.raises(ValueError, match="too many numbers as keys"):
        read(b"\x80\x02" + b"N0" * 300_000 + b"N" + puts + b".")


@pytest.mark.parametrize("first", [0, 1])
def test_a_memo_numbered_as_python_does_is_read(first):
    puts = b"".join(
        b"Nr" + index.to_bytes(4, "little") + b"0"
        for index in range(first, first + 50_000)
    )
    assert read(b"\x80\x02" + puts + b"j" + bytes([first, 0, 0, 0]) + b".") is None


def test_ids_of_parameters_may_be_keys():
    """Older optimisers of PyTorch store the state of a parameter under its id."""
    content = {140_234_234_234_880 + 64 * k: {} for k in range(200)}
    assert read(pickle.dumps(content, 2)) == content
