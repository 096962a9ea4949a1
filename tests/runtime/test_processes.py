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
from jbias.training import divergence

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
        add, steps = divergence.Monitor.add, itertools.count(1)

        def counted(self, *args):
            if next(steps) == count:
                die(number)
            return add(self, *args)

        divergence.Monitor.add = counted
    return ml_collections.ConfigDict({config!r})
"""


def config(**entries) -> dict:
    """Return a config with a rate at which rounding differences stay small for 8 steps."""
    c = smoke_runs.small(seeds=(3,), epochs=2.0, save_every="3 steps", **entries)
    c.optim.rate, c.run.devices = 0.003, 0
    c.model, c.run.steps_per_dispatch = dict(name="cnn", width=4), 1
    return c.to_dict()


def start(folder, number=0, count=1, at=0, *args, of=None, name="config", **env):
    """Start one of `count` processes of a run in folder/run."""
    path = folder / f"{name}.py"
    path.write_text(CONFIG.format(config=of or config()))
    flags = [f"--coordinator=localhost:{at}", f"--processes={count}"]
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


def several(folder, count: int, *args, dies=None, **options) -> list:
    """Start all processes; `dies` is (number, signal, number of steps)."""
    at, started = processes.free_port(), []
    for number in range(count):
        mine = dies and dies[0] == number
        env = {"DIE": f"{int(dies[1])}:{dies[2]}"} if mine else {}
        started.append(start(folder, number, count, at, *args, **options, **env))
    return started


def ended(started: list) -> list[tuple[int, str]]:
    """Return the exit codes and outputs."""
    said = [process.communicate(timeout=600)[1] for process in started]
    return [(process.returncode, output) for process, output in zip(started, said)]


@pytest.fixture(scope="module")
def lone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lone")
    [(code, said)] = ended([start(folder)])
    assert code == 0, said
    return folder / "run"


def assert_alike(workdir, lone) -> None:
    """Results may differ by the order of sums, and for images near a decision border."""
    (step, tree), (other_step, their_record) = saved(workdir), saved(lone)
    assert step == other_step == 8
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4),
        tree,
        their_record,
    )
    ours, theirs = smoke_runs.records(workdir), smoke_runs.records(lone)
    assert len(ours) == len(theirs) > 0
    for our_record, their_record in zip(ours, theirs, strict=True):
        if our_record["metric"] != "shape_bias":
            assert our_record["value"] == pytest.approx(
                their_record["value"], rel=1e-3, abs=0.02
            )
        if our_record["metric"] == "accuracy":
            assert abs(our_record["count"] - their_record["count"]) <= 1
        for result in ("value", "count"):
            our_record.pop(result), their_record.pop(result)
        assert our_record == their_record


@pytest.mark.slow
def test_a_signal_to_one_of_two_stops_both_and_four_go_on(lone, tmp_path):
    started = several(tmp_path, 2, dies=(1, signal.SIGTERM, 5))
    (code, said), (other, _) = ended(started)
    assert (code, other) == (143, 143), said
    assert 5 <= saved(tmp_path / "run")[0] <= 7
    assert "SIGTERM at step" in said
    done = ended(several(tmp_path, 4))
    assert [code for code, _ in done] == [0, 0, 0, 0], done
    assert "resuming" in done[0][1]
    assert done[1][1] == told_by_0(1, 4) + "\n"
    assert_alike(tmp_path / "run", lone)
    text = (tmp_path / "run" / "provenance.json").read_text()
    first = json.loads(text)
    assert first["device"]["processes"] == 2 and first["device"]["count"] == 2
    assert "device.processes: 2 != 4" in first["resumed"][0]["differing"]


@pytest.mark.slow
def test_a_preemption_that_jax_tells_of_stops_both_at_one_step(lone, tmp_path):
    """Uses jax's preemption notice, which orbax checks in its own saves."""
    results = ended(several(tmp_path, 2, dies=(1, 0, 3)))
    assert [code for code, _ in results] == [143, 143], results
    said = [[x for x in output.splitlines() if "jbias: " in x] for _, output in results]
    (step,) = {re.search(r"preemption notice at step (\d):", x)[1] for [x] in said}
    assert 4 <= int(step) == saved(tmp_path / "run")[0] <= 8
    [(code, said)] = ended([start(tmp_path)])
    assert code == 0 and "resuming" in said, said
    assert_alike(tmp_path / "run", lone)


def told_by_0(number: int, count: int) -> str:
    """Return the line that processes other than 0 print."""
    return f"process {number} of {count}: process 0 reports the progress"


@pytest.mark.slow
def test_a_lost_process_ends_the_other_and_one_goes_on(lone, tmp_path):
    """Both cases: the loss of process 0, with jax's service, and of process 1.

    Then jax prints a trace of C++ before the line; else the line is all that there is.
    """
    for who, steps in ((1, 5), (0, 3)):
        began = time.monotonic()
        started = several(tmp_path, 2, dies=(who, signal.SIGKILL, steps))
        started[who].wait(600)
        lost = time.monotonic()
        results = ended(started)
        waited = processes.SILENCE_SECONDS if who else 0
        assert time.monotonic() - lost < waited + 15 + (lost - began) / 10
        assert results[who][0] == -signal.SIGKILL, results
        code, said = results[1 - who]
        assert code == signals.EXIT_LOST == 69, said
        (line,) = [
            output_line
            for output_line in said.splitlines()
            if output_line.startswith("jbias: ")
        ]
        assert (
            f"process {who} of 2" in line
            and "was lost; start all processes again" in line
        )
        assert "Traceback" not in said
        assert who == 0 or "***" not in said
        assert said.splitlines()[-1] == line
    [(code, said)] = ended([start(tmp_path)])
    assert code == 0 and "resuming" in said, said
    assert_alike(tmp_path / "run", lone)


@pytest.mark.slow
def test_different_commands_are_refused_by_name(tmp_path):
    at = processes.free_port()
    other = config(eval_every="1 epoch", variant="other")
    started = [
        start(tmp_path, 0, 2, at),
        start(tmp_path, 1, 2, at, of=other, name="other"),
    ]
    results = ended(started)
    for code, said in results:
        assert code == 2, results
        assert "config.variant: '' != 'other'" in said and said.count("\n") == 1
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


def test_slurm_is_found_and_can_be_set_aside(monkeypatch):
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
    ("found", "message"),
    [
        (
            RuntimeError("no such pod"),
            "but not the number of this process .*no such pod.",
        ),
        (("h:1", 2, 2, None), "must be 0 to 1, as there are 2 processes, got 2"),
        (AttributeError("no such name"), f"jax {jax.__version__}: no such name"),
    ],
)
def test_what_a_cluster_says_wrongly_is_told(monkeypatch, found, message):
    """The message has the version of jax, whose detection may have changed."""

    def detect(**_):
        if isinstance(found, Exception):
            raise found
        return found

    name = "auto_detect_unset_distributed_params"
    monkeypatch.setattr(clusters.ClusterEnv, name, detect)
    with pytest.raises(ValueError, match=message):
        processes.identify(None, None, None)


def test_cores_that_two_tasks_share_are_paid_once():
    cores = [("a", [0, 1]), ("a", [1, 2]), ("b", [0])]
    joined = object.__new__(processes.JoinedGroup)
    joined._hosts = [{"host": host, "cores": some} for host, some in cores]
    assert joined.cores == 4


def test_the_others_are_told_of_a_checkpoint_without_its_records(tmp_path, monkeypatch):
    """Records are long, and only process 0 needs them."""
    broadcasts, info = (
        [],
        {"stage": 0, "records": "x" * 9999, "sums": {"a": 1}, "step": 3},
    )
    first = types.SimpleNamespace(
        is_main=True, count=2, broadcast_tree=lambda tree: tree
    )
    first.broadcast = lambda what, value: broadcasts.append(value) or value
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


def act(count: int, mode: str = "", numbers=None) -> list[tuple[int, list[str]]]:
    """Run SCRIPT in processes of these numbers; return exit codes and printed lines."""
    at, environment = str(processes.free_port()), {"PYTHONPATH": str(smoke_runs.ROOT)}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(number), str(count), at, mode],
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
    return [(p.returncode, said) for p, said in zip(started, lines, strict=True)]


def test_two_agree_on_what_each_says_finds_and_stops_for():
    (code, first), (other, second) = act(2)
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
def test_what_ends_one_ends_all_in_one_line(mode, count, numbers, code, message):
    results = act(count, mode, numbers)
    assert {ended for ended, _ in results} == {code}, results
    silent = {"fails": 1, "raises": 0}.get(mode)  # It has told of it by itself.
    for number, (_, said) in enumerate(results):
        if number != silent:
            (line,) = said
            assert any(part in line for part in message.split("|")), line


@pytest.mark.slow
def test_a_stop_while_the_others_are_waited_for_is_heard_at_once(tmp_path):
    process = start(tmp_path, 1, 2, processes.free_port())
    time.sleep(15)  # It waits for 300 seconds.
    process.send_signal(signal.SIGTERM)
    began, (_, said) = time.monotonic(), process.communicate(timeout=100)
    assert process.returncode == 143, said
    assert "SIGTERM before a step was taken" in said and time.monotonic() - began < 10


def test_an_abort_of_another_origin_stays_one():
    """An abort that jax's service did not cause is not reported as a lost process."""
    code = (
        "import os\nfrom jbias.runtime import processes\n"
        "with processes._on_abort(lambda: {why}, lambda *said: print(*said, flush=True)):\n"
        "    os.abort()"
    )
    for why, ended, said in (
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
        assert (done.returncode, done.stdout) == (ended, said), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("hosts", "kept"), [("abb", 0), ("abc", 1)])
def test_processes_on_unequal_hosts_keep_the_same_test_sets(tmp_path, hosts, kept):
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
    at = processes.free_port()
    started = [
        start(tmp_path, number, len(hosts), at, of=options, HOST=host)
        for number, host in enumerate(hosts)
    ]
    for code, said in ended(started):
        assert code == 0, said
    log = (tmp_path / "run" / "log.txt").read_text()
    assert f"{kept} of 1 test sets are decoded once and kept" in log
    assert smoke_runs.records(tmp_path / "run")
