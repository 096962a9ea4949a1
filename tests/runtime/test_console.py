"""Progress of long work: counts, rate, and activities that the rate leaves out."""

import threading

from jbias.runtime import console


def test_what_is_aside_has_no_part_in_the_rate(monkeypatch):
    """Twenty images in ten seconds, after half an hour of compiling."""
    now, said = [0.0], []
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    with console.count_images(said.append, "net", 100) as (tell, aside):
        with aside():
            now[0] += 1800
        tell(0)  # Nothing is known of the rate yet.
        assert not said
        tell(40, counted=False)
        now[0] += 10
        tell(20)
    assert said == ["net: 60/100 images, 2 images/s, ETA 00:20"]


def test_what_takes_long_is_named_while_it_does():
    said, told = [], threading.Event()

    def say(line):
        said.append(line)
        told.set()

    with console.count_images(say, "net", 9, patience=0.01) as (tell, aside):
        tell(3)
        with aside():
            assert told.wait(60)
        assert said == ["net: 3/9 images, compiling ..."]
    with (
        console.count_images(say, "net", 9, patience=60) as (_, aside),
        aside("looking"),
    ):
        pass
    assert len(said) == 1
    assert not any(isinstance(one, threading.Timer) for one in threading.enumerate())


def test_who_waits_is_told_for_how_long():
    said, told = [], threading.Event()

    def say(line):
        said.append(line)
        if len(said) == 3:
            told.set()

    with console.announce_slow(say, "compiling", every=0.01):
        assert told.wait(60)
    assert said[:3] == ["compiling ...", *["compiling: 00:00 so far ..."] * 2]
    count = len(said)
    with console.announce_slow(said.append, "compiling"):
        pass
    assert said[count:] == ["compiling ..."]
