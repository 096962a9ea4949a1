"""The machine that reads pickles takes no longer for numbers chosen to collide."""

import io
import pickle
import sys

import pytest

from jbias.untrusted import pickles
from tests import cases

P = sys.hash_info.modulus  # All its multiples have the hash 0.


def read(data: bytes):
    return pickles.Machine().run(io.BytesIO(data))


@cases.each("key", [P, -P, 2 * P, 2**100, 2.0**900, float("inf")])
def test_keys_whose_hash_is_that_of_smaller_ones_are_refused(key):
    with pytest.raises(ValueError, match="a key of more than 60 bits"):
        read(pickle.dumps({key: None}))


@cases.each("spread", [1, 2**44, 0.5])
def test_numbers_as_keys_are_as_many_as_could_all_collide_in_time(spread):
    held = {k * spread: None for k in range(24_000)}
    assert read(pickle.dumps(held)) == held
    held |= {-k * spread: None for k in range(1, 2_000)}
    with pytest.raises(ValueError, match="too many numbers as keys"):
        read(pickle.dumps(held))


def test_many_dicts_of_numbers_count_together():
    held = [dict.fromkeys(range(15_000)) for _ in range(3)]
    with pytest.raises(ValueError, match="too many numbers as keys"):
        read(pickle.dumps(held))


def test_words_as_keys_may_be_many():
    held = dict.fromkeys(map(str, range(60_000)))
    assert read(pickle.dumps(held)) == held


def test_a_memo_in_an_order_of_its_own_is_bounded():
    places = range(500_000, 450_000, -1)
    noted = b"".join(b"r" + place.to_bytes(4, "little") for place in places)
    with pytest.raises(ValueError, match="too many numbers as keys"):
        read(b"\x80\x02" + b"N0" * 300_000 + b"N" + noted + b".")


@pytest.mark.parametrize("first", [0, 1])
def test_a_memo_as_python_counts_is_read(first):
    noted = b"".join(
        b"Nr" + place.to_bytes(4, "little") + b"0"
        for place in range(first, first + 50_000)
    )
    assert read(b"\x80\x02" + noted + b"j" + bytes([first, 0, 0, 0]) + b".") is None


def test_ids_of_parameters_are_keys_as_older_optimisers_have_them():
    held = {140_234_234_234_880 + 64 * k: {} for k in range(200)}
    assert read(pickle.dumps(held, 2)) == held
