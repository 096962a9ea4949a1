"""The command `jbias ask` against a local server: its log is compared with the files."""

import csv
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from etils import epath

import jbias
from jbias import ask
from jbias.answers import observers, parsing, tables
from jbias.asking import ledger, stimuli
from jbias.runtime import workdir_lock
from tests import chat_server
from tests.asking import stub_images

Reply = chat_server.Reply


pytestmark = pytest.mark.usefixtures("endpoint_environment")


def write(folder: pathlib.Path, count: int) -> dict[str, bytes]:
    return stub_images.write(folder / "stimuli", stub_images.draw_names(count))


def lines(folder: pathlib.Path, name: str) -> list[dict]:
    text = (folder / "out" / name).read_text()
    return [json.loads(line) for line in text.splitlines()]


def sent(folder: pathlib.Path) -> list[dict]:
    requests = lines(folder, ledger.REQUESTS)
    return [line for line in requests if line["event"] == "sent"]


def table(folder: pathlib.Path) -> dict[str, dict[str, str]]:
    with (folder / "out/decisions.csv").open(newline="") as file:
        return {row["imagename"]: row for row in csv.DictReader(file)}


def shape_letter(question: chat_server.Asked) -> str:
    return chat_server.letter_of(question, stub_images.cues(question.name)[0])


FORMATS = (  # By the name of the class and its letter; and the decided cue.
    ("{letter}", 0),
    ("{letter}.", 1),
    ("({letter})", 0),
    ("{letter}. {name}", 1),
    ("{name}", 0),
    ("The answer is {letter}.", 1),
    ("**{letter}. {name}**\n\nThe image shows a {name}.", 0),
    ("<answer>{letter}</answer>", 1),
    ("**{letter}**\n\nThe other cue, a texture or a shape, is a {other}.", 0),
    ("<think>A {other}. The answer is {other}.</think>\n{letter}", 1),
    ("<think>The answer is {letter}. {name}", None),
    (Reply("I'm sorry, but I can't help with that."), None),
    (Reply(None, refusal="I can't help with that."), None),
    (
        Reply(None, refusal="This image of a cat and no other violates our policy."),
        None,
    ),
    (Reply("The image shows the cat", finish_reason="content_filter"), None),
    (Reply("The skin is that of the cat. However", finish_reason="length"), None),
    (Reply("The answer is H. cat", refusal="policy"), None),
    (Reply("", finish_reason="length"), None),
    (Reply("Looking at the picture, I think that the", finish_reason="length"), None),
    (Reply("", finish_reason="content_filter"), None),
    (Reply("filtered", status=400, code="content_filter"), None),
    (Reply("None of the options."), None),
)


def test_answers_in_planted_formats_are_read_as_planted(tmp_path, capsys):
    images = write(tmp_path, 44)
    planted = {name: FORMATS[i % len(FORMATS)] for i, name in enumerate(images)}

    def answer(question):
        form, cue = planted[question.name]
        if isinstance(form, Reply):
            return form
        names = stub_images.cues(question.name)
        name, other = names if not cue else names[::-1]
        letter = chat_server.letter_of(question, name)
        return form.format(letter=letter, name=name, other=other)

    with chat_server.ChatServer(images, answer=answer) as server:
        assert stub_images.run(tmp_path, server.url) == 0
        assert server.counts == dict.fromkeys(images, 1)
    (observer,) = tables.read(str(tmp_path / "out/decisions.csv"))
    assert observer.name == "vlm"
    decided = dict(zip(observer.images, observer.decision, strict=True))
    for file, (_, cue) in planted.items():
        name = file.partition("/")[2].removesuffix(".png")
        expected = observers.NO_ANSWER
        if cue is not None:
            expected = observer.classes.index(stub_images.cues(file)[cue])
        assert decided[name] == expected, planted[file]
    rows = table(tmp_path)
    by_reason = {row["finish_reason"] for row in rows.values()}
    assert by_reason == {"stop", "length", "content_filter"}
    refused = next(name for name, x in planted.items() if x is FORMATS[12])
    assert rows[refused]["raw_response"] == "[refused] I can't help with that."
    *_, counts, _, measure, card = capsys.readouterr().err.splitlines()
    assert "20 name a class, 24 give no answer" in counts
    assert measure == f"next: jbias measure {tmp_path / 'out/decisions.csv'}"
    assert card.startswith("no card yet: 20 decisions are for either cue")


def test_the_table_is_measured_with_the_planted_shape_bias(tmp_path):
    images = write(tmp_path, 20)
    is_shape = {name: i < 13 for i, name in enumerate(images)}

    def answer(question):
        shape, texture = stub_images.cues(question.name)
        name = shape if is_shape[question.name] else texture
        return chat_server.letter_of(question, name)

    with chat_server.ChatServer(images, answer=answer) as server:
        assert stub_images.run(tmp_path, server.url) == 0
    measured = jbias.measure(
        str(tmp_path / "out/decisions.csv"), out=str(tmp_path / "measured")
    )
    assert measured.shape_bias == 13 / 20
    assert measured.shape_bias.reader == f"parser {parsing.VERSION}"


def test_every_request_is_in_the_ledger_and_nothing_is_asked_twice(tmp_path):
    images = write(tmp_path, 12)
    first, second, third, fourth, *_ = images
    planned = {
        first: [Reply("busy", status=429), Reply("busy", status=503)],
        second: [Reply("A", missing=30), Reply("A", body=b"<html>hello</html>")],
        third: [Reply("A", drip_seconds=0.05)],
        fourth: [Reply("A", wait_seconds=3.0)],
    }
    with chat_server.ChatServer(images, answer=shape_letter, planned=planned) as server:
        assert stub_images.run(tmp_path, server.url, "--timeout=1") == 0
        # At most one whole reply is used for an image; slow ones are cut off.
        requests = [question.name for question in server.requests]
        assert server.counts == dict.fromkeys(images, 1) | {
            first: 3,
            second: 3,
            third: 2,
            fourth: 2,
        }
        assert (
            server.max_open <= 4 + 2
        )  # The server still sends the two that are cut off.
        assert sorted(line["image"] for line in sent(tmp_path)) == sorted(requests)
        numbers = [line["request"] for line in sent(tmp_path)]
        assert numbers == list(range(1, len(requests) + 1))
        failed = [x for x in lines(tmp_path, ledger.REQUESTS) if x["event"] == "failed"]
        assert len(failed) == len(requests) - len(images)
        # Statuses cost nothing; replies that were cut off may have cost all.
        free = {line["image"] for line in failed if not line["tokens"]}
        assert free == {first}
        old_files = [x.read_bytes() for x in sorted((tmp_path / "out").iterdir())]
        assert stub_images.run(tmp_path, server.url) == 0
        assert len(server.requests) == len(requests)
        assert [
            x.read_bytes() for x in sorted((tmp_path / "out").iterdir())
        ] == old_files


def test_a_budget_of_requests_is_kept_to_the_request(tmp_path, capsys):
    images = write(tmp_path, 10)
    planned = {name: [Reply("oops", status=500)] for name in [*images][:3]}
    with chat_server.ChatServer(images, answer=shape_letter, planned=planned) as server:
        assert stub_images.run(tmp_path, server.url, "--max-requests=7") == 1
        assert len(server.requests) == 7
        assert "a larger budget continues" in capsys.readouterr().err
        assert stub_images.run(tmp_path, server.url, "--max-requests=7") == 1
        assert len(server.requests) == 7
        assert stub_images.run(tmp_path, server.url, "--max-requests=13") == 0
        assert len(server.requests) == 13


def test_a_budget_of_tokens_is_not_exceeded(tmp_path):
    """Each request may take 100 + 20 tokens and takes 105; none is sent that may exceed 700."""
    images = write(tmp_path, 12)
    args = ("--answer-tokens=20", "--tokens-per-image=0", "--max-tokens=700")
    with chat_server.ChatServer(images, answer=shape_letter) as server:
        assert stub_images.run(tmp_path, server.url, *args) == 1
        assert len(server.requests) == 6  # 5 * 105 + 120 <= 700 < 6 * 105 + 120.
        assert sum(line["tokens"] for line in lines(tmp_path, ledger.ANSWERS)) == 630


@pytest.mark.parametrize("tokens", [(5000, 5), (100, 4905)])
def test_tokens_above_the_estimate_count_before_the_next_request(tmp_path, tokens):
    """The first request is alone; the endpoint's count then replaces the estimate of 120."""
    images = write(tmp_path, 12)
    args = ("--answer-tokens=20", "--tokens-per-image=0", "--max-tokens=16000")
    with chat_server.ChatServer(
        images, answer=lambda question: Reply(shape_letter(question), tokens=tokens)
    ) as server:
        for _ in range(2):
            assert stub_images.run(tmp_path, server.url, *args) == 1
            assert len(server.requests) == 3  # 3 * 5,020 <= 16,000 < 4 * 5,020.
        assert server.requests[1].time > server.requests[0].time
    spent = sum(line["tokens"] for line in lines(tmp_path, ledger.ANSWERS))
    assert spent == 3 * sum(tokens) <= 16_000


def test_a_reply_that_exceeds_a_budget_of_tokens_is_alone_if_it_is_an_early_one(
    tmp_path,
):
    """Small counts first, then large ones: one reply exceeds the budget, not --parallel=16."""
    images = write(tmp_path, 20)

    def answer(question):
        tokens = (100, 5) if len(server.requests) == 1 else (20_000, 5)
        return Reply(shape_letter(question), tokens=tokens, wait_seconds=0.05)

    args = ("--max-tokens=3000", "--parallel=16", "--tokens-per-image=0")
    with chat_server.ChatServer(images, answer=answer) as server:
        assert stub_images.run(tmp_path, server.url, *args) == 1
        assert len(server.requests) == 2


def test_requests_after_which_a_proxy_gave_up_count_their_estimate(tmp_path):
    """The server behind it may have done the work; other statuses cost nothing."""
    images = write(tmp_path, 4)
    statuses = (502, 504, 524, 500)
    planned = {
        name: [Reply("gone", status=status)]
        for name, status in zip(images, statuses, strict=True)
    }
    with chat_server.ChatServer(images, answer=shape_letter, planned=planned) as server:
        assert stub_images.run(tmp_path, server.url) == 0
    failed = [x for x in lines(tmp_path, ledger.REQUESTS) if x["event"] == "failed"]
    by_name = dict(zip(images, statuses, strict=True))
    charged = {by_name[line["image"]] for line in failed if line["tokens"]}
    assert len(failed) == 4 and charged == {502, 504, 524}


def test_an_answer_with_an_error_is_asked_for_again(tmp_path):
    """OpenRouter sends the error of a provider in the answer, with the status 200."""
    images = write(tmp_path, 3)

    def broken(words, **fields):
        message = {"role": "assistant", "content": words, "refusal": None}
        return Reply(fields={"choices": [{"index": 0, "message": message, **fields}]})

    error = {"code": 502, "message": "provider disconnected"}
    replies = (
        broken("", finish_reason="error", error=error),
        broken("The texture is that of a cat", finish_reason="stop", error=error),
        broken("The texture is that of a cat", finish_reason="error"),
    )
    planned = {name: [reply] for name, reply in zip(images, replies, strict=True)}
    with chat_server.ChatServer(images, answer=shape_letter, planned=planned) as server:
        assert stub_images.run(tmp_path, server.url) == 0
        assert server.counts == dict.fromkeys(images, 2)
    stored = lines(tmp_path, ledger.ANSWERS)
    assert [line["finish_reason"] for line in stored] == ["stop"] * 3
    failed = [x for x in lines(tmp_path, ledger.REQUESTS) if x["event"] == "failed"]
    assert len(failed) == 3 and all(line["tokens"] for line in failed)


def test_nothing_is_sent_while_the_endpoint_asks_to_wait(tmp_path):
    images = write(tmp_path, 12)
    busy = Reply("slow down", status=429, headers={"Retry-After": "1"})
    planned = {[*images][5]: [busy]}
    times = []

    def answer(question):
        times.append(question.time)
        return shape_letter(question)

    with chat_server.ChatServer(images, answer=answer, planned=planned) as server:
        assert stub_images.run(tmp_path, server.url, "--parallel=3") == 0
        (refused,) = [x for x in server.requests if x.time not in times]
    # Requests that were on their way arrive in the first moments.
    assert not [x for x in times if refused.time + 0.3 < x < refused.time + 1.0]
    assert max(times) >= refused.time + 1.0


def test_requests_per_minute_are_kept_also_by_the_next_run(tmp_path):
    images = write(tmp_path, 7)
    args = ("--requests-per-minute=600", "--parallel=7")
    with chat_server.ChatServer(images, answer=shape_letter) as server:
        assert stub_images.run(tmp_path, server.url, *args, "--limit=4") == 0
        assert stub_images.run(tmp_path, server.url, *args) == 0
    times = [line["time"] for line in sent(tmp_path)]
    assert len(times) == 7
    assert np.diff(times).min() >= 0.1 - 1e-3


def test_a_larger_limit_continues_a_smaller_one(tmp_path):
    images = write(tmp_path, 9)
    with chat_server.ChatServer(images, answer=shape_letter) as server:
        assert stub_images.run(tmp_path, server.url, "--limit=3") == 0
        few = {question.name for question in server.requests}
        assert len(few) == len(table(tmp_path)) == 3
        assert stub_images.run(tmp_path, server.url, "--limit=6") == 0
        assert server.counts.total() == 6 and few < {*server.counts}


@pytest.mark.parametrize(
    ("reply", "num_requests", "words"),
    [
        (Reply("wrong key", status=401), 1, "401: wrong key"),
        (Reply("no money", status=429, code="insufficient_quota"), 1, "no money"),
        (Reply("no such field", status=400), 3, "the first 3 images were refused"),
        (Reply("moved", status=302, headers={"Location": "/x"}), 1, "302"),
        (
            Reply("later", status=429, headers={"Retry-After": "3600"}),
            1,
            "asks to wait 3,600 seconds",
        ),
        (Reply("busy", status=429), 20, "after 20 waits"),
    ],
    ids=lambda x: str(getattr(x, "status", "")),
)
def test_a_run_stops_where_no_request_can_help(
    tmp_path, capsys, reply, num_requests, words
):
    images = write(tmp_path, 8)
    with chat_server.ChatServer(images, answer=lambda question: reply) as server:
        assert stub_images.run(tmp_path, server.url, "--parallel=1") == 1
        assert len(server.requests) == num_requests
    assert words in capsys.readouterr().err


def test_an_endpoint_that_is_not_there_is_tried_once(tmp_path, capsys):
    images = write(tmp_path, 3)
    with chat_server.ChatServer(images) as server:
        url = server.url
    assert stub_images.run(tmp_path, url, "--parallel=1") == 1
    assert "cannot be reached" in capsys.readouterr().err
    assert len(sent(tmp_path)) == 1


def test_a_run_stops_after_five_images_in_a_row_without_an_answer(tmp_path, capsys):
    images = write(tmp_path, 12)

    def answer(question):
        is_first = len(server.requests) == 1
        return shape_letter(question) if is_first else Reply("bad", status=422)

    with chat_server.ChatServer(images, answer=answer) as server:
        assert stub_images.run(tmp_path, server.url, "--parallel=1") == 1
        assert len(server.requests) == 6
    assert "5 images in a row have no answer: 422" in capsys.readouterr().err


def test_a_refused_image_is_asked_about_again_only_with_the_flag(tmp_path, capsys):
    """Also if the first image is the refused one; readers count it as an image without answer."""
    images = write(tmp_path, 8)
    folder = stimuli.read(str(tmp_path / "stimuli"))
    first, *_, last = (x.name for x in stimuli.draw(folder.stimuli, seed=0))
    refused = {first: Reply("too large", status=413), last: Reply("bad", status=400)}

    def answer(question):
        return refused.get(question.name) or shape_letter(question)

    with chat_server.ChatServer(images, answer=answer) as server:
        for _ in range(2):
            assert stub_images.run(tmp_path, server.url, "--parallel=1") == 0
            assert server.counts == dict.fromkeys(images, 1)
            error = capsys.readouterr().err
            assert "2 images were refused by the endpoint" in error
            assert f"{first} was refused: 413: too large" in error
        rows = table(tmp_path)
        assert len(rows) == 8 and rows[first]["finish_reason"] == "refused"
        (observer,) = tables.read(str(tmp_path / "out/decisions.csv"))
        assert (observer.decision == observers.NO_ANSWER).sum() == 2
        del refused[last]
        assert stub_images.run(tmp_path, server.url, "--retry-refused") == 0
        assert server.counts == dict.fromkeys(images, 1) | {first: 2, last: 2}
        assert "1 images were refused" in capsys.readouterr().err
        assert table(tmp_path)[last]["finish_reason"] == "stop"
        assert stub_images.run(tmp_path, server.url) == 0
        assert server.counts.total() == 10


def test_refusals_do_not_count_until_there_is_an_answer(tmp_path):
    """They may be due to the request: with the corrected one all images are asked about."""
    images = write(tmp_path, 2)
    with chat_server.ChatServer(
        images, answer=lambda _: Reply("no temperature", status=400)
    ) as server:
        assert stub_images.run(tmp_path, server.url) == 1
        server.answer = shape_letter
        assert stub_images.run(tmp_path, server.url, "--temperature=default") == 0
        assert server.counts == dict.fromkeys(images, 2)
    assert {x["finish_reason"] for x in table(tmp_path).values()} == {"stop"}


def test_a_corrected_command_works_in_the_folder_of_a_wrong_one(tmp_path, capsys):
    """The first answer locks the settings; the requests of the wrong commands count."""
    images = write(tmp_path, 4)
    with chat_server.ChatServer(images) as server:
        closed_url = server.url
    assert stub_images.run(tmp_path, closed_url, "--parallel=1") == 1
    missing = Reply("no such model", status=404)
    with chat_server.ChatServer(images, answer=lambda _: missing) as server:
        wrong = stub_images.run(tmp_path, server.url, "--parallel=1", "--model=typo")
        assert wrong == 1 and "404: no such model" in capsys.readouterr().err
        server.answer = shape_letter
        assert stub_images.run(tmp_path, server.url) == 0
        assert len(server.requests) == 5 and len(sent(tmp_path)) == 6
        stored = json.loads((tmp_path / "out/ask.json").read_text())
        assert (stored["model"], stored["endpoint"]) == ("vlm", server.url)
        # Now the settings are locked.
        assert stub_images.run(tmp_path, server.url, "--model=typo") == 2


def test_busy_replies_do_not_count_as_tries(tmp_path):
    """The statuses 429, and 503 with Retry-After, mean that the endpoint is busy."""
    images = write(tmp_path, 2)
    wait = {"Retry-After": "0.05"}
    busy = [Reply("busy", status=status, headers=wait) for status in (503, 429, 503)]
    planned = dict.fromkeys(images, busy)
    with chat_server.ChatServer(images, answer=shape_letter, planned=planned) as server:
        args = ("--tries=1", "--parallel=1")
        assert stub_images.run(tmp_path, server.url, *args) == 0
        assert server.counts == dict.fromkeys(images, 4)


def test_answers_that_are_cut_off_are_counted_with_the_flag_to_raise(tmp_path, capsys):
    images = write(tmp_path, 3)
    cut = Reply("Let me look at the", finish_reason="length")
    with chat_server.ChatServer(images, answer=lambda _: cut) as server:
        assert stub_images.run(tmp_path, server.url, "--answer-tokens=7") == 0
    error = capsys.readouterr().err
    assert "3 answers are cut off at --answer-tokens=7; raise this limit" in error
    assert {x["raw_response"] for x in table(tmp_path).values()} == {
        f"{cut.text} [cut off]"
    }


def test_reasoning_beside_an_answer_does_not_decide(tmp_path):
    """Reasoning may be in a block, in a field of the message, or in a part of the content."""
    images = write(tmp_path, 6)

    def answer(question):
        shape, texture = (
            chat_server.letter_of(question, name)
            for name in stub_images.cues(question.name)
        )
        number = [*images].index(question.name) % 3
        thought = f"The answer is {texture}."
        segments = [
            {"type": "reasoning", "text": thought},
            {"type": "text", "text": shape},
        ]
        return (
            Reply(f"<think>{thought}</think>{shape}"),
            Reply(shape, message={"reasoning_content": thought}),
            Reply(shape, message={"content": segments}),
        )[number]

    with chat_server.ChatServer(images, answer=answer) as server:
        assert stub_images.run(tmp_path, server.url) == 0
    (observer,) = tables.read(str(tmp_path / "out/decisions.csv"))
    assert (observer.decision == observer.label).all()


def test_many_replies_together_that_the_endpoint_is_busy_are_one_wait(tmp_path):
    """Ten parallel requests are refused three times: 30 replies, which do not stop the run."""
    images = write(tmp_path, 10)
    busy = [Reply("busy", status=429, wait_seconds=0.1)] * 3
    planned = dict.fromkeys(images, busy)
    with chat_server.ChatServer(images, answer=shape_letter, planned=planned) as server:
        assert stub_images.run(tmp_path, server.url, "--parallel=10") == 0
        assert server.counts == dict.fromkeys(images, 4)


def test_an_image_that_fails_is_left_out_and_asked_about_by_the_next_run(
    tmp_path, capsys
):
    images = write(tmp_path, 5)
    bad = [*images][2]
    planned = {bad: [Reply("oops", status=500)] * 3}
    with chat_server.ChatServer(images, answer=shape_letter, planned=planned) as server:
        assert stub_images.run(tmp_path, server.url, "--tries=3") == 1
        assert server.counts[bad] == 3 and len(table(tmp_path)) == 4
        assert f"{bad} has no answer: 500: oops" in capsys.readouterr().err
        assert stub_images.run(tmp_path, server.url, "--tries=3") == 0
        assert server.counts[bad] == 4 and len(table(tmp_path)) == 5


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--endpoint=http://me:pw@host/v1"], "must have no user, password"),
        (["--endpoint=http://host/v1?key=1"], "must have no user, password"),
        (["--endpoint=host:8000"], "must be the address"),
        (["--endpoint=http://[::1"], "must be the address"),
        (["--endpoint=http://host:x/v1"], "must be the address"),
        (["--endpoint=http://api.openai.com/v1"], "must begin with https://"),
        (
            ["--endpoint=http://host/v1", "--key-variable=OPENAI_API_KEY"],
            "must begin with https://",
        ),
        (["--key-variable=NOT_SET"], "export NOT_SET=..."),
        ([f'--extra={{"user": "{stub_images.KEY}"}}'], "must not have the key"),
        (['--extra={"model": "x"}'], "must not have 'model'"),
        (["--extra=x"], "must be a JSON object"),
        (["--temperature=3"], "a number from 0 to 2"),
        (["--stimuli=nowhere"], "existing folder"),
    ],
)
def test_invalid_arguments_are_refused_before_anything_is_sent(
    tmp_path, capsys, args, words
):
    write(tmp_path, 2)
    arguments = stub_images.arguments(tmp_path, "http://127.0.0.1:9/v1", *args)
    try:
        code = ask.main(arguments)
    except SystemExit as stop:
        code = stop.code
    error = capsys.readouterr().err
    assert code == 2 and words in error and len(error.splitlines()) == 1
    assert "pw@" not in error and stub_images.KEY not in error
    assert not (tmp_path / "out").exists()


def test_another_question_needs_another_folder(tmp_path, capsys):
    images = write(tmp_path, 3)
    with chat_server.ChatServer(images, answer=shape_letter) as server:
        assert stub_images.run(tmp_path, server.url) == 0
        for flag in ("--seed=1", "--prompt=caption", "--order=fixed", "--detail=low"):
            assert stub_images.run(tmp_path, server.url, flag) == 2
            assert "answers to the same question" in capsys.readouterr().err
        (tmp_path / "stimuli" / next(iter(images))).write_bytes(images[[*images][1]])
        assert stub_images.run(tmp_path, server.url) == 2
        assert "images_sha256" in capsys.readouterr().err
        assert len(server.requests) == 3


def test_a_dry_run_says_requests_and_tokens_and_does_nothing(
    tmp_path, capsys, monkeypatch
):
    images = write(tmp_path, 10)
    monkeypatch.setitem(sys.modules, "openai", None)  # Not needed.
    monkeypatch.delenv("OPENAI_API_KEY")
    with chat_server.ChatServer(images, answer=shape_letter) as server:
        args = ("--dry-run", "--limit=8", "--tokens-per-image=1000", "--seed=3")
        args += ("--max-requests=5", "--answer-tokens=10")
        assert stub_images.run(tmp_path, server.url, *args) == 0
        assert not server.requests and not (tmp_path / "out").exists()
    text = capsys.readouterr().out
    assert "requests  8," in text
    # A question with all 16 options has 249 characters: 63 tokens.
    assert "about 8,504 of input, at most 80 of output" in text
    assert "--max-requests=5: 5 left for 8, may not be enough" in text
    assert "nothing was sent or written" in text


def test_a_request_is_the_published_one_for_openai_and_others(tmp_path):
    images = write(tmp_path, 2)
    with chat_server.ChatServer(images, answer=shape_letter) as server:
        args = ("--order=fixed", "--detail=low", '--extra={"seed": 42}')
        assert stub_images.run(tmp_path, server.url, *args) == 0
        fields = dict(server.requests[0].fields)
    (message,) = fields.pop("messages")
    text, picture = message["content"]
    assert list(server.requests[0].options.values()) == sorted(
        server.requests[0].options.values()
    )
    assert text["text"].startswith(
        "Which option best describes the image?\nA. airplane\n"
    )
    assert picture["image_url"]["detail"] == "low"
    assert picture["image_url"]["url"].startswith("data:image/png;base64,")
    assert fields == {"model": "vlm", "temperature": 0.0, "max_tokens": 300, "seed": 42}


def test_a_folder_with_other_files_is_not_touched(tmp_path, capsys):
    write(tmp_path, 2)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/thesis.txt").write_text("mine")
    assert stub_images.run(tmp_path, "http://127.0.0.1:9/v1") == 2
    assert "must be a new or empty folder" in capsys.readouterr().err
    assert [x.name for x in (tmp_path / "out").iterdir()] == ["thesis.txt"]


def test_a_damaged_image_is_left_out(tmp_path, capsys):
    images = write(tmp_path, 3)
    first, *other_images = images
    path = tmp_path / "stimuli" / first
    path.write_bytes(path.read_bytes()[:70])
    with chat_server.ChatServer(images, answer=shape_letter) as server:
        assert stub_images.run(tmp_path, server.url) == 1
        assert server.counts == dict.fromkeys(other_images, 1)
    assert f"{first} has no answer" in capsys.readouterr().err


def test_two_processes_do_not_ask_into_one_folder(tmp_path, capsys):
    images = write(tmp_path, 2)
    (tmp_path / "out").mkdir()
    lock = workdir_lock.acquire(epath.Path(tmp_path / "out/.lock"), "asks into out")
    with chat_server.ChatServer(images, answer=shape_letter) as server:
        with lock:
            assert stub_images.run(tmp_path, server.url) == 2
            assert "another process asks into" in capsys.readouterr().err
            assert not server.requests
        assert stub_images.run(tmp_path, server.url) == 0


def _start(folder: pathlib.Path, url: str, *args: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "jbias.ask"]
    return subprocess.Popen(
        [*command, *stub_images.arguments(folder, url, *args)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "NO_PROXY": "127.0.0.1"},
    )


def _wait_for(is_true, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.002)


@pytest.mark.slow
def test_a_stopped_run_writes_its_table_and_resumes(tmp_path):
    images = write(tmp_path, 6)

    def answer(question):
        is_late = len(server.requests) > 3
        return Reply(shape_letter(question), wait_seconds=30.0 * is_late)

    with chat_server.ChatServer(images, answer=answer) as server:
        process = _start(tmp_path, server.url, "--parallel=1")
        _wait_for(lambda: len(server.requests) == 4)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 143
        assert len(table(tmp_path)) == 3
        server.answer = shape_letter
        assert stub_images.run(tmp_path, server.url) == 0
        assert len(table(tmp_path)) == 6 and len(server.requests) == 7


@pytest.mark.slow
def test_twenty_kills_ask_at_most_the_requests_in_flight_again(tmp_path):
    """SIGKILL at drawn times. Stored answers are never question for again, and the budget holds."""
    kills, parallel, count = 20, 3, 90
    images = write(tmp_path, count)
    rng = np.random.default_rng(7)
    planned = {
        name: [Reply("busy", status=429, headers={"Retry-After": "0.05"})]
        for name in [*images][:5]
    }
    planned |= {name: [Reply("A", missing=9)] for name in [*images][5:9]}

    def answer(question):
        return Reply(shape_letter(question), wait_seconds=0.01)

    budget = count + 9 + kills * parallel
    args = (f"--parallel={parallel}", f"--max-requests={budget}")
    with chat_server.ChatServer(images, answer=answer, planned=planned) as server:
        for _ in range(kills):
            stored = set()
            if (tmp_path / "out" / ledger.ANSWERS).exists():
                content = (tmp_path / "out" / ledger.ANSWERS).read_bytes()
                whole = content[: content.rfind(b"\n") + 1]
                stored = {json.loads(line)["image"] for line in whole.splitlines()}
            num_before = len(server.requests)
            process = _start(tmp_path, server.url, *args)
            target = num_before + int(rng.integers(1, 7))
            _wait_for(lambda: len(server.requests) >= target)  # noqa: B023
            time.sleep(rng.uniform(0, 0.03))
            process.kill()
            assert process.wait() == -signal.SIGKILL, "ended before its kill"
            again = {
                question.name for question in server.requests[num_before:]
            } & stored
            assert not again
        assert stub_images.run(tmp_path, server.url, *args) == 0
        num_requests = len(server.requests)
        num_lost = sum(server.num_answered.values()) - count
    assert len(table(tmp_path)) == count
    assert 0 <= num_lost <= kills * parallel
    counted = len(sent(tmp_path))
    # Some requests were counted and not sent before a kill.
    assert num_requests <= counted <= min(num_requests + kills * parallel, budget)
    (observer,) = tables.read(str(tmp_path / "out/decisions.csv"))
    assert (observer.decision == observer.label).all()
