"""Measure evaluation images per second, compared with training, for all seeds together.

    python -m benchmarks.eval [--setting=shapes] [--seeds=3] [--eval-batch=256]
        [--steps=8] [--rounds=7] [--torch=PYTHON|no]

In every round the seeds train for some steps and then evaluate as many images as the steps
had, like a run: from bytes on the host to decisions on the host. PyTorch does the same in its
own process, with images on the device. A training step costs about three forward passes and
an evaluation one, so `evaluation / training` should be 3 or more. Writes
benchmarks/results/eval-<setting>-<backend>.json and .md.

Takes about two minutes on two cores.
"""

from collections.abc import Callable

import jax
import numpy as np

from benchmarks import common, result_files, roofline, timing
from jbias.data import loader
from jbias.evals import inference
from jbias.runtime import mesh
from jbias.training import step as train_step


def main() -> None:
    """Measure training and evaluation, print and write the results."""
    parser = common.parser(__doc__)
    add = parser.add_argument
    add("--algorithm", default="erm", help="algorithm to train (default: erm)")
    add("--seeds", type=int, default=3, help="number of seeds (default: 3)")
    add(
        "--eval-batch",
        type=int,
        default=256,
        help="images in a batch of the evaluation (default: 256)",
    )
    options = parser.parse_args()
    setting, which = common.setting_of(options), range(options.seeds)
    stage = common.stage_of(
        options.algorithm, setting, which=which, precision=options.precision
    )
    trainer = common.Trainer(stage, which)
    num_images = options.steps * setting.batch
    variants = {
        "training": common.repeated(trainer.run, options.steps),
        "evaluation": make_evaluation(trainer, num_images, options.eval_batch),
    }
    with common.peer_of(options, setting, seeds=options.seeds) as peer:
        if peer:
            common.check_same_size(trainer, peer.facts["parameters"])
            variants[f"{common.TORCH}, training"] = common.repeated(
                peer.train, options.steps
            )
            variants[f"{common.TORCH}, evaluation"] = common.repeated(
                peer.evaluate, options.steps
            )
        seconds = timing.in_turns(variants, options.rounds)
    images = dict.fromkeys(seconds, num_images * options.seeds)
    rates = timing.against(seconds, "training", images)
    ratios = {"evaluation / training": rates["evaluation"]["ratio"]}
    if peer:
        theirs = rates[f"{common.TORCH}, evaluation"]["images_per_second"]
        ours = rates["evaluation"]["images_per_second"]
        ratios[f"evaluation / {common.TORCH}"] = ours / theirs
    work = roofline.evaluation(stage.algo.net, setting.size, options.eval_batch)
    rate = rates["evaluation"]["images_per_second"]
    limits = work.utilisation(options.eval_batch / rate, jax.devices()[0].device_kind)
    text = timing.table(rates, "training", f"{options.seeds} seeds, {options.setting}")
    result_files.write(
        common.name_of(options, "eval"),
        {"rates": rates, "peer": peer and peer.facts, "roofline": limits},
        f"{text}\n{roofline.markdown('evaluation, a batch of one seed', limits)}",
        ratios=ratios,
        out=options.out,
        seeds=options.seeds,
        eval_batch=options.eval_batch,
        **common.describe_options(options, setting),
    )


def make_evaluation(
    trainer: common.Trainer, count: int, batch: int
) -> Callable[[], None]:
    """Return a function that evaluates `count` images with every seed of a trainer.

    The evaluation is that of jbias.training.evaluator, in batches of `batch` images.
    """
    stage = trainer.stage
    train_images = np.asarray(stage.feed.shared(0)["train"]["image"])
    images = np.resize(train_images, (count, *train_images.shape[1:]))
    reading = loader.ReaderOptions(1)

    def evaluate() -> None:
        variables = tuple(train_step.net_of(tree) for tree in trainer.packed[0])
        batches = loader.batches([images], min(batch, count), reading)
        on_devices = (mesh.split(rows, trainer.devices) for rows in batches)
        rules, split = [inference.DecisionRule(count)], trainer.layout.split_wave
        score = trainer.placed.scorer("auto")
        list(inference.decide_sets(score, variables, on_devices, rules, split=split))

    return evaluate


if __name__ == "__main__":
    main()
