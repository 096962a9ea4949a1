r"""The benchmark's eight algorithms, one trial each, as `make eight` trains them.

    jbias prepare deepaugment --net=cae --data=shapes --split=train \
        --out=prepared/cae
    jbias prepare deepaugment --net=edsr --data=shapes --split=train \
        --out=prepared/edsr
    jbias sweep run --sweep=configs/sweeps/eight.py --workdir=runs/eight

:of=small+seeds=1   arguments of the configs, joined by +
:prepared=DIR       folder of the images made by `jbias prepare deepaugment`
"""

from jbias import config as jc

ALGORITHMS = ("erm", "stylized_erm", "debiased", "infodrop", "sagnet", "padain")


def get_sweep(arg: str = "") -> dict:
    """Return the search; the top of this file documents `arg`."""
    arg = jc.parse_arg(arg, "sweep argument", of="small", prepared="prepared")
    config_arguments = arg.of.replace("+", ",")
    configs = [
        f"jbias:deepaugment:nets={net},prepared={arg.prepared},{config_arguments}"
        for net in ("cae", "edsr")
    ]
    configs += [f"jbias:{name}:{config_arguments}" for name in ALGORITHMS]
    return {"config": configs}
