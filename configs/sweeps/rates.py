r"""A random search of a config's learning rate and decay; bad trials stop early.

    jbias sweep run --sweep=configs/sweeps/rates.py --workdir=runs/rates
    jbias sweep run --workdir=runs/rates-padain \
        --sweep=configs/sweeps/rates.py:config=padain,trials=30
"""

from jbias import config as jc
from jbias.launch import search_space


def get_sweep(arg: str = "") -> dict:
    """Return the search.

    arg: `config` is the name of a file in configs/, `of` its arguments, joined by +, and
    `trials` the number of trials.
    """
    arg = jc.parse_arg(arg, "sweep argument", config="erm", of="small", trials=12)
    return {
        "config": f"jbias:{arg.config}:{arg.of.replace('+', ',')}",
        "axes": {
            "optim.rate": search_space.log_uniform(0.003, 0.3),
            "optim.decay": search_space.choice(0.0, 5e-4),
        },
        "search": "random",
        "trials": arg.trials,
        "stop": "median",
    }
