r"""Write docs/standing-table.md and its CSV files from the stored answers.

    python -m studies.standing_table
    python -m studies.standing_table store --decisions=RAW --people=PEOPLE
    python -m studies.standing_table add SUBMISSION

Without a word, writes OUT/standing-table.md, OUT/standing-table.csv (all numbers) and
OUT/standing-table-pairs.csv (every pair). `store` writes
jbias/answers/stored/answers.csv and studies/answers/captions.csv from published files, and keeps
submissions. `add` checks a folder as `jbias submit` does and adds its observers to answers.csv.
Then write the pages again.

RAW must have the folders clip, inet_classifier, vlm/vqa and vlm/captioning from raw-data of
https://github.com/paulgavrikov/vlm_shapebias at 459198f. PEOPLE is the folder that
`studies.published_shape_biases --decisions` reads.

Takes about ten seconds on two cores.
"""

import argparse
import html
import math
import pathlib
import re
import sys
from collections.abc import Sequence

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from jbias.answers import letter_answers, observers, scores, submission
from jbias.stats import consistency, rank_intervals, ratios
from studies import command, prose, stored_answers

PAGE, NUMBERS, PAIRS = (
    "standing-table.md",
    "standing-table.csv",
    "standing-table-pairs.csv",
)
# The pair that the page explains: ids.
EXAMPLE = (
    "vlm/vqa/openai_vision",
    "inet_classifier/vit_base_patch16_224.orig_in21k_ft_in1k",
)
DESCRIPTION = [
    "observer",
    "kind",
    "model",
    "task",
    "prompt",
    "decided_by",
    "group",
    "source",
    "licence",
]


def numbers(answers: pd.DataFrame) -> pd.DataFrame:
    """Return the scores of stored observers, the largest shape bias first.

    answers: rows of `stored_answers.read`. Columns: DESCRIPTION; shape_bias, its interval
    (lower, upper), shape and decisions (for either cue), conflicts and unanswered (images with a
    conflict), accuracy and its interval, like_people, rank and its simultaneous interval, and
    rank_in_task with its interval, among the rank_in_task_of models with the same task and prompt.
    NaN: not measured; people have no rank_in_task. Apart from ranks, no number depends on other
    rows, except for the people's.
    """
    panel = stored_answers.panel(answers)
    bias, right = scores.shape_bias(panel), scores.accuracy(panel)
    frame = answers[DESCRIPTION].copy()
    for name, score in (("shape_bias", bias), ("accuracy", right)):
        result = ratios.bootstrap_ratios(
            score.numerator, score.denominator, has_row=score.has_row
        )
        prefix = "" if name == "shape_bias" else f"{name}_"
        frame[name] = result.value
        frame[f"{prefix}lower"], frame[f"{prefix}upper"] = result.lower, result.upper
        if name == "shape_bias":
            frame["shape"] = result.count.astype(int)
            frame["decisions"] = result.n.astype(int)
    conflicts = panel.decision[:, panel.is_conflict]
    frame["conflicts"] = np.sum(conflicts != observers.NO_ROW, axis=1)
    frame["unanswered"] = np.sum(conflicts == observers.NO_ANSWER, axis=1)
    is_person = (answers["group"] == stored_answers.PEOPLE).to_numpy()
    frame["like_people"] = consistency_with_people(panel, is_person)
    is_ranked = (frame["decisions"] > 0).to_numpy()
    _add_ranks(frame, bias, is_ranked, name="rank")
    is_model = is_ranked & ~is_person
    questions = (frame["task"] + "\n" + frame["prompt"]).to_numpy()
    for question in np.unique(questions[is_model]):
        in_task = is_model & (questions == question)
        _add_ranks(frame, bias, in_task, name="rank_in_task")
        frame.loc[in_task, "rank_in_task_of"] = in_task.sum()
    columns = [name for name in frame if name.startswith("rank")]
    frame[columns] = frame[columns].astype("Int64")
    return frame.sort_values(
        ["shape_bias", "observer"], ascending=[False, True], na_position="last"
    ).reset_index(drop=True)


def _add_ranks(
    frame: pd.DataFrame,
    bias: scores.Score,
    members: Bool[np.ndarray, "k"],
    *,
    name: str,
) -> None:
    """Set the columns `name`, name_lower and name_upper of members to their ranks, in place."""
    ends = f"{name}_lower", f"{name}_upper"
    if members.sum() == 1:
        frame.loc[members, [name, *ends]] = 1
        return
    ranks = rank_intervals.rank_intervals(
        bias.numerator[members], bias.denominator[members]
    )
    frame.loc[members, name] = ranks.rank
    frame.loc[members, ends[0]] = ranks.lower
    frame.loc[members, ends[1]] = ranks.upper


def consistency_with_people(
    panel: observers.Panel, is_person: Sequence[bool]
) -> Float[np.ndarray, "k"]:
    """Return each observer's mean error consistency with the people, over common images.

    A person is compared with the other people. NaN without people, and for an observer without
    any answer.
    """
    correct = panel.decision == panel.label
    people = np.flatnonzero(is_person)
    means = np.full(len(correct), np.nan)
    for i, marks in enumerate(correct):
        kappas = []
        for person in people:
            common = panel.has_row[i] & panel.has_row[person]
            if person != i and common.any():
                both = consistency.error_consistency(
                    marks[common], correct[person][common]
                )
                kappas.append(both.kappa)
        if kappas and (panel.decision[i] >= 0).any():
            means[i] = np.mean(kappas)
    return means


def pairs(answers: pd.DataFrame) -> pd.DataFrame:
    """Return the difference in shape bias of every pair of stored observers, not adjusted.

    Columns: first, second (ids in alphabetical order), difference (first less second), lower,
    upper, pvalue, images, larger ("first", "second", or "" if p > 0.05). Rows of existing pairs
    do not change when an observer is added.
    """
    answers = answers.sort_values("observer", ignore_index=True)
    score = scores.shape_bias(stored_answers.panel(answers))
    compared = ratios.compare_ratios(score.numerator, score.denominator, score.has_row)
    names = answers["observer"].to_numpy()
    words = {1: "first", -1: "second", 0: ""}
    return pd.DataFrame(
        {
            "first": names[compared.first],
            "second": names[compared.second],
            "difference": compared.difference,
            "lower": compared.lower,
            "upper": compared.upper,
            "pvalue": compared.pvalue,
            "images": compared.num_images,
            "larger": [words[verdict] for verdict in compared.verdict],
        }
    )


def format_numbers(frame: pd.DataFrame) -> str:
    """Return the result of `numbers` as CSV, rounded to four decimals."""
    return stored_answers.format_csv(frame.round(4))


def format_pairs(frame: pd.DataFrame) -> str:
    """Return the result of `pairs` as CSV: four decimals, p-values with three digits."""
    frame = frame.round({"difference": 4, "lower": 4, "upper": 4})
    frame["difference"] += 0.0  # No -0.0.
    frame["pvalue"] = [f"{p:.3g}" if np.isfinite(p) else "" for p in frame["pvalue"]]
    return stored_answers.format_csv(frame)


NOT_MEASURED = '<span title="not measured">–</span>'
NONE = '<span title="none">–</span>'
UNANSWERED = "vision-language-models.md#unanswered-images"
MANY = 0.05  # Share of unanswered images from which a row has a mark.
HEAD = (
    "Name",
    "Shape bias",
    "Rank",
    "Rank in task",
    "Kind",
    "Task",
    "Prompt",
    "Decisions",
    "Unanswered",
    "Accuracy",
    "Like people",
)


def format_table(frame: pd.DataFrame) -> str:
    """Return the result of `numbers` as a Markdown table."""
    return prose.markdown(HEAD, [_cells(row) for row in frame.itertuples()])


def _cells(row) -> tuple[str, ...]:
    """Return the cells of an observer's row."""
    name = escape(row.model)
    if row.group == letter_answers.SUBMISSIONS and re.fullmatch(
        r"https://[\w./~%?=&#-]+", row.source
    ):
        name = f"[{name}]({row.source})"
    if row.unanswered > MANY * row.conflicts:
        words = f"{row.unanswered:,} of {row.conflicts:,} images unanswered"
        name += f' <sup title="{words}">†</sup>'
    return (
        name,
        _interval(row.shape_bias, row.lower, row.upper, ".3f"),
        _interval(row.rank, row.rank_lower, row.rank_upper, "d"),
        _rank_in_task(row),
        escape(row.kind),
        escape(row.task),
        escape(_shorten(row.prompt)) or NONE,
        f"{row.decisions:,}",
        f"{row.unanswered:,}",
        _interval(row.accuracy, row.accuracy_lower, row.accuracy_upper, ".2f"),
        NOT_MEASURED if pd.isna(row.like_people) else f"{row.like_people:.3f}",
    )


def _rank_in_task(row) -> str:
    """Return "19 [18, 19] of 19", or a dash for people and for a model without a shape bias."""
    if pd.isna(row.rank_in_task):
        return NONE if row.kind == "person" else NOT_MEASURED
    rank = _interval(
        row.rank_in_task, row.rank_in_task_lower, row.rank_in_task_upper, "d"
    )
    return f"{rank} of {row.rank_in_task_of}"


def _interval(value: float, lower: float, upper: float, form: str) -> str:
    """Return "value [lower, upper]", or a dash for a value that was not measured."""
    if pd.isna(value):
        return NOT_MEASURED
    return f"{value:{form}} [{lower:{form}}, {upper:{form}}]"


def _shorten(text: str, longest: int = 40) -> str:
    """Return a text, cut if it has more letters than `longest`; the CSV file has it whole."""
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def escape(text: str) -> str:
    """Return a text of someone else as Markdown that shows it: no HTML, no link, no table."""
    shown = html.escape(" ".join(text.split()), quote=True)
    return re.sub(r"[\\`*_\[\]|~{}!#<>]", lambda match: f"&#{ord(match[0])};", shown)


def text(frame: pd.DataFrame, all_pairs: pd.DataFrame) -> str:
    """Return the page as Markdown.

    frame: result of `numbers`. all_pairs: result of `pairs`.
    """
    groups = frame["group"].value_counts()
    submissions = int(groups.get(letter_answers.SUBMISSIONS, 0))
    is_model = frame["kind"] != "person"
    opening = _OPENING.format(
        observers=len(frame),
        models=frame.loc[is_model, "model"].nunique(),
        people=int(groups.get(stored_answers.PEOPLE, 0)),
        submissions=submissions or "no",
    )
    gpt = frame.set_index("observer").loc[EXAMPLE[0]]
    pair = all_pairs.set_index(["first", "second"]).loc[tuple(sorted(EXAMPLE))]
    sign = 1 if EXAMPLE[0] < EXAMPLE[1] else -1
    low, high = sorted((sign * pair["lower"], sign * pair["upper"]))
    difference = f"{sign * pair['difference']:+.3f} [{low:+.3f}, {high:+.3f}]"
    closing = _CLOSING.format(
        example=sentence(gpt),
        rank=_interval(gpt["rank"], gpt["rank_lower"], gpt["rank_upper"], "d"),
        rank_in_task=_rank_in_task(gpt),
        observers=len(frame),
        models=frame.loc[is_model, "model"].nunique(),
        people=int(groups.get(stored_answers.PEOPLE, 0)),
        pairs=f"{math.comb(len(frame), 2):,}",
        first=EXAMPLE[0],
        second=EXAMPLE[1],
        other=frame.set_index("observer").loc[EXAMPLE[1], "model"],
        difference=difference.replace("-", "−"),
        pvalue=f"{pair['pvalue']:.2f}",
        verdict="do not differ" if pair["pvalue"] > 0.05 else "differ",
        unanswered=UNANSWERED,
        many=f"{100 * MANY:.0f} %",
    )
    table = f'<div class="sortable" markdown>\n\n{format_table(frame)}\n\n</div>'
    sections = [prose.wrap(opening.strip()), table, prose.wrap(closing.strip())]
    return "\n\n".join(sections) + "\n"


def sentence(row: pd.Series) -> str:
    """Return the shape bias of an observer in words; row: of `numbers`."""
    return (
        f"shape bias {row['shape_bias']:.3f} of {row['decisions']:,} decisions; "
        f"{row['unanswered']:,} of {row['conflicts']:,} unanswered"
    )


_OPENING = """
# Standing table of shape bias

Shape bias of people and models on the cue conflicts of [Geirhos et al., ICLR 2019](https://arxiv.org/abs/1811.12231), counted
from published answers to single images: {observers} rows with {models} models and {people} people, and {submissions}
submissions. On the site of the documentation, a click on the head of a column sorts the table; on GitHub it does not. [Add your model](#add-your-model), or read
[what these answers say about vision-language models](vision-language-models.md).
"""
_CLOSING = """
## The columns

- **Shape bias**: shape decisions divided by decisions for either cue, on 1,200 images whose cues conflict. 0 is texture, 1 is
  shape. In brackets: 95 % bootstrap interval over images.
- **Decisions**: images decided for either cue.
- **Unanswered**: images of the 1,200 without an answer: none, refused, or not one of the 16 classes. GPT-4V with multiple choice
  has {example}.
- **Accuracy**: decisions for the class of the shape, divided by all 1,280 images; no answer is wrong. In brackets: 95 % interval.
- **Like people**: mean error consistency (Cohen's kappa of right and wrong) with the ten people; for a person, with the other
  nine. 0 is agreement by chance.
- **Rank**: by shape bias. In brackets: 95 % simultaneous interval
  ([Mogstad et al. 2024](https://doi.org/10.1093/restud/rdad006)). With probability 0.95, all intervals of the column contain the
  true ranks. These are ranks among all {observers} rows: {models} models, some with several tasks or prompts, and {people} people.
  GPT-4V's is {rank}. Ranks depend on all rows and change when a model is added.
- **Rank in task**: the same among models with the same task and prompt, each of which has one row. GPT-4V's is {rank_in_task}.
- **†**: more than {many} of the images are unanswered, so that [the shape bias depends on how they would have been
  decided]({unanswered}).
- A dash is not zero: no prompt, or not measured. Its text is shown under the mouse.

Captions are decided by the label that was published with them; [another reader gives another shape
bias](vision-language-models.md#readers-of-captions). The licence of each row is in [standing-table.csv](standing-table.csv). The
decisions of the ten people and of the networks of Geirhos et al. have no licence of their own:
[model-vs-human](https://github.com/bethgelab/model-vs-human/blob/79ed7cd/licenses/LICENSES_OVERVIEW.md) lists the set cue-conflict as
CC BY 4.0, after the [licence of the images](https://github.com/rgeirhos/texture-vs-shape/blob/master/DATASET_LICENSE) in
texture-vs-shape, and neither text names raw-data, the folder of the decisions. The rows of Gavrikov et al., ICLR 2025, and what is derived of them, are CC BY-SA 4.0:
[sources](../jbias/answers/stored/README.md).

## Do two models differ?

[standing-table-pairs.csv](standing-table-pairs.csv) has the difference of all {pairs} pairs on the same images, with a 95 % interval and
a p-value that is not adjusted. Rows are models by their ids, which are in the column `observer` of
[standing-table.csv](standing-table.csv): folder and name of the published file. GPT-4V with multiple choice is `{first}`. Search
the file for two ids, in a spreadsheet or by `grep`; the id that comes first in the alphabet is in the column `first`. For example, {other}
is `{second}`: GPT-4V less this model is {difference}, p = {pvalue}, so that they {verdict} significantly.

The row of a pair does not depend on other models. If you compare many pairs, adjust the p-values of those pairs:

```python
import pandas as pd
from jbias.stats import multiple_testing

pairs = pd.read_csv("docs/standing-table-pairs.csv")
names = pairs["first"] + " " + pairs["second"]
chosen = pairs[names.str.fullmatch("vlm/vqa/.* vlm/vqa/.*")]
adjusted = multiple_testing.adjust(chosen["pvalue"].to_numpy(), "holm")
print((adjusted <= 0.05).sum(), "of", len(chosen))  # 91 of 171
```

### Columns of the files

| standing-table.csv | Meaning |
| --- | --- |
| observer | id, unique |
| kind, model, task, prompt, decided_by, group, source, licence | as in [the stored answers](../jbias/answers/stored/README.md) |
| shape_bias, lower, upper | shape bias and its 95 % interval |
| shape, decisions | decisions for the shape, and for either cue; their quotient is shape_bias |
| accuracy, accuracy_lower, accuracy_upper | accuracy and its 95 % interval |
| conflicts, unanswered | images whose cues conflict, and those of them without an answer |
| like_people | mean error consistency with people |
| rank, rank_lower, rank_upper | rank among all rows and its simultaneous interval |
| rank_in_task, rank_in_task_lower, rank_in_task_upper, rank_in_task_of | rank among models with the same task and prompt, its simultaneous interval, and the number of these models; empty for people |

| standing-table-pairs.csv | Meaning |
| --- | --- |
| first, second | ids; first is before second in the alphabet |
| difference, lower, upper | shape bias of the first less that of the second, and its 95 % interval; negative: the second has more |
| pvalue | two-sided, not adjusted |
| images | images that both have |
| larger | `first` or `second`: which has more shape bias; empty if p > 0.05 |

An empty cell is not measured. Both files, and this page, are made from
[the stored answers](../jbias/answers/stored/README.md) by this command:

```bash
python -m studies.standing_table --out=docs
```

## Add your model

Write one row per image with your model's answer, and a file that says what the model is. [`jbias submit`](submit.md) checks both and
prints the numbers of the row. Only answers are accepted, never scores. To add them to your checkout, then open a pull request:

<!-- not run: submission -->
```bash
python -m studies.standing_table add mymodel
python -m studies.standing_table --out=docs
```
"""


def write_pages(out: pathlib.Path) -> None:
    """Write the page and its CSV files to the folder `out`."""
    answers = stored_answers.read()
    frame, all_pairs = numbers(answers), pairs(answers)
    for name, content in (
        (PAGE, text(frame, all_pairs)),
        (NUMBERS, format_numbers(frame)),
        (PAIRS, format_pairs(all_pairs)),
    ):
        (out / name).write_text(content, encoding="utf-8")
        print(f"written: {out / name}")


def store(raw_data: pathlib.Path, people: pathlib.Path) -> None:
    """Write the stored answers from published files; submissions stay."""
    rows = [stored_answers.from_files(raw_data, people)]
    if letter_answers.ANSWERS.exists():
        old_rows = stored_answers.read()
        rows.append(old_rows[old_rows["group"] == letter_answers.SUBMISSIONS])
    stored_answers.write(pd.concat(rows, ignore_index=True))
    captions = stored_answers.captions_from_files(raw_data)
    stored_answers.CAPTIONS.write_text(
        stored_answers.format_csv(captions), encoding="utf-8"
    )
    print(f"written: {letter_answers.ANSWERS}, {stored_answers.CAPTIONS}")


def add(folder: pathlib.Path, path: pathlib.Path = letter_answers.ANSWERS) -> int:
    """Add a submission to the stored answers at `path`; return 0, or 1 if it is refused."""
    answers = stored_answers.read(path)
    known = stored_answers.panel(answers).observers
    checked = submission.check(str(folder), known)
    for line in (*checked.warnings, *checked.problems):
        print(line, file=sys.stderr)
    if not checked.is_accepted:
        return 1
    rows = stored_answers.from_submission(checked.observers, checked.info)
    stored_answers.write(pd.concat([answers, rows], ignore_index=True), path)
    print(f"added: {', '.join(rows['observer'])}")
    return 0


def _parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = command.parser("standing_table", __doc__)
    command.add_out(parser, "the page and its CSV files", pathlib.Path("docs"))
    actions = parser.add_subparsers(dest="action", metavar="store|add", required=False)
    storing = actions.add_parser("store", help="store the answers in published files")
    storing.add_argument("--decisions", type=pathlib.Path, required=True, metavar="RAW")
    storing.add_argument("--people", type=pathlib.Path, required=True, metavar="PEOPLE")
    adding = actions.add_parser("add", help="check a submission and store its answers")
    adding.add_argument("folder", type=pathlib.Path, metavar="SUBMISSION")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Write the pages, or the stored answers."""
    args = _parser().parse_args(argv)
    if args.action == "store":
        store(args.decisions, args.people)
    elif args.action == "add":
        return add(args.folder)
    else:
        write_pages(args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
