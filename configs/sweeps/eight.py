r"""The benchmark's eight algorithms, a trial each, as `make eight` trains them.

    jbias prepare deepaugment --net=cae --data=shapes --split=train \
        --out=prepared/cae
    jbias prepare deepaugment --net=edsr --data=shapes --split=train \
        --out=prepared/edsr
    jbias sweep run --sweep=configs/sweeps/eight.py --workdir=runs/eight

:of=small+seeds=1    the configs' arguments, joined by +
:prepared=DIR       where the images of `prepare deepaugment` are
"""

from jbias import config as jc

ALGORITHMS = ("erm", "stylized_erm", "debiased", "infodrop", "sagnet", "padain")


def get_sweep(arg: str = "") -> dict:
    """The search; see above for `arg`."""
    arg = jc.parse_arg(arg, "sweep argument", of="small", prepared="prepared")
    of = arg.of.replace("+", ",")
    deep = f"jbias:deepaugment:nets={{}},prepared={arg.prepared},{of}"
    plain = [f"jbias:{name}:{of}" for name in ALGORITHMS]
    return {"config": [*map(deep.format, ("cae", "edsr")), *plain]}
