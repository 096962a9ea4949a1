"""Several processes on one machine train the same run, and end together."""

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
import types

import jax
import numpy as np
import pytest
from jax._src import clusters
from PIL import Image

from jbias.data.embedded import shapes
from jbias.runs import checkpoints
from jbias.runtime import processes, signals
from tests import cases, smoke_runs
from tests.test_resume import saved

# A config of eight steps; as DIE=signal:count says, one comes after so many. Signal 0
# stands for what jax's own service, not this process, hears of a preemption. In a folder
# named by READS each process keeps which images it has opened. HOST is the machine's name.
CONFIG = """
import atexit, datetime, itertools, os, socket, sys
import ml_collections
from jax._src import distributed
from jbias.training import monitoring

def die(number):
    if number:
        return os.kill(os.getpid(), number)
    now = datetime.datetime.now(datetime.UTC).isoformat()
    client = distributed.global_state.client
    client.key_value_set("RECEIVED_PREEMPTION_NOTICE", now)

def keep(folder):
    opened = []

    def hook(event, args):
        if event == "open" and str(args[0]).endswith(".png"):
            opened.append(str(args[0]))

    def write():
        with open(os.path.join(folder, str(os.getpid())), "w") as file:
            file.write("\\n".join(opened))

    sys.addaudithook(hook)
    atexit.register(write)

def get_config(arg=""):
    if "HOST" in os.environ:
        socket.gethostname = lambda: os.environ["HOST"]
    if "READS" in os.environ:
        keep(os.environ["READS"])
    if "DIE" in os.environ:
        number, count = map(int, os.environ["DIE"].split(":"))
        add, steps = monitoring.Monitor.add, itertools.count(1)

        def counted(self, *args):
            if next(steps) == count:
                die(number)
            return add(self, *args)

        monitoring.Monitor.add = counted
    return ml_collections.ConfigDict({config!r})
"""


def config(**entries) -> dict:
    """Return a config with a rate at which rounding differences stay small for 8 steps."""
    c = smoke_runs.small(seeds=(3,), epochs=2.0, save_every="3 steps", **entries)
    c.optim.rate, c.run.devices = 0.003, 0
    c.model, c.run.steps_per_dispatch = dict(name="cnn", width=4), 1
    return c.to_dict()


def start(folder, number=0, count=1, port=0, *args, entry=None, name="config", **env):
    """Start one of `count` processes of a run in folder/run."""
    path = folder / f"{name}.py"
    path.write_text(CONFIG.format(config=entry or config()))
    flags = [f"--coordinator=localhost:{port}", f"--processes={count}"]
    flags = [*flags, f"--process={number}"] if count > 1 else []
    command = [sys.executable, "-m", "jbias.main", f"--config={path}"]
    paths = os.pathsep.join([str(smoke_runs.ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [*command, f"--workdir={folder}/run", *flags, *args],
        # As where jax is first imported by the run; CONFIG, and this process, were before.
        env={
            **(os.environ | {"JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "2"}),
            "PYTHONPATH": paths,
            **env,
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def start_all(folder, count: int, *args, dies=None, **options) -> list:
    """Start all processes; `dies` is (number, signal, number of steps)."""
    port, started = processes.free_port(), []
    for number in range(count):
        is_to_die = dies and dies[0] == number
        env = {"DIE": f"{int(dies[1])}:{dies[2]}"} if is_to_die else {}
        started.append(start(folder, number, count, port, *args, **options, **env))
    return started


def wait_for_all(started: list) -> list[tuple[int, str]]:
    """Return the exit codes and outputs."""
    outputs = [process.communicate(timeout=600)[1] for process in started]
    return [(process.returncode, output) for process, output in zip(started, outputs)]


@pytest.fixture(scope="module")
def single_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lone")
    [(code, output)] = wait_for_all([start(folder)])
    assert code == 0, output
    return folder / "run"


def assert_close_runs(workdir, single_run) -> None:
    """Assert equal results up to the order of sums and images near a decision border."""
    (step, tree), (other_step, other_tree) = saved(workdir), saved(single_run)
    assert step == other_step == 8

    def assert_close(a, b):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)

    jax.tree.map(assert_close, tree, other_tree)
    records, expected_records = (
        smoke_runs.records(workdir),
        smoke_runs.records(single_run),
    )
    assert len(records) == len(expected_records) > 0
    for record, expected in zip(records, expected_records, strict=True):
        if record["metric"] != "shape_bias":
            assert record["value"] == pytest.approx(
                expected["value"], rel=1e-3, abs=0.02
            )
        if record["metric"] == "accuracy":
            assert abs(record["count"] - expected["count"]) <= 1
        for field in ("value", "count"):
            record.pop(field), expected.pop(field)
        assert record == expected


@pytest.mark.slow
def test_a_signal_to_one_of_two_processes_stops_both_and_four_resume(
    single_run, tmp_path
):
    started = start_all(tmp_path, 2, dies=(1, signal.SIGTERM, 5))
    (code, output), (other_code, _) = wait_for_all(started)
    assert (code, other_code) == (143, 143), output
    assert 5 <= saved(tmp_path / "run")[0] <= 7
    assert "SIGTERM at step" in output
    finished = wait_for_all(start_all(tmp_path, 4))
    assert [code for code, _ in finished] == [0, 0, 0, 0], finished
    assert "resuming" in finished[0][1]
    assert finished[1][1] == line_of_process_0(1, 4) + "\n"
    assert_close_runs(tmp_path / "run", single_run)
    text = (tmp_path / "run" / "provenance.json").read_text()
    first = json.loads(text)
    assert first["device"]["processes"] == 2 and first["device"]["count"] == 2
    assert "device.processes: 2 != 4" in first["resumed"][0]["differing"]


@pytest.mark.slow
def test_a_preemption_notice_of_jax_stops_both_processes_at_one_step(
    single_run, tmp_path
):
    """Uses jax's preemption notice, which orbax checks in its own saves."""
    results = wait_for_all(start_all(tmp_path, 2, dies=(1, 0, 3)))
    assert [code for code, _ in results] == [143, 143], results
    messages = [
        [x for x in output.splitlines() if "jbias: " in x] for _, output in results
    ]
    (step,) = {re.search(r"preemption notice at step (\d):", x)[1] for [x] in messages}
    assert 4 <= int(step) == saved(tmp_path / "run")[0] <= 8
    [(code, messages)] = wait_for_all([start(tmp_path)])
    assert code == 0 and "resuming" in messages, messages
    assert_close_runs(tmp_path / "run", single_run)


def line_of_process_0(number: int, count: int) -> str:
    """Return the line that processes other than 0 print."""
    return f"process {number} of {count}: process 0 reports the progress"


@pytest.mark.slow
def test_a_lost_process_ends_the_other_and_one_process_resumes(single_run, tmp_path):
    """Both cases: the loss of process 0, with jax's service, and of process 1.

    If process 0 is lost, jax prints a trace of C++ before the line; otherwise the line is
    the whole output.
    """
    for lost_process, steps in ((1, 5), (0, 3)):
        began = time.monotonic()
        started = start_all(tmp_path, 2, dies=(lost_process, signal.SIGKILL, steps))
        started[lost_process].wait(600)
        lost = time.monotonic()
        results = wait_for_all(started)
        waited = processes.SILENCE_SECONDS if lost_process else 0
        assert time.monotonic() - lost < waited + 15 + (lost - began) / 10
        assert results[lost_process][0] == -signal.SIGKILL, results
        code, output = results[1 - lost_process]
        assert code == signals.EXIT_LOST == 69, output
        (line,) = [
            output_line
            for output_line in output.splitlines()
            if output_line.startswith("jbias: ")
        ]
        assert (
            f"process {lost_process} of 2" in line
            and "was lost; start all processes again" in line
        )
        assert "Traceback" not in output
        assert lost_process == 0 or "***" not in output
        assert output.splitlines()[-1] == line
    [(code, output)] = wait_for_all([start(tmp_path)])
    assert code == 0 and "resuming" in output, output
    assert_close_runs(tmp_path / "run", single_run)


@pytest.mark.slow
def test_different_commands_are_refused_by_name(tmp_path):
    port = processes.free_port()
    other = config(eval_every="1 epoch", variant="other")
    started = [
        start(tmp_path, 0, 2, port),
        start(tmp_path, 1, 2, port, entry=other, name="other"),
    ]
    results = wait_for_all(started)
    for code, output in results:
        assert code == 2, results
        assert "config.variant: '' != 'other'" in output and output.count("\n") == 1
    assert not (tmp_path / "run").exists()


@cases.each(
    ("args", "message"),
    [
        (("h:1", 2, None), "got no --process"),
        (("h:1", None, None), "got no --processes and no --process"),
        ((None, 2, 0), "got no --coordinator"),
        (("h", 2, 0), "--coordinator must be HOST:PORT"),
        (("h:x", 2, 0), "--coordinator must be HOST:PORT"),
        (("h:1", 2, 2), "--process must be 0 to 1 of --processes=2, got 2"),
        (("h:1", 0, 0), "--process must be 0 to 0 of --processes=0, got 0"),
    ],
)
def test_flags_that_do_not_fit_are_refused(args, message):
    with pytest.raises(ValueError, match=message):
        processes.identify(*args)


SLURM = dict(
    SLURM_JOB_ID="4097",
    SLURM_STEP_NODELIST="gpu[07-09],login",
    SLURM_NTASKS="3",
    SLURM_PROCID="2",
    SLURM_LOCALID="1",
)


def test_slurm_is_detected_and_can_be_overridden(monkeypatch):
    assert processes.identify(None, None, None).count == 1
    for key, value in SLURM.items():
        monkeypatch.setenv(key, value)
    process = processes.identify(None, None, None)
    assert process == ("gpu07:61441", 3, 2, [1])
    monkeypatch.setenv("JAX_LOCAL_DEVICE_IDS", "0,1")  # Then jax looks there.
    assert processes.identify(None, None, None) == ("gpu07:61441", 3, 2, None)
    assert processes.identify(None, 1, None).count == 1
    monkeypatch.setenv("SLURM_NTASKS", "1")
    assert processes.identify(None, None, None).count == 1


@cases.each(
    ("detected", "message"),
    [
        (
            RuntimeError("no such pod"),
            "but not the number of this process .*no such pod.",
        ),
        (("h:1", 2, 2, None), "must be 0 to 1, as there are 2 processes, got 2"),
        (AttributeError("no such name"), f"jax {jax.__version__}: no such name"),
    ],
)
def test_wrong_values_of_a_cluster_are_reported(monkeypatch, detected, message):
    """The message has the version of jax, whose detection may have changed."""

    def detect(**_):
        if isinstance(detected, Exception):
            raise detected
        return detected

    name = "auto_detect_unset_distributed_params"
    monkeypatch.setattr(clusters.ClusterEnv, name, detect)
    with pytest.raises(ValueError, match=message):
        processes.identify(None, None, None)


def test_cores_shared_by_two_tasks_are_counted_once():
    cores = [("a", [0, 1]), ("a", [1, 2]), ("b", [0])]
    joined = object.__new__(processes.JoinedGroup)
    joined._hosts = [{"host": host, "cores": numbers} for host, numbers in cores]
    assert joined.cores == 4


def test_a_checkpoint_is_broadcast_without_its_records(tmp_path, monkeypatch):
    """Records are long, and only process 0 needs them."""
    broadcasts, info = (
        [],
        {"stage": 0, "records": "x" * 9999, "sums": {"a": 1}, "step": 3},
    )
    first = types.SimpleNamespace(
        is_main=True, count=2, broadcast_tree=lambda tree: tree
    )
    first.broadcast = lambda purpose, value: broadcasts.append(value) or value
    store = checkpoints.CheckpointStore(tmp_path, first)
    monkeypatch.setattr(store, "_latest", lambda *_: ((1,), info))
    assert store.restore(None, print) == ((1,), info)
    store.close()
    assert broadcasts == [{**info, "records": True, "sums": {}}]


# What each of some processes does that train nothing; MODE says what goes wrong.
SCRIPT = """
import os, signal, sys, time
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jbias import config as jc
from jbias.runtime import processes, signals

number, count, at, mode = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]

def tell(line, code):
    print(f"told {code}: {line}", flush=True)

def act():
    if number == 1:
        raise ValueError("no such file")
    return number

where = processes.ProcessId(f"localhost:{at}", count, number)
alike = {"config": number if mode == "unlike" else 0}
try:
    joining = processes.join(
        where, lambda: alike, tell, describe_differences=jc.diff, wait=5
    )
    with joining as team:
        if mode == "fails" and number == 1:
            team.fail("its disk is full", 7)
        if mode == "raises" and number == 0:
            raise RuntimeError("a bug")
        if mode in ("fails", "raises"):
            while True:  # As a process that waits for no other.
                time.sleep(0.1)
        print(team.all_gather("it", number), team.broadcast("it", number), flush=True)
        assert [len(x) for x in team.all_gather("long", "x" * 2**22)] == [2**22] * count
        try:
            team.gather_results("its part", act)
        except ValueError as error:
            print(error, flush=True)
        sent = {"a": np.float32([-0.0, number]), "b": np.arange(3)}
        got = team.broadcast_tree(sent)
        assert np.signbit(got["a"][0]) and got["a"][1] == 0, got
        assert [team.agree_to_stop("", None) for _ in range(5)] == [""] * 5
        for step in range(500):
            name = "SIGUSR1" if number == 1 and step > 2 else ""
            multihost_utils.process_allgather(jnp.ones(1))
            if stop := team.agree_to_stop(name, step):
                break
        print(stop, team.all_gather("the step", step), flush=True)
        print(team.agree_to_stop("SIGINT" if number else "", None), flush=True)  # The first.
        time.sleep(number)  # Who is slow to leave is waited for.
    print("left", flush=True)
except ValueError as error:
    print(f"refused: {error}", flush=True)
    sys.exit(2)
"""


def run_script(count: int, mode: str = "", numbers=None) -> list[tuple[int, list[str]]]:
    """Run SCRIPT in processes of these numbers; return exit codes and printed lines."""
    port, environment = str(processes.free_port()), {"PYTHONPATH": str(smoke_runs.ROOT)}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(number), str(count), port, mode],
            env={**os.environ, "JAX_PLATFORMS": "cpu", **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in (range(count) if numbers is None else numbers)
    ]
    outputs = [process.communicate(timeout=300) for process in started]
    lines = [
        [line for line in out.splitlines() if not line.startswith("[Gloo]")] or [err]
        for out, err in outputs
    ]
    return [(p.returncode, text) for p, text in zip(started, lines, strict=True)]


def test_two_processes_agree_on_messages_findings_and_stops():
    (code, first), (other, second) = run_script(2)
    assert (code, other) == (0, 0), (first, second)
    assert first[:2] == ["[0, 1] 0", "process 1 of 2: no such file"]
    assert second[:2] == ["[0, 1] 0", "no such file"]
    assert first[2:] == second[2:] and first[-2:] == ["SIGUSR1", "left"]
    name, steps = first[2].split(maxsplit=1)
    assert name == "SIGUSR1" and len(set(json.loads(steps))) == 1


@pytest.mark.slow
@cases.each(
    ("mode", "count", "numbers", "code", "message"),
    [
        ("fails", 3, None, 7, "process 1 of 3: its disk is full"),
        ("raises", 3, None, 1, "process 0 of 3: RuntimeError: a bug"),
        ("unlike", 2, None, 2, "have different settings (config: 0 != 1); start all"),
        ("", 3, [0, 2], 2, "not all of 3 processes reached localhost:"),
        ("", 3, [1], 2, "not all of 3 processes reached localhost:"),
        ("", 2, [0, 0], 2, "not all of 2 processes|did not start at port"),
    ],
)
def test_an_error_in_one_process_ends_all_in_one_line(
    mode, count, numbers, code, message
):
    results = run_script(count, mode, numbers)
    assert {exit_code for exit_code, _ in results} == {code}, results
    reporting_process = {"fails": 1, "raises": 0}.get(
        mode
    )  # It has told of it by itself.
    for number, (_, lines) in enumerate(results):
        if number != reporting_process:
            (line,) = lines
            assert any(text in line for text in message.split("|")), line


@pytest.mark.slow
def test_a_signal_during_the_wait_for_other_processes_stops_immediately(tmp_path):
    process = start(tmp_path, 1, 2, processes.free_port())
    time.sleep(15)  # It waits for 300 seconds.
    process.send_signal(signal.SIGTERM)
    began, (_, output) = time.monotonic(), process.communicate(timeout=100)
    assert process.returncode == 143, output
    assert "SIGTERM before a step was taken" in output and time.monotonic() - began < 10


def test_aborts_not_caused_by_jax_are_unchanged():
    """An abort that jax's service did not cause is not reported as a lost process."""
    code = (
        "import os\nfrom jbias.runtime import processes\n"
        "with processes._on_abort(lambda: {why}, lambda *said: print(*said, flush=True)):\n"
        "    os.abort()"
    )
    for why, exit_code, output in (
        ("None", -signal.SIGABRT, ""),
        ("('lost', 69)", 69, "lost 69\n"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", code.format(why=why)],
            env={**os.environ, "PYTHONPATH": str(smoke_runs.ROOT)},
            check=False,
            capture_output=True,
            text=True,
        )
        assert (done.returncode, done.stdout) == (exit_code, output), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("hosts", "num_kept"), [("abb", 0), ("abc", 1)])
def test_processes_on_unequal_hosts_keep_the_same_test_sets(tmp_path, hosts, num_kept):
    """The host with the most processes decides; otherwise a process would wait.

    The room for test sets has the set once, and not twice: alone on its host, a process
    could keep the set, and each of two on one host could not.
    """
    rng = np.random.default_rng(0)
    count = 10 * len(shapes.CLASSES)
    for name, number in itertools.product(shapes.CLASSES, range(10)):
        path = tmp_path / "images" / "val" / name / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (32, 32, 3), np.uint8)).save(path)
    options = config()
    images = dict(data="folder", root=str(tmp_path / "images"), split="val")
    options["tests"] = {"own": images}
    options["train"] |= {"batch": 24, "n": 96}  # A third of each batch is a process's.
    room = 96 + options["valid"]["n"] + 1.3 * count  # In images.
    options["run"]["loading"]["gib"] = room * options["size"] ** 2 * 3 / 2**30
    port = processes.free_port()
    started = [
        start(tmp_path, number, len(hosts), port, entry=options, HOST=host)
        for number, host in enumerate(hosts)
    ]
    for code, output in wait_for_all(started):
        assert code == 0, output
    log = (tmp_path / "run" / "log.txt").read_text()
    assert f"{num_kept} of 1 test sets are decoded once and kept" in log
    assert smoke_runs.records(tmp_path / "run")
