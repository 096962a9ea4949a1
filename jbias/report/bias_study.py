"""The study of biases and generalisation: correlations of one frame of models."""

import dataclasses

import pandas as pd

from jbias.report import bias_models, relations

LEAST = 4  # Models of a choice.


def analyse(
    models: bias_models.Models,
    *,
    adjust: str = "holm",
    alpha: float = 0.05,
    permutations: int = 9_999,
    seed: int = 0,
) -> relations.Study:
    """Correlates biases with averages, and benchmarks and biases among themselves.

    Over all models, and where there are enough of both over the adversarially trained
    and the others. Raises ValueError for fewer than 4 models.
    """
    frame = models.frame
    if len(frame) < LEAST:
        raise ValueError(
            f"{models.source}: must hold at least {LEAST} models to correlate, got "
            f"{len(frame)}; python -m jbias.report.measured shows fewer"
            f"{''.join(f' ({one})' for one in models.counted)}"
        )
    trained = (frame["training"] == bias_models.AT).sum()
    split = LEAST <= trained <= len(frame) - LEAST
    among = [names for names in (models.benchmarks, models.biases) if len(names) > 1]
    options = relations.Options(
        x=models.biases,
        y=tuple(models.members),
        category="training",
        among=tuple(among),
        split=bias_models.AT if split else None,
        size="epsilon" if frame["epsilon"].notna().any() else None,
        adjust=adjust,
        alpha=alpha,
        permutations=permutations,
        seed=seed,
    )
    return relations.analyse(frame, options, source=models.source)


def titled(study: relations.Study) -> relations.Study:
    """Gives a study with titles for the names of measures and categories, to be shown."""

    def title(name):
        if not isinstance(name, str):
            return name
        return bias_models.TITLES.get(name, name)

    def family(one):
        tables = {
            key: getattr(one, key).rename(index=title, columns=title)
            for key in ("statistic", "pvalue", "holm", "bh")
        }
        return dataclasses.replace(one, **tables)

    def told(frame: pd.DataFrame, columns):
        known = [name for name in columns if name in frame]
        return frame.assign(**{name: frame[name].map(title) for name in known})

    options = study.options
    return dataclasses.replace(
        study,
        options=dataclasses.replace(
            options,
            x=tuple(map(title, options.x)),
            y=tuple(map(title, options.y)),
            among=tuple(tuple(map(title, names)) for names in options.among),
            split=title(options.split),
            size=title(options.size),
        ),
        frame=told(study.frame, ["training"]).rename(columns=title),
        families={title(name): family(one) for name, one in study.families.items()},
        pairs=told(study.pairs, ["models", "x", "y"]),
        influential=told(study.influential, ["x", "y", "category"]),
        among=tuple(map(family, study.among)),
    )
