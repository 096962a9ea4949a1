"""The images to ask about, with their questions and estimated tokens; the lines of a dry run."""

import dataclasses
from collections.abc import Collection

from jbias.asking import asker, ledger, pictures, questions, stimuli, token_counts
from jbias.runtime import messages


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """The images to ask about; see `make` for the other fields."""

    folder: stimuli.StimulusFolder
    items: tuple[asker.Item, ...]  # Without those that are answered or refused.
    num_chosen: int  # Images by the limit, with those that are answered or refused.
    num_answered: int  # Of the chosen images, in earlier runs.
    num_refused: int
    model: str
    endpoint: str
    tokens_per_image: int | None
    answer_tokens: int

    @property
    def input_tokens(self) -> int:
        """Estimated tokens of all questions and images."""
        return sum(item.input_tokens for item in self.items)

    @property
    def num_tokens(self) -> int:
        """Estimated tokens of all requests, and the most that their answers may have."""
        return self.input_tokens + len(self.items) * self.answer_tokens


def make(
    folder: stimuli.StimulusFolder,
    *,
    answered: Collection[str],
    refused: Collection[str],
    model: str,
    endpoint: str,
    prompt: str,
    order: str,
    seed: int,
    limit: int | None,
    detail: str,
    tokens_per_image: int | None,
    answer_tokens: int,
) -> Plan:
    """Return the images of a folder that are neither answered nor refused, in a drawn order.

    answered, refused: names of images. prompt, order, seed: see `questions.make`. limit: number of images
    to choose; None for all. detail, tokens_per_image: for estimates; None: see
    `token_counts.of_image`. answer_tokens: the most of an answer. ValueError for a file that is no
    image.
    """
    chosen = stimuli.draw(folder.stimuli, seed=seed, limit=limit)
    items = []
    for stimulus in chosen:
        if stimulus.name in answered or stimulus.name in refused:
            continue
        path = folder.path(stimulus)
        question = questions.make(
            prompt, folder.classes, image=stimulus.name, order=order, seed=seed
        )
        tokens = tokens_per_image
        if tokens is None:
            width, height = pictures.size(path)
            tokens = token_counts.of_image(width, height, model=model, detail=detail)
        tokens += token_counts.of_text(question.text)
        items.append(asker.Item(stimulus.name, path, question, tokens))
    return Plan(
        folder=folder,
        items=tuple(items),
        num_chosen=len(chosen),
        num_answered=sum(stimulus.name in answered for stimulus in chosen),
        num_refused=sum(stimulus.name in refused for stimulus in chosen),
        model=model,
        endpoint=endpoint,
        tokens_per_image=tokens_per_image,
        answer_tokens=answer_tokens,
    )


def describe(plan: Plan, book: ledger.Ledger, *, out: str) -> list[str]:
    """Return the lines of a dry run: requests, tokens, budgets, and the first question.

    book: the requests so far. out: folder of the answers.
    """
    num_images = len(plan.items)
    text_tokens = sum(token_counts.of_text(item.question.text) for item in plan.items)
    rule = "--tokens-per-image"
    if plan.tokens_per_image is None:
        name = token_counts.formula(plan.model)
        rule = f"OpenAI's formula for {name}; for another model use --tokens-per-image"
    chosen = f"{plan.num_chosen:,} of {len(plan.folder.stimuli):,}"
    rows = [("model", f"{plan.model} at {plan.endpoint}")]
    line = f"{chosen} in {plan.folder.folder}, {len(plan.folder.classes)} classes"
    line += f"; {plan.num_answered:,} are answered in {out}"
    line += f", {plan.num_refused:,} refused" if plan.num_refused else ""
    rows.append(("images", line))
    line = f"{num_images:,}, one for each image; a request that fails is sent again"
    rows.append(("requests", line))
    line = f"about {plan.input_tokens:,} of input"
    most = num_images * plan.answer_tokens
    line += f", at most {most:,} of output (--answer-tokens={plan.answer_tokens})"
    rows.append(("tokens", line))
    rows.append(("", f"text {text_tokens:,}: a token for every 4 characters"))
    rows.append(("", f"images {plan.input_tokens - text_tokens:,}: {rule}"))
    rows += [("budget", line) for line in _budget_lines(plan, book)]
    if plan.items:
        first = plan.items[0]
        rows.append(("first", first.name))
        rows += [("", line) for line in first.question.text.splitlines()]
    rows.append(("dry run", "nothing was sent or written, no key was read"))
    return messages.align_columns(rows)


def _budget_lines(plan: Plan, book: ledger.Ledger) -> list[str]:
    """Return a line for each budget: what is left, and whether it suffices."""
    lines = []
    for flag, budget, spent, needed in (
        ("--max-requests", book.max_requests, book.num_requests, len(plan.items)),
        ("--max-tokens", book.max_tokens, book.spent_tokens, plan.num_tokens),
    ):
        if budget is not None:
            left = max(budget - spent, 0)
            verdict = "enough if none fails" if left >= needed else "may not be enough"
            lines.append(f"{flag}={budget:,}: {left:,} left for {needed:,}, {verdict}")
    return lines
