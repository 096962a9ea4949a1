"""Progress of long work: counts, rate, and activities that do not count for the rate."""

import threading

from etils import epath

from jbias.runtime import console


def test_untimed_work_does_not_change_the_rate(monkeypatch):
    """Twenty images in ten seconds, after half an hour of compiling."""
    clock, lines = [0.0], []
    monkeypatch.setattr(console.time, "monotonic", lambda: clock[0])
    with console.count_images(lines.append, "net", 100) as (advance, untimed):
        with untimed():
            clock[0] += 1800
        advance(0)  # No rate is known yet.
        assert not lines
        advance(40, counted=False)
        clock[0] += 10
        advance(20)
    assert lines == ["net: 60/100 images, 2 images/s, ETA 00:20"]


def test_long_untimed_work_is_named():
    lines, has_line = [], threading.Event()

    def say(line):
        lines.append(line)
        has_line.set()

    with console.count_images(say, "net", 9, patience=0.01) as (advance, untimed):
        advance(3)
        with untimed():
            assert has_line.wait(60)
        assert lines == ["net: 3/9 images, compiling ..."]
    with (
        console.count_images(say, "net", 9, patience=60) as (_, untimed),
        untimed("looking"),
    ):
        pass
    assert len(lines) == 1
    assert not any(
        isinstance(thread, threading.Timer) for thread in threading.enumerate()
    )


def test_a_wait_is_shown_with_its_duration():
    lines, has_lines = [], threading.Event()

    def say(line):
        lines.append(line)
        if len(lines) == 3:
            has_lines.set()

    with console.announce_slow(say, "compiling", every=0.01):
        assert has_lines.wait(60)
    assert lines[:3] == ["compiling ...", *["compiling: 00:00 so far ..."] * 2]
    count = len(lines)
    with console.announce_slow(lines.append, "compiling"):
        pass
    assert lines[count:] == ["compiling ..."]


def test_the_rate_after_a_restart_counts_only_later_steps(monkeypatch):
    """A second program is compiled after 600 steps; steps before it do not count."""
    clock, speeds = 0.0, []
    monkeypatch.setattr(console.time, "monotonic", lambda: clock)
    progress = console.Progress(
        lambda line: None,
        total=1000,
        done=0,
        steps_per_epoch=10.0,
        images_per_step=8,
        seconds=1.0,
        beat=speeds.append,
        plain=True,
    )
    clock = 6.0
    progress.update(600, "")
    clock = 30.0
    progress.restart()
    progress.update(608, "", counted=False)
    clock = 31.0
    progress.update(708, "")
    progress.close()
    assert [round(speed.rate, 6) for speed in speeds] == [100.0, 100.0]
    assert round(speeds[-1].seconds_left, 6) == 2.92


def test_notes_of_several_runs_are_printed_once_and_logged_always(tmp_path, capsys):
    logs = [console.logger(epath.Path(tmp_path / name)) for name in ("a", "b")]
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    with console.printing_notes_once():
        for log in logs:
            log("128 images")
            log(console.LogEvent("finished", "finished"))
    assert capsys.readouterr().err.splitlines() == [
        "128 images",
        "finished",
        "finished",
    ]
    logs[0]("128 images")
    assert capsys.readouterr().err == "128 images\n"
    for folder, count in (("a", 2), ("b", 1)):
        text = (tmp_path / folder / "log.txt").read_text()
        assert text.count("128 images") == count
