"""Strict jax and one cache for all tests, and real data where there is some.

Real data is found through JBIAS_TEST_DATA and unpacked once a session.
"""

import functools
import os
import pathlib
import tarfile

import jax
import pytest

from jbias.runtime import xla

xla.quiet_absent_backends()
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark as slow all cases of tests marked quick("a", "b") whose ids name neither."""
    for item in items:
        mark = item.get_closest_marker("quick")
        if mark and not {item.callspec.id, *item.callspec.id.split("-")} & {*mark.args}:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session", autouse=True)
def caches(tmp_path_factory):
    """Share drawn data sets and compiled programs among all tests and their processes."""
    base = tmp_path_factory.getbasetemp()
    cache = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cache"
    settings = {
        "jax_compilation_cache_dir": os.environ.get(
            "JAX_COMPILATION_CACHE_DIR", str(cache / "xla")
        ),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JBIAS_CACHE", str(cache))
        for name, value in settings.items():
            patch.setenv(name.upper(), str(value))
            jax.config.update(name, value)
        yield cache


@pytest.fixture(scope="module", autouse=True)
def forgotten():
    """Drop compiled programs of earlier tests if they fill gigabytes."""
    yield
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    if pages * os.sysconf("SC_PAGE_SIZE") > 3 * 2**30:
        jax.clear_caches()


@pytest.fixture(scope="session")
def test_data() -> pathlib.Path:
    """Return the folder of archives; skip the test if it does not exist."""
    default = pathlib.Path(__file__).parents[1] / ".." / "shared" / "data"
    path = pathlib.Path(os.environ.get("JBIAS_TEST_DATA", default)).resolve()
    if not path.is_dir():
        pytest.skip(f"needs real data: JBIAS_TEST_DATA={path} is no folder")
    return path


@pytest.fixture(scope="session")
def unpacked(test_data, tmp_path_factory):
    """unpacked("pacs64", "pacs64/photo") is a folder with those members of the archive.

    Unpacked once a session for the same arguments; without members, the whole.
    """

    @functools.cache
    def unpack(archive: str, *starts: str) -> pathlib.Path:
        path = test_data / f"{archive}.tar.gz"
        if not path.is_file():
            pytest.skip(f"needs real data: {path.name} in JBIAS_TEST_DATA={test_data}")
        target = tmp_path_factory.mktemp(archive)
        with tarfile.open(path) as tar:
            members = [m for m in tar if m.name.startswith(starts or "")]
            tar.extractall(target, members, filter="data")
        return target

    return unpack
