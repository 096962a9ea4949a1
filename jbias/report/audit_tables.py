"""Tables of an audit: attributes ranked, curves, groups, pairs, probabilities."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from jbias.evals import attribute_audit, attribute_reliance
from jbias.report import audit_words, audited, tables

BINS = 20
_CELLS = 400  # Of an attribute whose groups the page shows.


def of(found: audited.Audited) -> Iterator[tuple[str, tables.Table]]:
    """Gives sections and tables."""
    yield "ranked", ranked(found)
    yield "likelihood", likelihood_table(found)
    for one in found.shown:
        if one.result.count.size <= _CELLS:
            yield "groups", groups(found, one)


def ranked(found: audited.Audited) -> tables.Table:
    """Attributes by how much they hurt."""
    rows, data, strong = [], [], set()
    for number, one in enumerate(found.candidates):
        values = found.values[one.name]
        told = [one.name, str(len(values)), audit_words.verdict(one), one.kind or "–"]
        record = {"rank": number + 1, "attribute": one.name, "values": len(values)}
        record |= {"verdict": one.verdict, "kind": one.kind, "other": one.other}
        if one.kind:
            shown, numbers = _numbers(found, one)
            told += shown
            record |= numbers
        else:
            told += ["–"] * (4 + len(found.kinds))
        rows.append(tuple(told))
        data.append(record)
        if one.verdict == "bug":
            strong |= {(number, j) for j in range(5)}
    head = ("attribute", "values", "verdict", "kind", "drop, points", "p, Holm")
    head += (*found.kinds, "in → out, %", "left within others")
    return tables.Table(
        name="ranked",
        caption=(
            "Attributes by how much they hurt. Drop: accuracy in distribution minus out of"
            " it at the extreme level, in points, [95 % interval];"
            f" {tables.join(found.kinds)}: the drop under this kind of shift; in → out: both accuracies;"
            " left within others: the drop where the bug ranked before it that explains"
            " most of it is held fixed. Bold: bugs."
        ),
        head=head,
        rows=tuple(rows),
        data=pd.DataFrame(data),
        strong=frozenset(strong),
        texts=4,
    )


def _numbers(
    found: audited.Audited, one: attribute_audit.Candidate
) -> tuple[list[str], dict[str, object]]:
    """Cells of a tested attribute, and the same in full."""
    kinds, extreme = one.result.kinds, one.result.kinds[one.kind].extreme
    shown = [audit_words.interval(one), tables.p_text(one.pvalues[one.kind])]
    shown += [audit_words.points(kinds[kind].drop) for kind in kinds]
    within, outside = map(audit_words.points, (extreme.within, extreme.outside))
    shown.append(f"{within} → {outside}")
    rest = one.remains
    shown.append(
        "–"
        if not one.other
        else f"{audit_words.points(rest.drop)} ({one.other})"
        if rest
        else f"not told apart ({one.other})"
    )
    record = {"drop": one.drop, "drop_low": extreme.low, "drop_high": extreme.high}
    record |= {"p_holm": one.pvalues[one.kind]}
    for kind, here in kinds.items():
        record |= {
            f"{kind}_drop": here.drop,
            f"{kind}_low": here.extreme.low,
            f"{kind}_high": here.extreme.high,
            f"{kind}_relative": here.relative,
            f"{kind}_area": here.area,
            f"{kind}_p_holm": one.pvalues[kind],
        }
    record |= {"within": extreme.within, "outside": extreme.outside}
    record |= {
        "remaining": rest.drop if rest else None,
        "remaining_low": rest.low if rest else None,
        "remaining_high": rest.high if rest else None,
    }
    record |= {"direction": audit_words.direction(found, one)}
    return shown, record


def curves(found: audited.Audited) -> pd.DataFrame:
    """Every level of every attribute."""
    return pd.DataFrame(
        [
            {"attribute": one.name, "kind": kind, **point._asdict()}
            for one in found.candidates
            for kind, here in one.result.kinds.items()
            for point in here.curve
        ],
        columns=["attribute", "kind", *attribute_reliance.Point._fields],
    )


def cells(found: audited.Audited) -> pd.DataFrame:
    """Every class and value that has a part, of every attribute."""
    rows = []
    for one in found.candidates:
        for (k, a), n in np.ndenumerate(one.result.count):
            rows.append(
                {
                    "attribute": one.name,
                    "class": found.classes[one.result.classes[k]],
                    "value": found.values[one.name][one.result.values[a]],
                    "images": int(n),
                    "accuracy": float(one.result.accuracy[k, a]),
                }
            )
    columns = ["attribute", "class", "value", "images", "accuracy"]
    return pd.DataFrame(rows, columns=columns)


def groups(found: audited.Audited, one: attribute_audit.Candidate) -> tables.Table:
    """Accuracy of each class and value, deep where they agree."""
    share, values = one.result.accuracy, found.values[one.name]
    contrast = one.result.kinds[one.kind].chosen.contrast()
    names = [found.classes[k] for k in one.result.classes]
    head = [values[a] for a in one.result.values]
    rows = [
        (name, *(f"{100 * p:.0f} ({n})" for p, n in zip(line, counts, strict=True)))
        for name, line, counts in zip(names, share, one.result.count, strict=True)
    ]
    shade = {(k, a + 1): 0.35 for k, a in np.argwhere(contrast > 1e-12).tolist()}
    worst = np.unravel_index(share.argmin(), share.shape)
    data = pd.DataFrame(share, columns=tables.apart(head, ["class"]))
    data.insert(0, "class", names)
    return tables.Table(
        name=f"groups_{one.name}",
        caption=(
            f"{one.name}: accuracy in % (images) of each class and value. Shaded: where"
            f" they agree, as chosen on all images ({one.kind}). Bold: the worst group."
            f" Worst {100 * share.min():.1f} %, mean over groups"
            f" {100 * share.mean():.1f} %."
        ),
        head=("class", *head),
        rows=tuple(rows),
        data=data,
        strong=frozenset({(int(worst[0]), int(worst[1]) + 1)}),
        shade=shade,
    )


def likelihood(found: audited.Audited, one: attribute_audit.Candidate) -> pd.DataFrame:
    """Shares of images by the probability of their right class, in and out."""
    both = attribute_audit.shift_weights(
        one.result, one.kind, found.label, found.columns[one.name]
    )
    edges = np.linspace(0, 1, BINS + 1)
    data = pd.DataFrame({"low": edges[:-1], "high": edges[1:]})
    for name, weight in zip(("within", "outside"), both, strict=True):
        shares = [np.histogram(p, edges, weights=weight)[0] for p in found.likelihood]
        data[name] = np.mean(shares, 0)
    data.insert(0, "attribute", one.name)
    return data


def means(found: audited.Audited, one: attribute_audit.Candidate) -> list[float]:
    """The mean probability of the right class, in and out of distribution."""
    both = attribute_audit.shift_weights(
        one.result, one.kind, found.label, found.columns[one.name]
    )
    return [float((found.likelihood * weight).sum(1).mean()) for weight in both]


def likelihood_table(found: audited.Audited) -> tables.Table:
    """Means of probabilities in and out of distribution."""
    rows, data = [], []
    for one in found.candidates:
        if not one.kind:
            continue
        both = attribute_audit.shift_weights(
            one.result, one.kind, found.label, found.columns[one.name]
        )
        record = {"attribute": one.name, "kind": one.kind}
        for name, weight in zip(("within", "outside"), both, strict=True):
            record |= {
                f"likelihood_{name}": float((found.likelihood * weight).sum(1).mean()),
                f"confidence_{name}": float((found.confidence * weight).sum(1).mean()),
            }
        numbers = [f"{record[key]:.3f}" for key in [*record][2:]]
        rows.append((one.name, one.kind, *numbers))
        data.append(record)
    return tables.Table(
        name="likelihood",
        caption=(
            "Mean probability of the right class, and of the decided one, on sets of the"
            " extreme level, in and out of distribution."
        ),
        head=(
            *("attribute", "kind", "right, in", "decided, in"),
            *("right, out", "decided, out"),
        ),
        rows=tuple(rows),
        data=pd.DataFrame(data),
        texts=2,
    )


def flips(found: audited.Audited) -> pd.DataFrame:
    """The pairs that are drawn."""
    rows = []
    for name, shown in found.examples.items():
        for pair in shown.pairs:
            row = {"attribute": name, "class": found.classes[found.label[pair.agrees]]}
            for side in ("agrees", "disagrees"):
                i = getattr(pair, side)
                row |= {
                    f"{side}_image": int(found.index[i]),
                    f"{side}_value": found.values[name][found.columns[name][i]],
                    f"{side}_decided": found.answers[found.prediction[0, i]],
                    f"{side}_confidence": float(found.confidence[0, i]),
                    f"{side}_likelihood": float(found.likelihood[0, i]),
                }
            rows.append(row | {"shared": pair.shared})
    return pd.DataFrame(rows)
