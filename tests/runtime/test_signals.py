"""Interrupts end a command wherever they arrive."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias.runtime import signals
from tests import cases


@cases.each(
    ("interrupt", "kind", "exit_code"),
    [
        (KeyboardInterrupt(), KeyboardInterrupt, None),
        (signals.Terminated(15), signals.Terminated, 143),
        (signals.Terminated(1), signals.Terminated, 129),
    ],
)
def test_an_interrupt_inside_a_callback_is_an_interrupt_outside(
    interrupt, kind, exit_code
):
    """jax replaces the exceptions of callbacks by its own."""

    def answer(images):
        raise interrupt

    shape = jax.ShapeDtypeStruct((2,), np.float32)
    ask = jax.jit(lambda images: jax.pure_callback(answer, shape, images))
    with pytest.raises(jax.errors.JaxRuntimeError) as raised:
        jax.block_until_ready(ask(jnp.zeros(3)))
    with pytest.raises(kind) as interrupted:
        signals.raise_interrupt(raised.value)
    assert getattr(interrupted.value, "exit_code", None) == exit_code


def test_other_errors_are_no_interrupts():
    signals.raise_interrupt(ValueError("terminated by SIGTERM"))
    signals.raise_interrupt(jax.errors.JaxRuntimeError("INTERNAL: something else"))
