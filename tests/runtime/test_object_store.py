"""Files in an object store: atomic writes, locks, logs and local copies."""

import importlib.util
import json
import pathlib
import threading
import time

import google.auth
import pytest
from google.auth import exceptions

from jbias.runs import workdirs
from jbias.runtime import console, files, object_store, workdir_lock
from tests import gcs_server


@pytest.fixture(scope="module")
def store():
    with gcs_server.serving() as store, pytest.MonkeyPatch.context() as patch:
        for name, value in store.env.items():
            patch.setenv(name, value)
        patch.setattr(object_store, "_WRITE_INTERVAL", 0.05)
        yield store


@pytest.fixture
def run(store, request, monkeypatch):
    """Fixture: a new workdir with short lock timeouts."""
    monkeypatch.setattr(workdir_lock, "PATIENCE_SECONDS", 0.5)
    monkeypatch.setattr(workdir_lock, "BEAT_SECONDS", 0.1)
    return files.resolve(f"gs://{gcs_server.BUCKET}/{request.node.name}/run")


def ignore(line: str) -> None:
    del line


def test_written_files_exist_and_nothing_else(store, run):
    files.write(run / "a.json", "old")
    with files.translate_os_errors("a.json"):
        files.write(run / "a.json", "new")
    assert (run / "a.json").read_text() == "new"
    name = f"{run.parts[-2]}/run"
    assert store.names(name) == [f"{name}/a.json"]
    assert (run / "a.json").exists() and run.exists() and not (run / "b").exists()
    files.discard(run / "a.json")
    files.discard(run / "a.json")
    assert not run.exists()


def test_an_object_is_not_written_twice_a_second(store, run, monkeypatch):
    monkeypatch.setattr(object_store, "_WRITE_INTERVAL", 0.4)
    began = time.monotonic()
    for _ in range(3):
        files.write(run / "progress.json", "{}")
    assert time.monotonic() - began >= 0.8


def test_another_processes_objects_are_seen_immediately(store, run):
    """gcsfs itself would return its cached listing."""
    files.write(run / "evals" / "1.jsonl", "x")
    assert [p.name for p in (run / "evals").iterdir()] == ["1.jsonl"]
    name = f"{run.parts[-2]}/run/evals/2.jsonl"
    metadata = {**store.stored.get_file_obj(gcs_server.BUCKET, name.replace("2", "1"))}
    store.stored.create_file(gcs_server.BUCKET, name, b"y", metadata | {"name": name})
    assert (run / "evals" / "2.jsonl").exists()
    assert sorted(p.name for p in (run / "evals").iterdir()) == ["1.jsonl", "2.jsonl"]


def test_only_one_of_two_concurrent_replacements_succeeds(store, run):
    first = object_store.replace(run / "x", b"1", 0)
    with pytest.raises(FileExistsError):
        object_store.replace(run / "x", b"2", 0)
    assert object_store.replace(run / "x", b"3", first) != first
    with pytest.raises(FileExistsError):
        object_store.delete(run / "x", first)
    assert object_store.read(run / "x").content == b"3"


def test_a_live_owner_is_named_and_the_other_refused(store, run):
    path = run / "lock"
    with workdir_lock.acquire(path, "is at work here", ignore) as own_lock:
        time.sleep(0.3)
        own_lock.check()
        assert workdir_lock.is_held(path)
        content = json.loads(store.content(f"{run.parts[-2]}/run/lock"))
        assert (
            content["beats"] > 1
            and workdir_lock.read_owner(json.dumps(content)) == own_lock.owner
        )
        with (
            pytest.raises(
                ValueError, match=f"is at work here: process {content['pid']} "
            ),
            workdir_lock.acquire(path, "is at work here", ignore),
        ):
            pass
        own_lock.check()
    assert not workdir_lock.is_held(path) and not path.exists()


def test_a_silent_owner_is_taken_over_and_stopped(store, run, monkeypatch):
    path, lines = run / "lock", []
    monkeypatch.setattr(
        workdir_lock, "BEAT_SECONDS", 60.0
    )  # Neither shows more than one.
    with workdir_lock.acquire(path, "is at work here", ignore) as own_lock:
        with workdir_lock.acquire(path, "is at work here", lines.append) as new:
            assert "the lock is taken over after" in lines[0]
            assert f"took over the lock of {own_lock.owner}" in lines[-1]
            with pytest.raises(
                OSError, match="taken over by process .* continues there"
            ):
                own_lock.check()
            with pytest.raises(FileExistsError):
                own_lock.beat()
            new.check()
        assert not path.exists()


def test_only_one_of_two_processes_takes_over_a_silent_owner(store, run):
    object_store.replace(run / "lock", b"{", 0)
    owners, refused = [], []

    def start():
        try:
            with workdir_lock.acquire(run / "lock", "is at work here", ignore):
                owners.append(1)
                time.sleep(1.0)
        except ValueError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=start) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(owners) == len(refused) == 1
    assert "another process is at work here: process " in refused[0]


def test_a_lost_answer_does_not_lose_the_lock(store, run, monkeypatch):
    """The repeated request finds the object that the first request wrote."""
    real = object_store.replace

    def lost(path, content, generation):
        real(path, content, generation)
        return real(path, content, generation)

    monkeypatch.setattr(object_store, "replace", lost)
    with workdir_lock.acquire(run / "lock", "is at work here", ignore) as own_lock:
        own_lock.check()


def test_a_removed_workdir_is_detected(store, run):
    with workdir_lock.acquire(run / "lock", "is at work here", ignore) as own_lock:
        run.rmtree()
        with pytest.raises(
            OSError, match="run has disappeared .*the same command again"
        ):
            own_lock.check()


def test_network_errors_are_one_line(store, run, monkeypatch):
    """A broken connection is not an OSError by itself."""

    def broken(method: str, name: str) -> None:
        raise ConnectionError

    monkeypatch.setattr(object_store.filesystem(), "hurried", True)
    with workdir_lock.acquire(run / "lock", "is at work here", ignore) as own_lock:
        monkeypatch.setattr(store.stored, "before_request", broken)
        line = r"run: cannot be written \(Server disconnected\); .* check the network,"
        with pytest.raises(OSError, match=line):
            own_lock.check()
        with pytest.raises(
            OSError, match="^store: Server disconnected; all earlier saves"
        ):
            files.write(run / "a", "a")
        monkeypatch.setattr(store.stored, "before_request", lambda method, name: None)
        own_lock.check()


def test_two_processes_may_write_one_log(store, run):
    path = run / "log.txt"
    other = object_store.Log(str(path))
    files.append(path, "one")
    files.flush(path)
    other.add("two")
    other.flush()
    files.append(path, "three")
    assert "three" not in path.read_text()
    console.flush(run)
    assert path.read_text() == "one\ntwo\nthree\n"


def test_logs_are_written_after_some_seconds_and_after_failures(
    store, run, monkeypatch
):
    monkeypatch.setattr(object_store, "LOG_SECONDS", 0.1)
    path, real = run / "log.txt", object_store.replace
    files.append(path, "one")
    failed = []

    def failing(*args, **options):
        if len(failed) < 2:
            failed.append(1)
            raise OSError("no network")
        return real(*args, **options)

    monkeypatch.setattr(object_store, "replace", failing)
    until = time.monotonic() + 20
    while not path.exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert len(failed) == 2 and path.read_text() == "one\n"


def test_a_moved_folder_is_complete_at_one_of_both_places(store, run, monkeypatch):
    """The move is killed at every request."""
    names = ("state/d/1", "state/commit_success.txt", "commit_success.txt", "_META")
    source, target, methods = run / "8", run / "damaged" / "8", {}
    for method in ("cp_file", "rm_file"):
        methods[method] = getattr(object_store.filesystem(), method)
    done, requests_left = False, 0

    def counted(method):
        def call(*args):
            nonlocal requests_left
            requests_left -= 1
            if requests_left < 0:
                raise KeyboardInterrupt
            return methods[method](*args)

        return call

    for method in methods:
        monkeypatch.setattr(object_store.filesystem(), method, counted(method))
    for kill in range(20):
        requests_left = 10**9
        for folder in (source, target):
            for path in object_store.filesystem().find(str(folder)):
                methods["rm_file"](path)
        for name in names:
            files.write(source / name, name)
        requests_left, done = kill, True
        try:
            files.move(source, target)
        except KeyboardInterrupt:
            done = False
        complete = [f for f in (source, target) if (f / "commit_success.txt").exists()]
        assert complete
        assert {(complete[0] / n).read_text() for n in names} == set(names)
        if done:
            break
    assert done and kill == 2 * len(names) and complete == [target]


def test_local_copies_follow_the_store(store, run, tmp_path, monkeypatch):
    monkeypatch.setenv("JBIAS_CACHE", str(tmp_path))
    for name in ("log.txt", "evals/4.jsonl", "evals/8.jsonl", "checkpoints/4/state/d"):
        files.write(run / name, name)
    pattern = f"{run.parent}/r*"
    copy = pathlib.Path(files.local_copy(pattern, "--runs", checkpoints=False))
    assert copy.name == "r*" and copy.parent.is_relative_to(tmp_path)
    copy = copy.parent / "run"
    copies = sorted(p.relative_to(copy).as_posix() for p in copy.rglob("*.*"))
    assert copies == ["evals/4.jsonl", "evals/8.jsonl", "log.txt"]
    modified = (copy / "log.txt").stat().st_mtime
    assert abs(modified - object_store.read(run / "log.txt").updated) < 1e-3
    files.write(run / "evals" / "8.jsonl", "longer than before")
    files.discard(run / "log.txt")
    files.local_copy(pattern, "--runs", checkpoints=True)
    assert (copy / "evals" / "8.jsonl").read_text() == "longer than before"
    assert not (copy / "log.txt").exists()
    assert not (copy / "checkpoints").exists()  # Never committed.
    files.write(run / "checkpoints" / "4" / "commit_success.txt", "")
    files.local_copy(pattern, "--runs", checkpoints=True)
    assert (copy / "checkpoints" / "4" / "state" / "d").exists()
    with pytest.raises(ValueError, match="--runs: nothing is at gs://bucket/no"):
        files.local_copy(f"gs://{gcs_server.BUCKET}/no*", "--runs")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("s3://bucket/run", "gs:// is the only supported object store; mount it"),
        ("gs://bucket", "must be gs://BUCKET/FOLDER"),
    ],
)
def test_bad_paths_are_refused(path, message):
    with pytest.raises(ValueError, match=message):
        files.resolve(path)


def test_errors_name_the_missing_extra(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"pip install 'jbias\[gcs\]'$"):
        files.resolve("gs://bucket/run")


def test_errors_ask_for_a_missing_login(monkeypatch):
    def nobody():
        raise exceptions.DefaultCredentialsError("none")

    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.setattr(google.auth, "default", nobody)
    with pytest.raises(ValueError, match="run `gcloud auth application-default login`"):
        files.resolve("gs://bucket/run")


def test_errors_name_a_missing_bucket(store):
    workdir = files.resolve("gs://nowhere/run")
    with (
        pytest.raises(ValueError, match="there is no bucket 'nowhere'"),
        workdirs.claim(workdir, {"seeds": [0]}, ignore),
    ):
        pass


@pytest.mark.parametrize(("key", "value"), [("write", "wandb"), ("profile", True)])
def test_options_that_need_a_disk_are_refused(store, run, key, value):
    config = {"run": {key: value}}
    with (
        pytest.raises(ValueError, match=f"config.run.{key}: .* local --workdir"),
        workdirs.claim(run, config, ignore),
    ):
        pass


def test_a_workdir_without_a_run_is_removed(store, run):
    with workdirs.claim(run, {"seeds": [0]}, ignore):
        files.append(run / "log.txt", "said")
    console.flush(run)
    assert not run.exists()
