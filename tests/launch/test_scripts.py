"""Scripts for clusters and clouds: equal to frozen files, valid, and safe to run.

JBIAS_GOLDEN=1 writes the frozen scripts anew.
"""

import importlib.machinery
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import types

import jsonschema
import pytest
import submitit  # Imported in a test it would close what pytest captures.
import yaml

from jbias.launch import local, runner, sky, sweep, tpu_pod, trials
from jbias.runtime import signals
from tests import cases

assert submitit.__version__
FOLDER = pathlib.Path(__file__).parent
FORMATS = json.loads((FOLDER.parent / "oracles/launchers.json").read_text())
TRIALS = [
    trials.Trial(
        f"{name}-shapes-{digest}",
        pathlib.Path(f"/shared/runs/{name}-shapes-{digest}"),
        (
            f"--config=configs/{name}.py:demo",
            "--config.run.devices=0",
            "--config.optim.rate=0.1",
        ),
        {"optim.rate": "0.1"},
        {"run": {"devices": 0}},
    )
    for name, digest in (("erm", "01234567"), ("stylized_erm+x", "89abcdef"))
]
OPTIONS = {
    "slurm": "slurm:partition=gpu,gpus=1,minutes=240,gib=16,account=lab,parallel=4",
    "tpu_pod": "tpu_pod:runs=gs://bucket/runs,zone=us-east5-b,type=v6e-32,spot",
    "xpk": "xpk:runs=gs://bucket/runs,cluster=c,zone=us-east5-b,project=p,image=img",
    "sky": "sky:bucket=gs://bucket,accelerators=tpu-v6e-8,extra=tpu,infra=gcp/us-east5",
}
# What a shell would take for its own, were it not quoted.
NASTY = ["$(touch pwned)", "`touch pwned`", "'; touch pwned; '", '" & touch pwned "']
NASTY += ["a b", "*", "~", "#", "$HOME", "\\", "!x", "{a,b}", "-n", "TASK"]


def script(target: str, planned=TRIALS, **changed) -> str:
    """Return the script of an executor for the trials; tpu_pod takes one trial."""
    name, options = runner.parse_executor(OPTIONS[target])
    planned = planned[:1] if target == "tpu_pod" else planned
    return runner.EXECUTORS[name].script(planned, {**options, **changed})


def sky_task(planned=TRIALS, **changed) -> dict:
    """Return the task for SkyPilot."""
    return sky.task(planned, {**runner.parse_executor(OPTIONS["sky"])[1], **changed})


def nasty(target: str) -> list[trials.Trial]:
    """Return a trial with special characters in its arguments; no line breaks for xpk."""
    values = [*NASTY, *(() if target == "xpk" else ("\n", "\nTASK\ntouch pwned\n"))]
    arguments = (f"--config=configs/{''.join(values)}", *values)
    return [TRIALS[0]._replace(arguments=arguments)]


def shellcheck(text: str, tmp_path: pathlib.Path, severity: str = "style") -> None:
    """Fail if shellcheck finds a problem; severity "warning" allows `$` in quotes."""
    path = tmp_path / "script.sh"
    path.write_text(text)
    command = [str(pathlib.Path(sys.executable).parent / "shellcheck")]
    command += [f"--severity={severity}", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@cases.each("target", OPTIONS)
def test_scripts_are_unchanged(target):
    path = FOLDER / "golden" / f"{target}.sh"
    text = script(target).replace(sys.executable, "/env/bin/python")
    if os.environ.get("JBIAS_GOLDEN"):
        path.write_text(text)
    assert path.read_text() == text


@cases.each("target", OPTIONS)
def test_shellcheck_finds_nothing(target, tmp_path):
    for planned, severity in ((TRIALS, "style"), (nasty(target), "warning")):
        text = script(target, planned)
        if target == "sky":
            text = "#!/usr/bin/env bash\n" + yaml.safe_load(text)["run"]
        shellcheck(text, tmp_path, severity)


def test_comments_stay_comments(tmp_path):
    """Commands in the comments of SLURM's script are never run."""
    shown = script("slurm", nasty("slurm")).partition("# commands of the jobs:\n")[2]
    assert [line[:2] for line in shown.splitlines()] == ["# "]


def test_shellcheck_would_find_something(tmp_path):
    with pytest.raises(AssertionError, match="SC2086"):
        shellcheck("#!/bin/bash\nx=$1\nrm $x\n", tmp_path)


PRINT_WHEN_DESCRIBED = "print({!r} if 'describe' in sys.argv else '')\n"


def run(
    text: str, tmp_path: pathlib.Path, code: int = 0, env=os.environ, **programs: str
) -> list[list[str]]:
    """Run a script with replaced programs; return the arguments of their calls.

    programs: Python code that a program runs after it recorded its call. code: expected
    exit code; if it is not 0, standard error is the first entry of the result.
    """
    fakes = tmp_path / "bin"
    fakes.mkdir()
    note = "import json, sys; print(json.dumps(sys.argv[1:]), file=open({!r}, 'a'))\n"
    calls_file = tmp_path / "said"
    for name, action in programs.items():
        path = fakes / name
        path.write_text(f"#!{sys.executable}\n" + note.format(str(calls_file)) + action)
        path.chmod(0o755)
    (tmp_path / "tmp").mkdir()
    env = {**env, "PATH": f"{fakes}:{os.environ['PATH']}"}
    env["TMPDIR"] = str(tmp_path / "tmp")
    completed = subprocess.run(
        ["bash", "-c", text], cwd=tmp_path, env=env, capture_output=True, check=False
    )
    assert completed.returncode == code, completed.stderr
    assert {p.name for p in tmp_path.iterdir()} == {"bin", "said", "tmp"}
    assert not [*(tmp_path / "tmp").iterdir()]
    calls = [json.loads(line) for line in calls_file.read_text().splitlines()]
    return [[completed.stderr.decode()]] * bool(code) + calls


def words(target: str, trial: trials.Trial, python: str, runs: str) -> list[str]:
    return [*trials.command(trial, python, runs)]


@cases.each("planned", [TRIALS[:1], nasty("tpu_pod")])
def test_the_hosts_of_a_slice_get_the_commands_word_by_word(planned, tmp_path):
    active = PRINT_WHEN_DESCRIBED.format("ACTIVE")
    calls = run(script("tpu_pod", planned), tmp_path, gcloud=active, git="")
    sent = [words[-1].removeprefix("--command=") for words in calls if "ssh" in words]
    assert len(sent) == 2
    got = shlex.split(sent[1].removeprefix("cd jbias && "))
    assert got == words("tpu_pod", planned[0], "../env/bin/python", "gs://bucket/runs")
    assert calls[-1][:4] == ["compute", "tpus", "queued-resources", "delete"]


def test_a_preempted_resource_is_requested_again(tmp_path):
    """A resource that is suspended, then unknown, is requested again."""
    states = ["SUSPENDED", "", "ACTIVE"]
    action = (
        "told = open('said').read().count('describe')\n"
        f"print({states!r}[min(told, 3) - 1] if 'describe' in sys.argv else '')\n"
    )
    calls = run(script("tpu_pod"), tmp_path, gcloud=action, git="")
    did = [
        call[3] for call in calls if call[:3] == ["compute", "tpus", "queued-resources"]
    ]
    done = [word for word in did if word != "describe"]
    assert done == ["delete", "create", "delete"]


FAILS = (
    PRINT_WHEN_DESCRIBED.format("ACTIVE")
    + "sys.exit(any(word in sys.argv for word in {!r}))\n"
)


@cases.each("step", ["scp", "ssh"])
def test_a_slice_is_released_after_any_failure(step, tmp_path):
    failing = FAILS.format([step])
    _, *calls = run(script("tpu_pod"), tmp_path, 1, gcloud=failing, git="")
    assert [step in call for call in calls].count(True) == 1  # No run was begun.
    assert calls[-1][:4] == ["compute", "tpus", "queued-resources", "delete"]


def test_slices_that_were_not_released_are_named(tmp_path):
    failing = FAILS.format(["scp", "delete"])
    (messages,), *_ = run(script("tpu_pod"), tmp_path, 1, gcloud=failing, git="")
    assert (
        "costs money; delete it yourself:\ngcloud compute tpus queued-res" in messages
    )
    command = shlex.split(messages.splitlines()[-1])
    assert command[-3:] == ["jbias", "--zone=us-east5-b", "--force"]


def test_without_a_slice_nothing_is_released(tmp_path):
    refused = "sys.exit('create' in sys.argv)\n"
    (messages,), *calls = run(script("tpu_pod"), tmp_path, 1, gcloud=refused, git="")
    assert [call[3] for call in calls] == ["describe", "create"] and not messages


def test_the_state_of_a_requested_slice_is_shown_each_minute(tmp_path):
    action = (
        "told = open('said').read().count('describe')\n"
        "print('ACTIVE' if told > 4 else 'WAITING_FOR_RESOURCES')\n"
        "sys.exit('scp' in sys.argv)\n"
    )
    (messages,), *calls = run(
        script("tpu_pod"), tmp_path, 1, gcloud=action, git="", sleep=""
    )
    state = "jbias is WAITING_FOR_RESOURCES, waited for"
    assert messages.splitlines() == [f"{state} {n} min" for n in (0, 1)]
    assert calls.count(["30"]) == 4 and calls[-1][3] == "delete"


@cases.each("planned", [TRIALS, nasty("xpk")])
def test_xpk_gets_flags_that_it_has(planned, tmp_path):
    calls = run(script("xpk", planned), tmp_path, xpk="")
    assert len(calls) == len(planned)
    for call, trial in zip(calls, planned, strict=True):
        assert call[:2] == ["workload", "create"]
        flags = dict(flag.split("=", 1) for flag in call[2:])
        assert {*flags} <= {*FORMATS["xpk_flags"]}
        command = words("xpk", trial, "python", "gs://bucket/runs")
        assert shlex.split(flags["--command"]) == command
        assert re.fullmatch("[a-z][a-z0-9-]{1,39}", flags["--workload"])


def without_nulls(tree):
    """Remove nulls, as Kubernetes does."""
    if isinstance(tree, dict):
        return {k: without_nulls(v) for k, v in tree.items() if v is not None}
    return [*map(without_nulls, tree)] if isinstance(tree, list) else tree


def test_the_jobset_of_xpk_is_queued_by_kueue():
    """Oracle: xpk's output for the first frozen command; tests/oracles/launchers.py."""
    jobset, command = (
        without_nulls(FORMATS["jobset"]),
        words("xpk", TRIALS[0], "python", ""),
    )
    for number, rule in enumerate(jobset["spec"]["failurePolicy"]["rules"]):
        rule["name"] = f"failurePolicyRule{number}"  # JobSet's own webhook gives it.
    check = jsonschema.Draft202012Validator(FORMATS["jobset_schema"])
    check.validate(jobset)
    assert jobset["metadata"]["name"] == trials.label(TRIALS[0])
    assert "kueue.x-k8s.io/queue-name" in jobset["metadata"]["labels"]
    (job,) = jobset["spec"]["replicatedJobs"]
    spec = job["template"]["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    assert shlex.join(command[:-1]) in container["command"][-1]
    # As many processes as xpk starts of a run, by the rule that refuses run.devices.
    assert spec["parallelism"] == trials.host_count("v6e-8", chips=4) == 2
    (rule,) = spec["podFailurePolicy"]["rules"]
    again = rule["onExitCodes"]["values"]  # All others fail the JobSet for good.
    assert {signals.EXIT_LOST, 130, 143, 128 + 9} <= {*again}
    assert not {*local.ENDED_CODES, 1, 2} & {*again}
    spec["parallelism"] = "two"
    with pytest.raises(jsonschema.ValidationError):
        check.validate(jobset)


@cases.each("letter", ["\n", "\r", "\x1b", "\0", "\x85", "\u2028"])
def test_xpk_takes_no_line_breaks_nor_control_characters(letter):
    with pytest.raises(ValueError, match="--on=xpk: command must be one line without"):
        script("xpk", [TRIALS[0]._replace(arguments=(f"--config=a{letter}b",))])
    with pytest.raises(ValueError, match="--on=xpk: docker-image must be one line"):
        script("xpk", image=f"a{letter}b")


@cases.each("pool", ["", "gpus"])
@cases.each("planned", [TRIALS, nasty("sky")])
def test_skypilot_gets_a_task_that_its_schema_allows(planned, pool, tmp_path):
    task = sky_task(planned, pool=pool)
    check = jsonschema.Draft202012Validator
    check(FORMATS["sky_task"]).validate(task)
    check(FORMATS["sky_resources"]).validate(task["resources"])
    assert ("setup" in task) == ("file_mounts" in task) == (not pool)
    if not pool:
        check(FORMATS["sky_storage"]).validate(task["file_mounts"]["/runs"])
    text = script("sky", planned, pool=pool)
    assert yaml.safe_load(text) == task
    assert text.startswith(f"# sky jobs launch --num-jobs={len(planned)}")
    for rank, trial in enumerate(planned):
        folder = tmp_path / str(rank)
        folder.mkdir(exist_ok=True)
        env = {**os.environ, "SKYPILOT_JOB_RANK": str(rank)}
        calls = run(task["run"], folder, env=env, python="")
        assert calls == [words("sky", trial, "python", "/runs")[1:]]
        shutil.rmtree(folder)


@pytest.fixture
def skypilot(monkeypatch):
    """Replacement of SkyPilot's Python API that records its calls."""
    calls = {}
    launch = lambda task, **options: calls.update(task=task, **options) or "request"
    module = types.ModuleType("sky")
    module.__spec__ = importlib.machinery.ModuleSpec("sky", None)
    module.jobs = types.SimpleNamespace(launch=launch)
    module.Task = types.SimpleNamespace(from_yaml_config=dict)
    module.get = lambda request: ([7, 8], None)
    monkeypatch.setitem(sys.modules, "sky", module)
    return types.SimpleNamespace(calls=calls, module=module)


@cases.each("pool", ["", "gpus"])
def test_all_trials_are_one_call_of_skypilot(pool, skypilot):
    options, messages = runner.parse_executor(OPTIONS["sky"])[1], []
    sky.start(TRIALS, {**options, "pool": pool}, messages.append)
    assert skypilot.calls.pop("task") == sky_task(pool=pool)
    assert skypilot.calls == {"pool": pool or None, "num_jobs": 2}
    assert messages == ["managed jobs: [7, 8]; sky jobs queue shows them"]


def test_errors_of_skypilot_are_reported(skypilot):
    def fails(request):
        raise RuntimeError("no cloud is enabled")

    skypilot.module.get = fails
    options = runner.parse_executor(OPTIONS["sky"])[1]
    with pytest.raises(ValueError, match="--on=sky: RuntimeError: no cloud is enabled"):
        sky.start(TRIALS, options, print)


def test_skypilot_s_schema_would_refuse():
    task = sky_task()
    with pytest.raises(jsonschema.ValidationError):
        check = jsonschema.Draft202012Validator(FORMATS["sky_task"])
        check.validate({**task, "command": "x"})


@cases.each(
    ("target", "changed"),
    [
        ("tpu_pod", ("zone", "type", "runtime", "name", "python")),
        ("xpk", ("cluster", "zone", "project", "image", "type")),
    ],
)
def test_options_are_quoted_too(target, changed, tmp_path):
    values = dict.fromkeys(changed, "x'; touch pwned; $(touch pwned) \"")
    text = script(target, **values)
    shellcheck(text, tmp_path, "warning")
    (tmp_path / "script.sh").unlink()
    run(text, tmp_path, gcloud=PRINT_WHEN_DESCRIBED.format("ACTIVE"), git="", xpk="")


@cases.each(
    ("target", "changed", "message"),
    [
        ("slurm", dict(nodes=2), "slurm:nodes=2"),
        ("tpu_pod", {}, "tpu_pod:type=v6e-32"),
        ("xpk", dict(slices=2, type="v6e-4"), "xpk:type=v6e-4"),
        ("xpk", {}, "xpk:type=v6e-8"),
        ("sky", dict(accelerators="tpu-v5p-32"), "sky:accelerators=tpu-v5p-32"),
    ],
)
def test_a_run_that_would_leave_machines_out_is_refused(target, changed, message):
    script(target, **changed)
    planned = [TRIALS[0]._replace(config={"run": {"devices": 1}})]
    with pytest.raises(
        ValueError, match=f"--on={message}: config.run.devices must be 0"
    ):
        script(target, planned, **changed)


def test_a_slice_trains_one_run():
    options = runner.parse_executor(OPTIONS["tpu_pod"])[1]
    with pytest.raises(ValueError, match="--on=tpu_pod: trains one run, got 2 trials"):
        tpu_pod.script(TRIALS, options)


def test_one_machine_may_leave_devices_out():
    planned = [TRIALS[0]._replace(config={"run": {"devices": 1}})]
    for target, changed in (("slurm", {}), ("tpu_pod", {"type": "v6e-8"})):
        script(target, planned, **changed)
    for target, changed in (("xpk", {"type": "v6e-4"}), ("sky", {})):
        script(target, planned, **changed)


@cases.each(
    ("kind", "hosts"),
    [("v6e-4", 1), ("v6e-8", 2), ("v5litepod-16", 4), ("v5p-8", 1), ("v4-16", 2)],
)
def test_hosts_of_gke_have_four_chips(kind, hosts):
    """Oracle: UserFacingNameToSystemCharacteristics of xpk 1.16."""
    assert trials.host_count(kind, chips=4) == hosts


@cases.each(
    ("accelerator", "hosts"),
    [
        *(("v6e-8", 1), ("v5litepod-16", 2), ("tpu-v6e-32", 4), ("v4-8", 1)),
        *(("H100:8", 1), ("RTX-4090", 1), ("A100-80GB:8", 1)),
    ],
)
def test_slices_of_more_than_eight_chips_have_several_hosts(accelerator, hosts):
    assert trials.host_count(accelerator) == hosts


def test_a_run_on_several_nodes_has_all_their_gpus():
    text = script("slurm", nodes=2, gpus=4)
    assert "\n#SBATCH --nodes=2\n" in text and "\n#SBATCH --ntasks-per-node=1\n" in text
    assert "\nexport JAX_LOCAL_DEVICE_IDS=0,1,2,3\n" in text
    assert "JAX_LOCAL" not in script("slurm", gpus=4)  # There jax finds them.
    assert " --kill-on-bad-exit=0 " in text


def test_labels_are_valid_for_clouds_and_end_with_the_hash():
    names = [
        "erm-shapes-01234567",
        "Infodrop+erm-shapes+folder+x-shapes-89abcdef",
        "1-2",
    ]
    for name in names:
        label = trials.label(TRIALS[0]._replace(name=name))
        assert re.fullmatch("[a-z][a-z0-9-]{1,39}", label)
        assert label.endswith(name.rpartition("-")[2])


def test_the_help_names_every_place_and_option():
    text = sweep.__doc__.partition("--on=TARGET")[2].partition("Exit codes")[0]
    places = dict(re.findall(r"(?ms)^(\w+): (.*?)(?=^\w+: |\Z)", text))
    assert {*places} == {*runner.EXECUTORS}
    for name, description in places.items():
        words = {*re.findall(r"\w+", description)}
        assert {*runner.EXECUTORS[name].OPTIONS} <= words, name


@cases.each(
    ("text", "message"),
    [
        ("slrm", "--on: unknown 'slrm'; did you mean 'slurm'"),
        ("slurm:gpu=1", "--on=slurm: unknown 'gpu'; did you mean 'gpus'"),
        ("slurm:minutes=soon", "minutes must be a whole number"),
        ("sky", "--on=sky: bucket is missing"),
        ("slurm:qos=a\nb", "--on=slurm: qos must be one line, got 'a\\nb'"),
    ],
)
def test_invalid_places_are_refused(text, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        runner.parse_executor(text)
