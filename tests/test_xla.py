"""Flags of XLA: ours are added, the user's win."""

import os
import subprocess
import sys

import pytest

from jbias import xla
from tests import runs

NAME = "xla_gpu_enable_latency_hiding_scheduler"


@pytest.mark.parametrize(
    "given, wanted",
    [
        (None, f"--{NAME}=true"),
        ("--xla_dump_to=x", f"--xla_dump_to=x --{NAME}=true"),
        (f"--{NAME}=false", f"--{NAME}=false"),
    ],
)
def test_the_users_flags_win(given, wanted):
    environment = {} if given is None else {"XLA_FLAGS": given}
    xla.set_flags(environment)
    assert environment["XLA_FLAGS"] == wanted


def test_the_same_bits_are_asked_for_in_so_many_words():
    environment = {}
    xla.set_flags(environment, deterministic=True)
    assert environment["XLA_FLAGS"].endswith(" --xla_gpu_deterministic_ops=true")


def test_this_jax_knows_them():
    """An unknown flag would end the process."""
    ours = {**xla.FLAGS, **xla.DETERMINISTIC}
    flags = " ".join(f"--{name}={value}" for name, value in ours.items())
    subprocess.run(
        [sys.executable, "-c", "import jax; jax.devices()"],
        cwd=runs.ROOT,
        env={**os.environ, "XLA_FLAGS": flags},
        check=True,
    )
