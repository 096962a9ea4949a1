"""Evaluation images a second against training images a second, all seeds at once.

    python -m benchmarks.eval [--setting=shapes] [--seeds=3] [--eval-batch=256]
        [--steps=8] [--rounds=7] [--torch=PYTHON|no]

In every round the seeds take some steps, and then decide, as a run does, about so many
images that each goes through the network as often as in these steps: from bytes on the
host to decisions on the host. PyTorch, in a process of its own, does the same with images
that are on the device. An evaluation is one pass of the three that a step makes, so
`evaluation / training` should be 3 or more. Writes
benchmarks/results/eval-<setting>-<backend>.json and .md.
"""

import jax
import numpy as np

from benchmarks import common, measured, roofline
from jbias.data import loader
from jbias.evals import inference
from jbias.runtime import mesh
from jbias.training import step as train_step


def main() -> None:
    """Measures, prints and writes."""
    parser = common.parser(__doc__)
    parser.add_argument("--algorithm", default="erm")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--eval-batch", type=int, default=256)
    options = parser.parse_args()
    setting, which = common.setting_of(options), range(options.seeds)
    stage = common.stage_of(
        options.algorithm, setting, which=which, precision=options.precision
    )
    trainer = common.Trainer(stage, which)
    shown = options.steps * setting.batch
    ways = {
        "training": common.repeated(trainer.run, options.steps),
        "evaluation": decider(trainer, shown, options.eval_batch),
    }
    with common.peer_of(options, setting, seeds=options.seeds) as other:
        if other:
            common.check_same_size(trainer, other.facts["parameters"])
            for name, way in (
                ("training", other.train),
                ("evaluation", other.evaluate),
            ):
                ways[f"{common.TORCH}, {name}"] = common.repeated(way, options.steps)
        seconds = measured.in_turns(ways, options.rounds)
    images = dict.fromkeys(seconds, shown * options.seeds)
    found = measured.against(seconds, "training", images)
    ratios = {"evaluation / training": found["evaluation"]["ratio"]}
    if other:
        theirs = found[f"{common.TORCH}, evaluation"]["images_per_second"]
        ours = found["evaluation"]["images_per_second"]
        ratios[f"evaluation / {common.TORCH}"] = ours / theirs
    work = roofline.evaluation(stage.algo.net, setting.size, options.eval_batch)
    rate = found["evaluation"]["images_per_second"]
    told = work.told(options.eval_batch / rate, jax.devices()[0].device_kind)
    text = measured.table(
        found, "training", f"{options.seeds} seeds, {options.setting}"
    )
    measured.write(
        common.name_of(options, "eval"),
        {"rates": found, "peer": other and other.facts, "roofline": told},
        f"{text}\n{roofline.markdown('evaluation, a batch of one seed', told)}",
        ratios=ratios,
        out=options.out,
        seeds=options.seeds,
        eval_batch=options.eval_batch,
        **common.describe_options(options, setting),
    )


def decider(trainer: common.Trainer, count: int, batch: int):
    """Decides about `count` images with every seed, as jbias.training.evaluator does."""
    stage = trainer.stage
    held = np.asarray(stage.shared(0)["train"]["image"])
    images = np.resize(held, (count, *held.shape[1:]))
    reading = loader.ReaderOptions(1)

    def decide() -> None:
        variables = tuple(train_step.net_of(tree) for tree in trainer.packed[0])
        batches = loader.batches([images], min(batch, count), reading)
        placed = (mesh.split(one, trainer.devices) for one in batches)
        rules, split = [inference.DecisionRule(count)], trainer.layout.split_wave
        score = stage.scorer({})
        list(inference.decide_sets(score, variables, placed, rules, split=split))

    return decide


if __name__ == "__main__":
    main()
