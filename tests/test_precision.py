"""What bfloat16, the precision of accelerators, changes in decisions: nearly nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import common
from jbias import run_spec
from jbias.configs import erm
from jbias.data import loader
from jbias.evals import inference
from jbias.training import setup
from jbias.training import step as train_step


@pytest.mark.slow
def test_decisions_in_bfloat16_are_those_of_float32(tmp_path):
    """On 98.5 % of each of the embedded default's sets, and on 99 % of all images.

    Accuracies move by one point at most. Measured when this was written: 99.4 to 100 %,
    99.7 % and 0.4 points.
    """
    config = erm.get_config("seeds=1")
    config.model, config.optim.rate = {"name": "cnn", "width": 16}, 0.01
    config.train.n, config.epochs = 2048, 4.0
    job = setup.open_run(
        run_spec.RunSpec.from_config(config), tmp_path, lambda line: None
    )
    job.checkpoints.close()
    (stage,) = job.stages
    trainer = common.Trainer(stage)
    trainer.run(stage.last)
    (state,) = trainer.states

    def decided(dtype):
        net = stage.algo.net.clone(dtype=dtype)
        one = jax.jit(inference.make_scorer(net.apply), static_argnums=3)
        images = [test.images for test in job.tests]
        return inference.decide_sets(
            lambda nets, _, image, __: (one(*nets, (), image, None),),
            (train_step.net_of(state),),
            map(jnp.asarray, loader.batches(images, 256, loader.ReaderOptions(1))),
            [
                inference.DecisionRule(len(t.images), t.matrix, t.aggregate)
                for t in job.tests
            ],
        )

    same, accuracies = {}, {}
    both = zip(decided(jnp.float32), decided(jnp.bfloat16), strict=True)
    for test, ((full,), (half,)) in zip(job.tests, both, strict=True):
        label = test.columns["label"]
        accuracies[test.name] = np.mean(full == label), np.mean(half == label)
        same[test.name] = full == half
    assert accuracies["valid"][0] > 0.7, "choose a longer training"
    for name, one in same.items():
        assert np.mean(one) >= 0.985, name
        assert abs(np.subtract(*accuracies[name])) <= 0.01, name
    assert np.mean(np.concatenate([*same.values()])) >= 0.99
