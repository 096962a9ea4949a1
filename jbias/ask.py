r"""Ask a vision-language model behind a chat endpoint about images; write its answers as a table.

    export OPENAI_API_KEY=...
    jbias ask --model=gpt-4o --stimuli=stimuli/style-transfer-preprocessed-512 --dry-run
    jbias ask --model=gpt-4o --stimuli=stimuli/style-transfer-preprocessed-512
    jbias measure asked/gpt-4o-choice/decisions.csv

--endpoint may be any OpenAI-compatible API with images: vLLM, llama.cpp, Ollama, OpenRouter ...
The question is that of Gavrikov et al. 2024, by multiple choice or as a caption. The order of the
options is drawn for each image.

Each request is counted in OUT/requests.jsonl before it is sent, and each answer is stored in
OUT/answers.jsonl as it came. The same command continues a stopped run. No image is asked about
again, except those whose answer was on its way at a kill: at most --parallel for each kill.

Exit codes: 0 all images are answered or refused; 1 some are not: a budget is spent, or requests
failed; 2 an error, which standard error explains; 130 stopped by Ctrl-C, 143 by SIGTERM.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jbias import errors, numerals
from jbias.runtime import cli, console, messages

if TYPE_CHECKING:
    from jbias.asking import asker, client, keys, ledger, plan, stimuli

_PROMPTS, _ORDERS, _DETAILS = (
    ("choice", "caption"),
    ("drawn", "fixed"),
    ("auto", "low", "high"),
)
_OPENAI = "https://api.openai.com/v1"
_LOCK = ".lock"
_LIMITS = ("max_completion_tokens", "max_tokens")  # In --extra: for --answer-tokens.
_RESERVED = ("model", "messages", "stream", "n", "temperature")  # Not in --extra.


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command `jbias ask`; return the exit code.

    argv: the arguments; None: the process's arguments. Invalid arguments raise SystemExit(2).
    """
    args = parser().parse_args(argv)
    return cli.run(lambda: run(args), rerun="resumes", uses_jax=False)


def parser() -> cli.Parser:
    """Return the parser of the command line."""
    parser = cli.Parser("ask", __doc__)
    parser.add_argument(
        "--model",
        required=True,
        metavar="NAME",
        help="the endpoint's name of the model",
    )
    parser.add_argument(
        "--stimuli",
        required=True,
        metavar="DIR",
        help="folder of images whose names (airplane1-bicycle2.png) or class folders say the "
        "classes, or a folder of `jbias export-stimuli`",
    )
    parser.add_argument(
        "--endpoint",
        default=_OPENAI,
        metavar="URL",
        help="address of the API, such as http://localhost:8000/v1 (default: %(default)s)",
    )
    parser.add_argument(
        "--out",
        **{**cli.OUT, "required": False},
        help="folder of requests, answers and decisions.csv (default: asked/MODEL-PROMPT)",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="print how many requests and tokens are needed; send and write nothing",
    )
    _add_question(parser)
    _add_limits(parser)
    parser.add_argument(
        "--key-variable",
        metavar="NAME",
        help="environment variable with the key (default: OPENAI_API_KEY, which is sent to "
        "https://api.openai.com and to this machine only)",
    )
    return parser


def _add_question(parser: cli.Parser) -> None:
    """Add the flags that say what is asked; they must not change between runs into one folder."""
    parser.add_argument(
        "--prompt",
        choices=_PROMPTS,
        default=_PROMPTS[0],
        help="choice: which of the classes is it; caption: describe the image (default: %(default)s)",
    )
    parser.add_argument(
        "--order",
        choices=_ORDERS,
        default=_ORDERS[0],
        help="order of the options of a choice: drawn for each image by --seed, or fixed, the "
        "alphabetical order as published (default: %(default)s)",
    )
    cli.add_count(parser, "--seed", 0, 0, "seed of the order of options and of images")
    parser.add_argument(
        "--temperature",
        type=_temperature,
        default=0.0,
        metavar="T|default",
        help="of the model; default: do not send one, as some models accept none (default: 0)",
    )
    cli.add_count(
        parser,
        "--answer-tokens",
        1,
        300,
        "most tokens of an answer, with hidden reasoning",
    )
    parser.add_argument(
        "--detail",
        choices=_DETAILS,
        default=_DETAILS[0],
        help="resolution at which OpenAI's models see the image (default: %(default)s, not sent)",
    )
    parser.add_argument(
        "--extra",
        type=_extra,
        default={},
        metavar="JSON",
        help='further fields of each request, such as \'{"reasoning_effort": "low"}\'',
    )


def _add_limits(parser: cli.Parser) -> None:
    """Add the flags that limit the requests; they may change between runs into one folder."""
    for flag, low, text in (
        ("--limit", 1, "ask about N images, drawn by --seed (default: all)"),
        ("--max-requests", 1, "send at most N requests, in all runs into --out (default: any number)"),
        ("--max-tokens", 1, "use about N tokens of input and output, in all runs into --out; only a reply that takes more than all before can exceed N (default: any number)"),
        ("--tokens-per-image", 0, "tokens of an image, for estimates and --max-tokens (default: by OpenAI's formula for the model's name)"),
    ):  # fmt: skip
        parser.add_argument(flag, type=cli.at_least(low), metavar="N", help=text)
    parser.add_argument(
        "--requests-per-minute",
        type=cli.positive,
        metavar="N",
        help="send at most N requests a minute (default: as fast as answers come)",
    )
    parser.add_argument(
        "--retry-refused",
        action="store_true",
        help="ask again about the images that the endpoint refused in earlier runs",
    )
    cli.add_count(parser, "--parallel", 1, 4, "requests at a time")
    cli.add_count(
        parser, "--tries", 1, 6, "requests about an image before it is left out"
    )
    parser.add_argument(
        "--timeout",
        type=cli.positive,
        default=120.0,
        metavar="SECONDS",
        help="longest time for a whole reply (default: %(default)g)",
    )


def _temperature(text: str) -> float | None:
    """Return a temperature; None for "default" (an argparse type)."""
    if text == "default":
        return None
    try:
        value = numerals.real(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 2:
        raise argparse.ArgumentTypeError(
            f"must be a number from 0 to 2, or default, got {text!r}"
        )
    return value


def _extra(text: str) -> dict[str, Any]:
    """Return further fields of a request from JSON (an argparse type)."""
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise argparse.ArgumentTypeError("must be a JSON object in quotes")
    for name in _LIMITS:
        limit = fields.get(name, 1)
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
            raise argparse.ArgumentTypeError(f"{name} must be a whole number above 0")
    reserved = [name for name in _RESERVED if name in fields]
    if reserved:
        raise argparse.ArgumentTypeError(
            f"must not have {reserved[0]!r}, which other flags decide"
        )
    return fields


def run(args: argparse.Namespace) -> int:
    """Ask about the images that have no answer, or print the plan; return the exit code."""
    from jbias.asking import keys

    # First what needs no slow package and no image.
    keys.check_endpoint(args.endpoint)
    out = args.out or os.path.join("asked", _folder_name(args.model, args.prompt))
    key = None
    if not args.dry_run:
        key = keys.read(args.key_variable, endpoint=args.endpoint)

    from jbias.asking import ledger, plan, questions, settings, stimuli

    folder = stimuli.read(args.stimuli)
    questions.check_classes(args.prompt, folder.classes)
    wanted = _settings(args, folder)
    if key is not None:
        return _run_locked(args, folder, key, out=out, wanted=wanted)
    settings.check_folder(out, wanted)
    book = ledger.Ledger(
        out,
        max_requests=args.max_requests,
        max_tokens=args.max_tokens,
        is_read_only=True,
    )
    lines = plan.describe(_plan(args, folder, book), book, out=out)
    messages.print_text("\n".join(lines))
    return 0


def _run_locked(
    args: argparse.Namespace,
    folder: "stimuli.StimulusFolder",
    key: "keys.Key",
    *,
    out: str,
    wanted: dict[str, Any],
) -> int:
    """Ask about the images, with the folder of answers locked; return the exit code.

    wanted: the settings.
    """
    import asyncio
    import contextlib

    from etils import epath

    from jbias.asking import answer_table, client, ledger, settings, summary
    from jbias.runtime import outputs, workdir_lock

    log = console.logger(None)
    if key.redact_all(wanted) != wanted:
        raise ValueError(
            "--extra, --model and --endpoint must not have the key, as they are written to "
            "files; use an environment variable, see --key-variable"
        )
    asking = client.Client(args.endpoint, key, timeout_seconds=args.timeout)
    settings.check_folder(out, wanted)
    outputs.check_writable_folder(out)
    os.makedirs(out, exist_ok=True)
    work = f"asks into {out}"
    with workdir_lock.acquire(epath.Path(out) / _LOCK, work, log):
        settings.open_folder(out, wanted)
        book = ledger.Ledger(
            out, max_requests=args.max_requests, max_tokens=args.max_tokens
        )
        if args.retry_refused:
            book.retry_refused()
        planned = _plan(args, folder, book)
        try:
            with contextlib.closing(book):
                outcome = asyncio.run(_ask(args, asking, planned, book, log))
        finally:
            table = answer_table.write(
                out,
                folder.stimuli,
                answers=book.answers,
                refused=book.refused,
                model=args.model,
                prompt=args.prompt,
            )
    for line in summary.lines(
        book,
        outcome,
        num_asked=len(planned.items),
        table=table,
        is_exported=folder.is_exported,
        limit=_answer_limit(args),
    ):
        log(line)
    num_left = len(planned.items) - outcome.num_answered - outcome.num_refused
    return 0 if book.answers and not num_left else 1


def _folder_name(model: str, prompt: str) -> str:
    """Return the default name of the folder of answers."""
    name = f"{model.replace('/', '-')}-{prompt}".replace(":", "-")
    errors.check_folder_name("--out: the name by --model", name)
    return name


def _settings(
    args: argparse.Namespace, folder: "stimuli.StimulusFolder"
) -> dict[str, Any]:
    """Return what must not change between the runs into one folder."""
    from jbias.asking import questions

    return {
        "endpoint": args.endpoint,
        "model": args.model,
        "prompt": args.prompt,
        "words": questions.WORDS[args.prompt],
        "order": args.order if args.prompt == questions.CHOICE else "",
        "seed": args.seed,
        "temperature": args.temperature,
        "answer_tokens": _answer_tokens(args),
        "detail": args.detail,
        "extra": args.extra,
        "classes": list(folder.classes),
        "images": len(folder.stimuli),
        "images_sha256": folder.digest(),
    }


def _plan(
    args: argparse.Namespace, folder: "stimuli.StimulusFolder", book: "ledger.Ledger"
) -> "plan.Plan":
    """Return the images to ask about; ValueError for a damaged image."""
    from jbias.asking import plan

    return plan.make(
        folder,
        answered=book.answers,
        refused=book.refused,
        model=args.model,
        endpoint=args.endpoint,
        prompt=args.prompt,
        order=args.order,
        seed=args.seed,
        limit=args.limit,
        detail=args.detail,
        tokens_per_image=args.tokens_per_image,
        answer_tokens=_answer_tokens(args),
    )


def _answer_tokens(args: argparse.Namespace) -> int:
    """Return the most tokens of an answer: of --extra, if it has them, or --answer-tokens."""
    limits = [args.extra[name] for name in _LIMITS if name in args.extra]
    return limits[0] if limits else args.answer_tokens


def _answer_limit(args: argparse.Namespace) -> str:
    """Return the flag that limits an answer, such as "--answer-tokens=300"."""
    names = [name for name in _LIMITS if name in args.extra]
    flag = f"{names[0]} in --extra, " if names else "--answer-tokens="
    return f"{flag}{_answer_tokens(args)}"


async def _ask(
    args: argparse.Namespace,
    asking: "client.Client",
    planned: "plan.Plan",
    book: "ledger.Ledger",
    log: console.Say,
) -> "asker.Outcome":
    """Ask about the images of a plan; return what became of them."""
    from jbias.asking import asker, client, pacing

    num_images = len(planned.items)
    log(
        f"asking {args.model} at {args.endpoint} about {num_images:,} images "
        f"({planned.num_answered:,} are answered, {planned.num_refused:,} refused): at most "
        f"about {planned.num_tokens:,} tokens"
    )
    if book.num_lost:
        log(
            f"{book.num_lost:,} earlier requests have no answer, as their process was stopped; "
            "they count"
        )
    request = client.Request(
        model=args.model,
        temperature=args.temperature,
        answer_tokens=_answer_tokens(args),
        detail=args.detail,
        extra=args.extra,
    )
    pacer = pacing.Pacer(args.requests_per_minute, last_sent=book.last_sent)
    with console.count_images(log, args.model, num_images) as (advance, _):
        async with asking:
            return await asker.Asker(
                asking,
                request,
                ledger=book,
                pacer=pacer,
                tries=args.tries,
                parallel=args.parallel,
                say=log,
                advance=advance,
            ).run(planned.items)


if __name__ == "__main__":
    sys.exit(main())
