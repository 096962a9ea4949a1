"""XLA's flags: jbias's flags are added, and the user's flags stay."""

import os
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias.runtime import xla
from tests import cases, smoke_runs

NAME = "xla_gpu_enable_latency_hiding_scheduler"


@cases.each(
    "flags, expected",
    [
        (None, f"--{NAME}=true"),
        ("--xla_dump_to=x", f"--xla_dump_to=x --{NAME}=true"),
        (f"--{NAME}=false", f"--{NAME}=false"),
    ],
)
def test_the_users_flags_win(flags, expected):
    environment = {} if flags is None else {"XLA_FLAGS": flags}
    xla.set_flags(environment)
    assert environment["XLA_FLAGS"] == expected


def test_the_flags_for_equal_bits_are_set():
    environment = {}
    xla.set_flags(environment, deterministic=True)
    assert environment["XLA_FLAGS"].endswith(" --xla_gpu_deterministic_ops=true")


def test_missing_accelerators_give_no_messages(monkeypatch):
    """Variables are set without an accelerator, and not set with one."""
    monkeypatch.setattr(xla.glob, "glob", lambda pattern: [])
    environment = {"TPU_WORKER_HOSTNAMES": "mine"}
    xla.quiet_absent_backends(environment)
    assert environment["TPU_WORKER_HOSTNAMES"] == "mine"
    assert environment["TPU_SKIP_MDS_QUERY"] == "1"
    assert environment["JAX_SKIP_CUDA_CONSTRAINTS_CHECK"] == "1"
    monkeypatch.setattr(xla.glob, "glob", lambda pattern: [pattern])
    environment = {}
    xla.quiet_absent_backends(environment)
    assert not environment


def test_jax_starts_without_output():
    code = "import jbias.runtime.xla; jbias.runtime.xla.set_flags(); import jax; jax.devices()"
    prefixes = ("TPU_", "ALLOW_", "JAX_SKIP")
    bare = {k: v for k, v in os.environ.items() if not k.startswith(prefixes)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command,
        cwd=smoke_runs.ROOT,
        env=bare,
        check=True,
        capture_output=True,
        text=True,
    )
    assert not done.stderr


def test_the_installed_jax_knows_the_flags():
    """An unknown flag would end the process."""
    our_flags = {**xla.FLAGS, **xla.DETERMINISTIC}
    flags = " ".join(f"--{name}={value}" for name, value in our_flags.items())
    subprocess.run(
        [sys.executable, "-c", "import jax; jax.devices()"],
        cwd=smoke_runs.ROOT,
        env={**os.environ, "XLA_FLAGS": flags},
        check=True,
    )


def test_tpus_with_large_vmem_get_a_larger_limit(monkeypatch):
    monkeypatch.delenv("LIBTPU_INIT_ARGS", raising=False)
    expected = {"xla_tpu_scoped_vmem_limit_kib": "32768"}
    assert (
        xla.compiler_options("TPU v5 lite")
        == xla.compiler_options("TPU v6 lite")
        == expected
    )
    for kind in ("cpu", "TPU v4", "TPU v5p", "NVIDIA H100 80GB HBM3"):
        assert xla.compiler_options(kind) is None
    monkeypatch.setenv("LIBTPU_INIT_ARGS", "--xla_tpu_scoped_vmem_limit_kib=65536")
    assert xla.compiler_options("TPU v5 lite") is None


def test_a_run_has_its_own_settings_and_restores_the_callers():
    """Settings of the process and of the thread are overridden, with one line."""
    promotion = jax.config.jax_numpy_dtype_promotion
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    try:
        with jax.enable_x64(True), jax.default_prng_impl("rbg"), jax.disable_jit():
            with xla.fixed_settings() as lines:
                assert np.dtype(jnp.zeros(2, float).dtype) == np.float32
                assert "fry" in str(jax.random.key(0).dtype)
                assert not jax.config.jax_disable_jit
                with xla.fixed_settings() as inner:
                    assert inner == []
                with xla.callers_settings():
                    assert jnp.zeros(2, float).dtype == np.float64
                assert jnp.zeros(2, float).dtype == np.float32
            assert jax.config.jax_enable_x64
            assert jax.config.jax_default_prng_impl == "rbg"
        assert jax.config.jax_numpy_dtype_promotion.value == "strict"
    finally:
        jax.config.update("jax_numpy_dtype_promotion", promotion.value)
    (line,) = lines
    for name in ("ENABLE_X64=True", "PRNG_IMPL=rbg", "DISABLE_JIT", "PROMOTION=strict"):
        assert name in line
    with xla.fixed_settings() as lines:
        assert lines == []  # No message if nothing is overridden.


def test_other_threads_have_the_runs_settings_too():
    with jax.enable_x64(True), xla.fixed_settings():
        dtypes = []

        def read():
            dtypes.append(jnp.zeros(2, float).dtype)

        thread = threading.Thread(target=read)
        thread.start()
        thread.join()
    assert dtypes == [np.float32]


def test_flags_that_may_change_bits_are_recorded_and_others_not():
    flags = "--xla_dump_to=x --xla_cpu_enable_fast_math=true --a=1"
    settings = xla.recorded_settings({"XLA_FLAGS": flags, "NVIDIA_TF32_OVERRIDE": "0"})
    assert settings["XLA_FLAGS"] == ["--a=1", "--xla_cpu_enable_fast_math=true"]
    assert settings["NVIDIA_TF32_OVERRIDE"] == "0"
    assert "TF_XLA_FLAGS" not in settings


@pytest.mark.slow
def test_missing_devices_are_refused_in_one_line(tmp_path):
    (tmp_path / "mine.py").write_text("def f(images):\n    return images[:, 0, 0]\n")
    predict = f"--predict={tmp_path / 'mine.py'}:f"
    for arguments in (
        ["jbias.evaluate", predict, "--suite=jbias:suites/biases:smoke"],
        ["jbias.main", "--config=jbias:erm:smoke", "--check"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", *arguments],
            check=False,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "JAX_PLATFORMS": "bogus"},
        )
        assert done.returncode == 2
        assert done.stderr.strip().count("\n") == 0
        assert "JAX_PLATFORMS: must name devices of this machine" in done.stderr


@cases.each(
    ("name", "value"),
    [
        ("JAX_RANDOM_SEED_OFFSET", "abc"),
        ("JAX_DEFAULT_PRNG_IMPL", "foo"),
        ("JAX_ENABLE_X64", "maybe"),
    ],
)
@cases.each(
    "words",
    [
        ["-c", "from jbias.runtime import cli; exit(cli.run(lambda: 0, rerun=''))"],
        ["-m", "jbias.main", "--config=jbias:erm:smoke", "--check"],
    ],
)
def test_a_variable_that_jax_does_not_start_with_is_named_with_its_remedy(
    name, value, words
):
    done = subprocess.run(
        [sys.executable, *words],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, name: value},
    )
    assert done.returncode == 2
    must = f"jbias: {name}: must be a value that jax knows, got {value!r}; correct it"
    assert done.stderr == f"{must}, or leave it unset\n"
