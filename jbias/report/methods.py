"""The paragraph on methods that a paper needs, and the works it cites, as BibTeX."""

import importlib.metadata
import platform
import textwrap
import types
from collections.abc import Mapping

import jbias
from jbias.report import evidence as evidence_lib
from jbias.report import study as study_lib
from jbias.report import tables, words
from jbias.terminal import messages

BIB: Mapping[str, str] = types.MappingProxyType(
    {
        "friedman1937": """@article{friedman1937,
  author = {Friedman, Milton},
  title = {The use of ranks to avoid the assumption of normality implicit in the analysis of variance},
  journal = {Journal of the American Statistical Association},
  volume = {32}, number = {200}, pages = {675--701}, year = {1937}
}""",
        "iman1980": """@article{iman1980,
  author = {Iman, Ronald L. and Davenport, James M.},
  title = {Approximations of the critical region of the {F}riedman statistic},
  journal = {Communications in Statistics - Theory and Methods},
  volume = {9}, number = {6}, pages = {571--595}, year = {1980}
}""",
        "nemenyi1963": """@phdthesis{nemenyi1963,
  author = {Nemenyi, Peter},
  title = {Distribution-free multiple comparisons},
  school = {Princeton University}, year = {1963}
}""",
        "demsar2006": """@article{demsar2006,
  author = {Dem{\\v{s}}ar, Janez},
  title = {Statistical comparisons of classifiers over multiple data sets},
  journal = {Journal of Machine Learning Research},
  volume = {7}, pages = {1--30}, year = {2006}
}""",
        "quade1979": """@article{quade1979,
  author = {Quade, Dana},
  title = {Using weighted rankings in the analysis of complete blocks with additive block effects},
  journal = {Journal of the American Statistical Association},
  volume = {74}, number = {367}, pages = {680--683}, year = {1979}
}""",
        "hodges1962": """@article{hodges1962,
  author = {Hodges, Joseph L. and Lehmann, Erich L.},
  title = {Rank methods for combination of independent experiments in analysis of variance},
  journal = {The Annals of Mathematical Statistics},
  volume = {33}, number = {2}, pages = {482--497}, year = {1962}
}""",
        "conover1999": """@book{conover1999,
  author = {Conover, William J.},
  title = {Practical Nonparametric Statistics},
  edition = {3rd}, publisher = {Wiley}, year = {1999}
}""",
        "wilcoxon1945": """@article{wilcoxon1945,
  author = {Wilcoxon, Frank},
  title = {Individual comparisons by ranking methods},
  journal = {Biometrics Bulletin},
  volume = {1}, number = {6}, pages = {80--83}, year = {1945}
}""",
        "holm1979": """@article{holm1979,
  author = {Holm, Sture},
  title = {A simple sequentially rejective multiple test procedure},
  journal = {Scandinavian Journal of Statistics},
  volume = {6}, number = {2}, pages = {65--70}, year = {1979}
}""",
        "dunn1961": """@article{dunn1961,
  author = {Dunn, Olive Jean},
  title = {Multiple comparisons among means},
  journal = {Journal of the American Statistical Association},
  volume = {56}, number = {293}, pages = {52--64}, year = {1961}
}""",
        "westfall1993": """@book{westfall1993,
  author = {Westfall, Peter H. and Young, S. Stanley},
  title = {Resampling-Based Multiple Testing},
  publisher = {Wiley}, year = {1993}
}""",
        "benavoli2017": """@article{benavoli2017,
  author = {Benavoli, Alessio and Corani, Giorgio and Dem{\\v{s}}ar, Janez and Zaffalon, Marco},
  title = {Time for a change: a tutorial for comparing multiple classifiers through {B}ayesian analysis},
  journal = {Journal of Machine Learning Research},
  volume = {18}, number = {77}, pages = {1--36}, year = {2017}
}""",
        "corani2017": """@article{corani2017,
  author = {Corani, Giorgio and Benavoli, Alessio and Dem{\\v{s}}ar, Janez and Mangili, Francesca and Zaffalon, Marco},
  title = {Statistical comparison of classifiers through {B}ayesian hierarchical modelling},
  journal = {Machine Learning},
  volume = {106}, number = {11}, pages = {1817--1837}, year = {2017}
}""",
        "wainer2023": """@article{wainer2023,
  author = {Wainer, Jacques},
  title = {A {B}ayesian {B}radley-{T}erry model to compare multiple {ML} algorithms on multiple data sets},
  journal = {Journal of Machine Learning Research},
  volume = {24}, number = {341}, pages = {1--34}, year = {2023}
}""",
        "agarwal2021": """@inproceedings{agarwal2021,
  author = {Agarwal, Rishabh and Schwarzer, Max and Castro, Pablo Samuel and Courville, Aaron and Bellemare, Marc G.},
  title = {Deep reinforcement learning at the edge of the statistical precipice},
  booktitle = {Advances in Neural Information Processing Systems},
  volume = {34}, year = {2021}
}""",
        "vargha2000": """@article{vargha2000,
  author = {Vargha, Andr{\\'a}s and Delaney, Harold D.},
  title = {A critique and improvement of the {CL} common language effect size statistics of {McGraw} and {Wong}},
  journal = {Journal of Educational and Behavioral Statistics},
  volume = {25}, number = {2}, pages = {101--132}, year = {2000}
}""",
        "kalischek2023": """@inproceedings{kalischek2023,
  author = {Kalischek, Nikolai and Daudt, Rodrigo Caye and Peters, Torben and Furrer, Reinhard and Wegner, Jan D. and Schindler, Konrad},
  title = {{BiasBed} - rigorous texture bias evaluation},
  booktitle = {IEEE/CVF Conference on Computer Vision and Pattern Recognition},
  year = {2023}
}""",
    }
)


def versions() -> str:
    """Names what computed the numbers."""
    packages = ("numpy", "scipy", "pandas")
    told = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
    return f"jbias {jbias.__version__} (Python {platform.python_version()}, {told})"


def bib(keys) -> str:
    """Gives the BibTeX entries of these works."""
    entry = f"@software{{jbias,\n  author = {{{{The jbias authors}}}},\n  title = {{jbias}},\n  version = {{{jbias.__version__}}}\n}}"
    return "\n\n".join([*(BIB[key] for key in dict.fromkeys(keys)), entry]) + "\n"


def paragraph(
    study: study_lib.Study,
    analysis: study_lib.Analysis,
    evidence: evidence_lib.Evidence | None,
) -> tuple[str, list[str]]:
    """Gives the text, citations as [key], and the keys in their order."""
    told = [_compared(study)]
    if evidence is None:
        told.append(f"No hypothesis was tested. Computed with {versions()}.")
        return " ".join(told), ["kalischek2023"]
    told += [*_tests(analysis, evidence), *_seeds(evidence)]
    told.append(f"Computed with {versions()}, after BiasBed [kalischek2023].")
    text = " ".join(told)
    return text, sorted(
        (key for key in BIB if f"[{key}" in text or f"; {key}" in text),
        key=lambda key: text.index(key),
    )


def _compared(study: study_lib.Study) -> str:
    metric = study.metric.replace("_", " ")
    what = "seeds" if study.is_runs else "runs"
    counts = sorted(set(study.values.groupby("algorithm")["seed"].nunique()))
    number = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return (
        f"We compare {len(study.algorithms)} algorithms on {len(study.datasets)} data sets "
        f"by {metric} ({'larger' if study.larger_is_better else 'smaller'} is better), with "
        f"{number} {what} each; reported is {study.rule}."
    )


def _tests(analysis: study_lib.Analysis, evidence: evidence_lib.Evidence) -> list[str]:
    f, n, k = analysis.friedman, len(analysis.datasets), len(analysis.algorithms)
    exact = analysis.permutation
    how = "all" if exact.exact else f"{exact.permutations:,} random"
    left = [f"{name} ({why})" for name, why in analysis.left_out]
    told = [
        (
            f"Scores are averaged over runs and ranked on each data set. The hypothesis that "
            f"all {k} algorithms rank alike on {n} data sets is tested by Friedman's test "
            "[friedman1937] with correction for ties, in Iman and Davenport's form "
            f"[iman1980; demsar2006], F({f.df[0]}, {f.df[1]}) = {words.f_text(f)}, "
            f"p {_p(f.pvalue)}, and, which counts, by {how} permutations within data sets, "
            f"p {_p(exact.pvalue)}."
        ),
        (
            f"Pairs are compared at the level {analysis.alpha:g} by Nemenyi's test [nemenyi1963], "
            "from the studentised range, and only if the permutation test rejects; beside it "
            "stand max-T by permutation [westfall1993], Conover's test [conover1999] and the "
            f"{'exact ' if evidence.wilcoxon.exact else ''}Wilcoxon signed-rank test "
            "[wilcoxon1945], both adjusted by Holm [holm1979], "
            "Quade's test [quade1979] and aligned ranks [hodges1962]."
        ),
        (
            "Bayesian answers are from the signed-rank test with a region of practical "
            f"equivalence of {evidence.rope:g} [benavoli2017]"
            f"{_terry(evidence)}."
        ),
    ]
    if evidence.control is not None:
        told.append(
            f"Comparisons with {evidence.control.control} alone are adjusted after Dunn "
            "[dunn1961] and Holm."
        )
    if left:
        told.append(f"Left out of the tests: {'; '.join(left)}.")
    return told


def _terry(evidence: evidence_lib.Evidence) -> str:
    if evidence.bradley_terry is None:
        return ""
    return " and the Bradley-Terry model [wainer2023]"


def _seeds(evidence: evidence_lib.Evidence) -> list[str]:
    if evidence.runs is None:
        return [f"The spread over runs is not analysed: {evidence.no_seeds}."]
    return [
        (
            f"Intervals are 95 % percentile bootstrap intervals of {evidence.draws:,} draws; "
            "runs are redrawn within "
            "algorithms, for all data sets together, and for statements on other data sets the "
            "data sets too. Interquartile means, optimality gaps and performance profiles "
            "follow [agarwal2021], on scores normalised by the worst and best run of each data "
            "set; the probability that one run beats another is Vargha and Delaney's A "
            "[vargha2000]. Where runs and data sets are samples, a linear mixed model has "
            "random effects of data sets, of data sets by algorithms and of runs. The best of a "
            "data set is told from others by Welch's t test, Bonferroni for all pairs, with "
            "variances of at least the pooled one. Power is by simulation from the spread of "
            "algorithms between data sets and of runs."
        )
    ]


def _p(p: float) -> str:
    shown = tables.p_text(p)
    return shown if shown.startswith("<") else f"= {shown}"


def markdown(text: str) -> str:
    """Wraps the paragraph for a file."""
    lines = textwrap.wrap(text, 100, break_on_hyphens=False)
    return "".join(messages.shown(line) + "\n" for line in lines)
