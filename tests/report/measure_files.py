"""Writer of a measure in a workdir, as `jbias evaluate --suite` writes it, and its page."""

import json

from jbias.evals import decision_files
from jbias.report.pages.networks import networks_page
from jbias.runs import results


def write(
    folder, fields, measure, dataset, numbers, description, decisions_by_condition
):
    """Write the records, the description and the decisions of a measure.

    fields: fields of all records. numbers: values with conditions. description: what the
    JSON file of the measure has. decisions_by_condition: None for no decisions.
    """
    prefix = "" if measure == "accuracy" else measure
    records = [
        results.Record(
            **fields,
            dataset=dataset,
            **number._replace(
                condition="/".join(filter(None, (prefix, number.condition)))
            )._asdict(),
        )
        for number in numbers
    ]
    results.write(folder / "evals" / f"{measure}@{dataset}.jsonl", records)
    path = folder / "measures" / f"{measure}@{dataset}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(description))
    if decisions_by_condition:
        path = folder / "decisions" / dataset / f"{measure}.parquet"
        decision_files.write_conditions(path, decisions_by_condition)


def section_blocks(networks, notes=None, **options):
    """Yield (id of the section, block) for the page of measured networks, without its caveats."""
    notes = [] if notes is None else notes
    for section in networks_page.make_sections(networks, notes, **options):
        for block in section.blocks:
            yield section.id, block
