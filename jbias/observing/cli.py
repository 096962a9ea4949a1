r"""Write a page on which a person decides about stimuli as a network does.

    jbias observe                                              # the embedded cue conflicts
    jbias observe --stimuli=/data/cue-conflict --out=conflicts # your own images

Open you/index.html in a browser, also on a phone. The page shows each image for 200 ms, then
noise, then a button for each class. At the end it shows your shape bias with its 95 % interval,
the share of decisions for neither cue, and the error consistency with networks that decided about
the same images. Your decisions are a CSV file for `jbias measure FILE`. The page is one file: it
needs no server, and no request leaves it.

A browser's timing is not a laboratory's: the page measures how long it showed each image, and
writes the milliseconds and the number of late frames into the file.

--stimuli is a folder of images whose names say the classes, such as cat7-elephant1.png; of
folders named for the classes; or a folder of `jbias export-stimuli`.

--out may have other files: only index.html is written, and only a page of `jbias observe` is
replaced.

Exit codes: 0 done; 2 an error, which standard error explains; 130 stopped by Ctrl-C, 143 by
SIGTERM.
"""

import argparse
import os
from collections.abc import Sequence

from jbias.runtime import cli, messages


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command `jbias observe`; return the exit code.

    argv: the arguments; None: the process's arguments. Invalid arguments raise SystemExit(2).
    """
    args = parser().parse_args(argv)
    return cli.run(lambda: _write(args), rerun="writes the page again", uses_jax=False)


def parser() -> cli.Parser:
    """Return the parser of the command line."""
    parser = cli.Parser("observing", __doc__)
    parser.add_argument(
        "--out",
        type=cli.output_folder,
        default="you",
        metavar="DIR",
        help="folder to write the page, index.html, into (default: you)",
    )
    cli.add_texts(
        parser,
        {
            "--stimuli=DIR": "folder of your own stimuli (default: the embedded set shapes)",
            "--set=NAME": "the set of a folder of `jbias export-stimuli`, if it has several",
            "--decisions=PATH": "file or folder of decisions about the images of --stimuli; the "
            "page compares the person with each model (default: none; for Geirhos' cue conflicts "
            "ten people and two networks)",
        },
    )
    cli.add_count(
        parser,
        "--images",
        low=1,
        default=240,
        help="largest number of images of --stimuli in the page; each class has equally many",
    )
    cli.add_count(
        parser,
        "--size",
        low=16,
        default=256,
        help="larger images of --stimuli are reduced to this side in pixels",
    )
    cli.add_count(
        parser,
        "--seed",
        low=0,
        default=0,
        help="seed of the noise and of the choice of images: all people who choose the same number "
        "of images on the page see the same images. Their order is drawn by a seed that the page "
        "shows",
    )
    return parser


def _write(args: argparse.Namespace) -> int:
    """Write the page and print its path; return the exit code."""
    _check_paths(args)
    from jbias.observing import comparison, page, stimuli

    is_replaced = page.check_out(args.out)
    if args.stimuli:
        shown = stimuli.from_folder(
            args.stimuli,
            set_name=args.set or "",
            num_images=args.images,
            size=args.size,
            seed=args.seed,
        )
        compared = comparison.of_folder(shown, args.decisions or "")
    else:
        shown = stimuli.embedded()
        compared = comparison.of_embedded(shown)
    text = page.to_html(shown, compared, seed=args.seed)
    path = page.write(text, args.out)
    num_images = sum(len(group.images) for group in shown.groups)
    notes = [f"{num_images:,} images", f"{len(text) / 1e6:.1f} MB"]
    notes += [shown.note] if shown.note else []
    notes += ["replaces the earlier page"] if is_replaced else []
    messages.print_text(f"written: {path}, {', '.join(notes)}; open it in a browser")
    return 0


def _check_paths(args: argparse.Namespace) -> None:
    """Raise ValueError for flags without --stimuli and for paths that do not exist."""
    for flag in ("set", "decisions"):
        if getattr(args, flag) and not args.stimuli:
            raise ValueError(f"--{flag}: is for --stimuli; give both")
    if args.stimuli and not os.path.isdir(os.path.expanduser(args.stimuli)):
        raise ValueError(
            f"--stimuli: must be a folder, got {args.stimuli!r}; check the path"
        )
