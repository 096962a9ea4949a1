"""Waits: what an endpoint asks for, the backoff, and the pace of requests."""

import asyncio
import time

import numpy as np
import pytest

from jbias.asking import client, pacing

NOW = 784_111_777.0  # Sun, 06 Nov 1994 08:49:37 GMT, the example of RFC 9110.


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "120"}, 120.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "Sun, 06 Nov 1994 08:50:07 GMT"}, 30.0),
        ({"retry-after": "Sun, 06 Nov 1994 08:49:07 GMT"}, 0.0),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
    ],
)
def test_retry_after_is_read_in_all_its_forms(headers, seconds):
    assert pacing.retry_after(headers, time_now=NOW) == seconds


def test_backoff_doubles_up_to_a_minute_and_is_at_most_halved():
    assert [pacing.backoff(n, 0.0) for n in range(1, 9)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert pacing.backoff(10**6, 1.0) == 30


@pytest.mark.parametrize(
    ("status", "code", "action"),
    [
        (429, "rate_limit_exceeded", client.BUSY),
        (429, "insufficient_quota", client.STOP),
        *((status, "", client.RETRY) for status in (408, 409, 500, 502, 503, 504, 529)),
        *((status, "", client.STOP) for status in (301, 307, 401, 402, 403, 404)),
        *((status, "", client.IMAGE) for status in (400, 413, 415, 422)),
    ],
)
def test_every_status_has_its_action(status, code, action):
    assert client.action_of(status, code) == action


def test_turns_of_several_tasks_keep_the_pace_and_the_pause():
    async def take_turns():
        stop, times = asyncio.Event(), []
        pacer = pacing.Pacer(1200)

        async def take():
            await pacer.turn(stop)
            times.append(time.time())

        pacer.pause(0.2)
        start = time.time()
        await asyncio.gather(*(take() for _ in range(6)))
        return start, times

    start, times = asyncio.run(take_turns())
    assert times[0] >= start + 0.2 - 1e-3
    assert np.diff(times).min() >= 0.05 - 2e-3
