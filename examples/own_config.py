"""An experiment with an algorithm of your own; the rest is configs/common.py.

jbias train --config=examples/own_config.py --config.algo.strength=0.5
"""

from jbias.configs import common


def get_config(arg=""):
    """Return the config; the command line can change its options, such as algo.strength."""
    algo = dict(name="examples/own_algorithm.py:make", strength=0.1)
    return common.experiment(arg, algo)
