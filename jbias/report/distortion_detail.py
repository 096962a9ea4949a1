"""Further tables of the data-distortion study: what the paper's tables choose from."""

import numpy as np
from jaxtyping import Float

from jbias.evals import interference
from jbias.report import (
    distortion_claims,
    distortion_gaps,
    distortion_places,
    distortion_read,
    distortion_values,
    tables,
)

_INTERFERING = ("grid_shuffle", "cut_occlusion", "occlusion")


def groups(study: distortion_values.Study) -> tables.Table:
    """Says which networks there are, and how good."""
    rows = []
    for key, group in study.groups.items():
        found = study.value("accuracy", key)
        row = key.cells | {"seeds": ", ".join(map(str, group.seeds))}
        row |= {"n": len(group.seeds), "images": found and found.images}
        row |= {"accuracy": found and found.mean, "std": found and found.std}
        row |= {"workdirs": " ".join(str(one.workdir) for one in group.networks)}
        rows.append(row)
    return tables.from_rows(
        "groups",
        "Networks by what they were trained with, and accuracy in % on the test images as "
        "they are, mean and standard deviation over n seeds.",
        rows,
        {
            **distortion_read.HEADS,
            "seeds": ("seeds", str),
            "n": ("n", tables.whole),
            "images": ("images", tables.whole),
            "accuracy": ("accuracy", tables.digits(2)),
            "std": ("±", tables.digits(2)),
        },
    )


def indices(study: distortion_values.Study) -> tables.Table | None:
    """Shows both variants of the index, and the worst case, under every distortion."""
    rows = []
    for key, group in study.groups.items():
        for place, condition in _conditions(group):
            row = key.cells | {"measure": "@".join(place), "condition": condition}
            for variant in interference.VARIANTS:
                found = distortion_values.index(
                    group, place, condition, variant=variant
                )
                if found is None:
                    break
                row |= {f"{variant}_mean": found.mean, f"{variant}_std": found.std}
                row |= {f"{variant}_low": found.low, f"{variant}_high": found.high}
                row |= {f"{variant}_worst": found.worst, "n": len(found.runs)}
                row |= {"by_chance": row.get("by_chance", found.chance)}
                row |= {"images": found.images}
                row |= {f"{variant}_dominant": found.dominant or "none"}
            else:
                rows.append(row)
    shown = tables.digits(2)
    return tables.from_rows(
        "indices",
        "The DI index in % under each distortion. Share: growth of a class's share of the "
        "wrong predictions, as released and in the tables above; count: growth of its "
        "number, by the number of images, as the paper words it. Worst: every seed with the "
        "largest growth of any. From, to: the middle 95 % of redraws of n seeds, of five or "
        "more; no interval of 95 %. By chance: share, were no class preferred.",
        rows,
        {
            **distortion_read.HEADS,
            "measure": ("measure", str),
            "condition": ("condition", str),
            "share_dominant": ("class", str),
            "n": ("n", tables.whole),
            "images": ("images", tables.whole),
            "share_mean": ("share", shown),
            "share_std": ("±", shown),
            "share_low": ("from", shown),
            "share_high": ("to", shown),
            "by_chance": ("by chance", shown),
            "share_worst": ("worst", shown),
            "count_mean": ("count", shown),
            "count_std": ("±", shown),
            "count_worst": ("worst", shown),
        },
    )


def _conditions(group: distortion_read.Group):
    """Gives the distortions of which decisions were kept; of curves the part of Table 4."""
    found: dict = {}
    for one in group.networks:
        for probe in _INTERFERING:
            for place in one.of(probe):
                if place[1] == "train":
                    continue
                names = distortion_places.accuracies(one, place)
                if probe == "occlusion":
                    ending = f" {distortion_gaps.PART}"
                    names = [name for name in names if name.endswith(ending)]
                found |= dict.fromkeys((place, name) for name in names if name)
    return found


def digits(study: distortion_values.Study) -> tables.Table | None:
    """Shows, by digit, how often it and how often the photograph below it is answered."""
    rows = []
    for key, group in study.groups.items():
        if key.data != distortion_read.STACKED:
            continue
        basic = study.groups.get(key._replace(method="basic"))
        before = followed(basic) if basic and key.method != "basic" else {}
        for digit, shares in followed(group).items():
            own, photo = _shares(shares)
            lead = _lead(shares)
            row = {"model": key.model, "digit": digit, "method": key.method}
            row |= {"n": len(shares), "digit_mean": own.mean, "digit_std": own.std}
            row |= {"photo_mean": photo.mean, "photo_std": photo.std}
            row |= {"lead": lead.mean, "lead_low": lead.low, "lead_high": lead.high}
            if digit in before:
                row["change"] = photo.mean - _shares(before[digit])[1].mean
                row["flips"] = _flips(_lead(before[digit]), lead)
            rows.append(row)
    shown = tables.digits(1)
    return tables.from_rows(
        "digits",
        "Which digits flip: of stacked images whose halves are of different classes, the share "
        "in % that is answered by the digit and by the photograph, mean and standard deviation "
        "over n seeds. Change: of answers by the photograph against the basic networks, in "
        "points. Lead: the photograph less the digit, with Student's interval of 95 % over seeds. "
        "A digit flips where basic networks answer it more often than the photograph, and "
        "these the other way about: yes where both intervals are beyond 0, no where one is on "
        "the other side, else it cannot be told, as of one seed. In brackets the photographs' "
        "class of that number.",
        rows,
        {
            "model": ("Model", str),
            "digit": ("digit", str),
            "method": ("method", str),
            "flips": ("flips", str),
            "n": ("n", tables.whole),
            "digit_mean": ("by digit", shown),
            "digit_std": ("±", shown),
            "photo_mean": ("by photograph", shown),
            "photo_std": ("±", shown),
            "change": ("change", shown),
            "lead": ("lead", shown),
            "lead_low": ("from", shown),
            "lead_high": ("to", shown),
        },
    )


def _shares(shares: Float[np.ndarray, "r 2"]) -> list[distortion_values.Values]:
    return [distortion_values.plain(range(len(shares)), column) for column in shares.T]


def _lead(shares: Float[np.ndarray, "r 2"]) -> distortion_values.Values:
    """By how much the photograph is answered more often than the digit."""
    ends = (-100, 100)
    return distortion_values.plain(
        range(len(shares)), shares[:, 1] - shares[:, 0], within=ends
    )


def _flips(before: distortion_values.Values, now: distortion_values.Values) -> str:
    """Whether the digit led before and the photograph does now."""
    if before.high < 0 < now.low:
        return "yes"
    return "no" if before.low > 0 or now.high < 0 else distortion_claims.UNKNOWN


def followed(group: distortion_read.Group) -> dict[str, Float[np.ndarray, "r 2"]]:
    """Gives, by digit and seed, the shares in % answered by digit and by photograph.

    Of images whose halves conflict, of the seeds whose decisions were kept.
    """
    place = distortion_places.where(group, "plain", on="stacked_cifar")
    found: dict[str, list[list[float]]] = {}
    for one in group.networks:
        decided = one.decided(place).get("") if place in one.measures else None
        if decided is None or "texture" not in decided.columns:
            continue
        photo, digit = decided.columns["label"], decided.columns["texture"]
        answer, names = decided.prediction, one.classes(place)
        for c in np.unique(digit[digit >= 0]):
            among = answer[(digit == c) & (photo != c)]
            photos = photo[(digit == c) & (photo != c)]
            if not len(among):
                continue
            name = f"{c} ({names[c]})" if names else str(c)
            shares = [100 * float((among == x).mean()) for x in (c, photos)]
            found.setdefault(name, []).append(shares)
    return {name: np.array(shares) for name, shares in found.items()}
