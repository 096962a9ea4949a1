"""The words of a report, each in a sentence, for those who do not test every day."""

import types
from collections.abc import Mapping

TERMS: Mapping[str, str] = types.MappingProxyType(
    {
        "p": "How often scores as far apart as these, or farther, would come out if the "
        "algorithms were all alike. It is not the chance that they are alike.",
        "Mean rank": "An algorithm's place on each data set, 1 the best, averaged over data sets. "
        "Ranks do not see by how much it is ahead.",
        "Critical difference": "How far apart two mean ranks must lie for Nemenyi's test to tell them apart.",
        "Kendall's W": "How far the data sets agree on the order: 1 if all do, 0 if there is no "
        "order.",
        "P better, P equivalent": "How probably one algorithm is better than another by more than the "
        "difference that matters, or the same up to it, on data sets like these "
        "(--points sets it).",
        "Bradley-Terry": "A model of who wins on a data set, not by how much; what it says of a pair "
        "leans on all other pairs, so it may be surer than a test of the pair alone.",
        "Redrawn seeds": "The runs that there are, drawn again with replacement: what other seeds "
        "might have given. Redrawn data sets: likewise, what other data sets might "
        "have.",
        "IQM": "Interquartile mean: the mean of the middle half of all runs on all data "
        "sets, where 0 is the worst run of a data set and 1 the best. Larger is "
        "better.",
        "Optimality gap": "How far scores lie below the best run, on average, on that scale. Smaller is "
        "better.",
        "P(run)": "How probably one run of the first beats one run of the second on a data set.",
        "r, g": "Sizes of a difference over data sets. r, from -1 to 1: how one-sided the "
        "ranks of the differences are. g: the mean difference by its deviation; 0.8 "
        "is called large.",
        "Mixed model's p": "Of the mean difference, if data sets and seeds were drawn at random. All "
        "pairs share one spread, so one odd algorithm blurs, or sharpens, the others.",
        "Power": "How often a study like this would find a difference of that size. Where it "
        "is low, finding nothing means nothing.",
    }
)
