"""Progress of long work: counts, rate, and activities that the rate leaves out."""

import threading

from jbias.runtime import console


def test_what_is_aside_has_no_part_in_the_rate(monkeypatch):
    """Twenty images in ten seconds, after half an hour of compiling."""
    now, lines = [0.0], []
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    with console.count_images(lines.append, "net", 100) as (advance, untimed):
        with untimed():
            now[0] += 1800
        advance(0)  # Nothing is known of the rate yet.
        assert not lines
        advance(40, counted=False)
        now[0] += 10
        advance(20)
    assert lines == ["net: 60/100 images, 2 images/s, ETA 00:20"]


def test_what_takes_long_is_named_while_it_does():
    lines, has_line = [], threading.Event()

    def say(line):
        lines.append(line)
        has_line.set()

    with console.count_images(say, "net", 9, patience=0.01) as (tell, aside):
        tell(3)
        with aside():
            assert has_line.wait(60)
        assert lines == ["net: 3/9 images, compiling ..."]
    with (
        console.count_images(say, "net", 9, patience=60) as (_, aside),
        aside("looking"),
    ):
        pass
    assert len(lines) == 1
    assert not any(
        isinstance(thread, threading.Timer) for thread in threading.enumerate()
    )


def test_who_waits_is_told_for_how_long():
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
