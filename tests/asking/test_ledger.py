"""The ledger on disk: budgets, and files that a kill has cut off anywhere."""

import json

import numpy as np
import pytest

from jbias.asking import ledger


def answer(tokens=(100, 5), text="A"):
    num_input, num_output = tokens
    return {
        "response": text,
        "prompt_tokens": num_input,
        "completion_tokens": num_output,
    }


def send(book, image="x"):
    return book.send(image, input_tokens=100, answer_tokens=20)


def test_budgets_hold_for_every_order_of_requests_and_replies(tmp_path):
    """1,000 drawn events: what is spent never exceeds a budget, if the estimates are right."""
    rng = np.random.default_rng(0)
    for case in range(10):
        folder = tmp_path / str(case)
        folder.mkdir()
        max_requests, max_tokens = (
            int(rng.integers(5, 40)),
            int(rng.integers(300, 5000)),
        )
        book = ledger.Ledger(
            str(folder), max_requests=max_requests, max_tokens=max_tokens
        )
        in_flight, spent, num_sent = [], 0, 0
        for _ in range(100):
            if rng.random() < 0.5 or not in_flight:
                try:
                    in_flight.append(send(book, image=f"{num_sent}"))
                    num_sent += 1
                except ledger.TokensReservedError:
                    assert in_flight
                except ledger.BudgetSpentError:
                    is_full = num_sent == max_requests
                    assert is_full or spent + 120 * (len(in_flight) + 1) > max_tokens
            else:
                number = in_flight.pop(int(rng.integers(len(in_flight))))
                kind = rng.integers(3)
                if kind == 0:
                    num_output = int(rng.integers(21))
                    book.answer(number, f"{number}", answer((100, num_output)))
                    spent += 100 + num_output
                else:
                    book.fail(number, image="x", is_charged=kind == 1, reason="r")
                    spent += 120 * (kind == 1)
            assert book.spent_tokens == spent and book.num_requests == num_sent
            assert num_sent <= max_requests
            assert spent + 120 * len(in_flight) <= max_tokens
        book.close()
        reopened = ledger.Ledger(str(folder))
        assert reopened.num_requests == num_sent
        assert reopened.num_lost == len(in_flight)
        assert reopened.spent_tokens == spent + 120 * len(in_flight)


def test_the_largest_count_of_the_endpoint_replaces_a_smaller_estimate(tmp_path):
    book = ledger.Ledger(str(tmp_path), max_tokens=1100)
    book.answer(send(book), "x", answer((500, 5)))
    book.answer(send(book, "y"), "y", answer((500, 5)))
    with pytest.raises(ledger.BudgetSpentError, match="1,010 are spent"):
        send(book, "z")


def test_the_largest_answer_of_the_endpoint_replaces_a_smaller_limit(tmp_path):
    """An endpoint may ignore the limit, or count hidden reasoning in its total only."""
    for case, counted in enumerate(
        (
            (100, 400),
            {"prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 500},
        )
    ):
        folder = tmp_path / str(case)
        folder.mkdir()
        book = ledger.Ledger(str(folder), max_tokens=1499)
        content = answer(counted) if isinstance(counted, tuple) else counted
        for image in "xy":
            book.answer(send(book, image), image, content)
        assert book.spent_tokens == 1000
        with pytest.raises(ledger.BudgetSpentError, match="next request may take 500"):
            send(book, "z")
        book.close()
        reopened = ledger.Ledger(str(folder), max_tokens=1499)
        with pytest.raises(ledger.BudgetSpentError, match="1,000 are spent"):
            send(reopened, "z")


def test_requests_with_a_budget_of_tokens_become_more_as_answers_do(tmp_path):
    book = ledger.Ledger(str(tmp_path), max_tokens=10_000)
    number = send(book)
    with pytest.raises(ledger.TokensReservedError):
        send(book, "y")
    book.fail(number, image="x", is_charged=False, reason="busy")
    number = send(book)
    book.answer(number, "x", answer())
    for image in "yz":
        book.answer(send(book, image), image, answer())
    # At most as many at a time as there are answers: a larger count is noticed early.
    for image in "abc":
        send(book, image)
    with pytest.raises(ledger.TokensReservedError):
        send(book, "d")
    assert book.num_in_flight == len(book.answers) == 3


@pytest.mark.parametrize(
    "content",
    [
        answer((0, 0)),
        answer((None, 5)),
        {"prompt_tokens": None, "completion_tokens": 0},
    ],
)
def test_an_answer_whose_tokens_are_not_counted_has_its_reserved_tokens(
    tmp_path, content
):
    """An endpoint that reports no tokens for an answer does not count them."""
    book = ledger.Ledger(str(tmp_path), max_tokens=1000)
    book.answer(send(book), "x", content)
    assert book.spent_tokens == 120


def test_refusals_are_stored_and_end_with_an_answer_or_a_retry(tmp_path):
    def refuse(book, image):
        number = send(book, image)
        book.fail(number, image=image, is_charged=False, reason="r", refused={"a": 1})

    book = ledger.Ledger(str(tmp_path))
    refuse(book, "x")
    book.answer(send(book, "y"), "y", answer())
    refuse(book, "z")
    book.close()
    book = ledger.Ledger(str(tmp_path))
    assert {*book.refused} == {"x", "z"} and book.refused["x"]["a"] == 1
    assert book.spent_tokens == 105 and book.num_requests == 3
    book.answer(send(book, "x"), "x", answer())
    book.close()
    book = ledger.Ledger(str(tmp_path))
    assert {*book.refused} == {"z"}
    book.retry_refused()
    book.close()
    assert not ledger.Ledger(str(tmp_path)).refused


def test_files_cut_off_anywhere_are_read_up_to_the_last_whole_line(tmp_path):
    book = ledger.Ledger(str(tmp_path))
    for image in "xyz":
        book.answer(send(book, image), image, answer(text="A\nb ä\0"))
    book.close()
    for name in (ledger.REQUESTS, ledger.ANSWERS):
        path = tmp_path / name
        content = path.read_bytes()
        ends = [i + 1 for i, byte in enumerate(content) if byte == 10]
        for cut in range(0, len(content), 7):
            path.write_bytes(content[:cut])
            reopened = ledger.Ledger(str(tmp_path))
            num_whole = sum(end <= cut for end in ends)
            if name == ledger.REQUESTS:
                assert reopened.num_requests == num_whole
            else:
                assert len(reopened.answers) == num_whole
                assert reopened.num_lost == 3 - num_whole
            # What is appended now begins on its own line.
            reopened.close()
            assert path.read_bytes() == content[: ([0, *ends])[num_whole]]
        path.write_bytes(content)


def test_a_damaged_line_is_refused_with_its_number(tmp_path):
    (tmp_path / ledger.ANSWERS).write_text('{"a"\n')
    with pytest.raises(ValueError, match=r"answers.jsonl:1: must be JSON"):
        ledger.Ledger(str(tmp_path))


def test_a_request_is_on_disk_before_its_number_is_returned(tmp_path):
    book = ledger.Ledger(str(tmp_path))
    number = send(book)
    (line,) = map(json.loads, (tmp_path / ledger.REQUESTS).read_text().splitlines())
    assert line["request"] == number and line["event"] == "sent"
    book.close()
