"""Misspelled flags, unknown names, and bad paths for every command."""

import pathlib
from collections.abc import Iterator

from qa.hostile import attempt

_FLAGS = (
    ("jbias.main", "--wrokdir=x", "--workdir"),
    ("jbias.main", "--conifg=configs/erm.py", "--config"),
    ("jbias.main", "--work_dir=x", "--workdir"),
    ("jbias.evaluate", "--checkpiont=x", "--checkpoint"),
    ("jbias.evaluate", "--suit=x", "--suite"),
    ("jbias.evaluate", "--outt=x", "--out"),
    ("jbias.report", "--run=x", "--runs"),
    ("jbias.report", "--refrence=erm", "--reference"),
    ("jbias.report", "--statuss", "--status"),
    ("jbias.report.biases", "--mesured=x", "--measured"),
    ("jbias.report.measured", "--mesured=x", "--measured"),
    ("jbias.report.shifts", "--outt=x", "--out"),
    ("jbias.papers.distortion", "--pritned=x", "--printed"),
    ("jbias.papers.shifts", "--pritned=x", "--printed"),
    ("jbias.report.distortion", "--outt=x", "--out"),
    ("jbias.report.correlate", "--outt=x", "--out"),
    ("jbias.prepare check", "--scr=x", "--src"),
    ("jbias.prepare check", "--split=train", "--splits"),
    ("jbias.prepare stylize", "--stlye=x", "--style|--st"),
    ("jbias.prepare records", "--dest=x", "--dst"),
    ("jbias.prepare corrupt", "--severty=3", "--sever"),
    ("jbias.prepare deepaugment", "--nett=cae", "--net"),
    ("jbias.prepare chekc", "--src=x", "check"),
    ("jbias.launch.sweep", "--swep=x", "--sweep"),
    ("jbias.look", "--imges=3", "--images"),
    ("jbias.audit", "--checkpont=x", "--checkpoint"),
    ("jbias.study", "--confg=x", "--config"),
)
_NAMES = (
    ("--config=configs/sagnett.py:smoke", "sagnet"),
    ("--config=jbias:padian:smoke", "padain"),
    ("--config=configs/erm.py:smok", "smoke"),
    ("--config=configs/erm.py:smoke,seed=2", "seeds"),
    ("--config=configs/erm.py:smoke,model=resnet81", "resnet18|resnet"),
    ("--config.model.name=vit_smal", "vit"),
    ("--config.algo.name=mixstlye", "mixstyle"),
    ("--config.algo.name=nowhere.py:make", "nowhere.py"),
    ("--config.algo.name=examples/own_algorithm.py:mkae", "make"),
    ("--config.algo.name=examples/own_algorithm.py", ":"),
    ("--config.train.data=shpaes", "shapes"),
    ("--config.train.split=tran", "train"),
    ("--config.optim.name=adamww", "adamw"),
    ("--config.optim.lrr=1", "lr|rate"),
    ("--config.run.strategy=unroled", "unrolled"),
    ("--config.inputs=({'name': 'cutmx'},)", "cutmix"),
    ("--config.epoch=3", "epochs"),
    ("--config.seeds=(0, 0)", "seeds"),
    ("--config.tests.edge.split=egde", "edge"),
    ("--config.algo.sites='stage9'", "site"),
)
_PADAIN = (
    ("--config.algo.site=stage7", "mix_group, name, p"),
    ("--config.algo.site='Stage1'", "mix_group, name, p"),
    ("--config.algo.sites=('stage1','stage12')", "stage|site"),
)
_PATHS = (
    ("--workdir=" + "a/" * 2500 + "b", "long|name"),
    ("--workdir=" + "é" * 200, "long|name"),
    ("--workdir=/dev/null", "."),
    ("--workdir=/proc/1/run", "."),
    ("--workdir=/sys/run", "."),
    ("--workdir=\x1b[2J/dev/null/x", "."),
    ("--workdir=s3://bucket/run", "."),
    ("--workdir=configs/erm.py", "."),
)
_CHECKPOINTS = (
    ("--checkpoint=/dev/zero", "."),
    ("--checkpoint=/dev/full", "."),
    ("--checkpoint=configs", "."),
    ("--checkpoint=http://127.0.0.1:1/x.pth", "."),
    ("--checkpoint=x\n\x1b[2J.pth", "."),
    ("--checkpoint=" + "x" * 300 + ".pth", "long|no such|not"),
    ("--checkpoint=README.md", "."),
)


def cases() -> Iterator[attempt.Case]:
    """Yield every input; all must be refused, most with a suggestion."""
    erm = ["-m", "jbias.main", "--config=configs/erm.py:smoke"]
    padain = ["-m", "jbias.main", "--config=configs/padain.py:smoke"]
    suite = ["-m", "jbias.evaluate", "--suite=configs/suites/biases.py:images=4"]
    for module, flag, expects in _FLAGS:
        yield _case(["-m", *module.split(), flag], expects)
    for argument, expects in _NAMES:
        main = erm[:2] if argument.startswith("--config=") else erm
        yield _case([*main, argument], expects, "--workdir={root}/run")
    for argument, expects in _PADAIN:
        yield _case([*padain, argument], expects, "--workdir={root}/run")
    for argument, expects in _PATHS:
        yield _case([*erm, argument], expects)
    for argument, expects in _CHECKPOINTS:
        yield _case([*suite, argument], expects, "--out={root}/out")


def _case(argv: list[str], expects: str, *templates: str) -> attempt.Case:
    """Return an input; templates: further arguments with {root} for the folder."""

    def write(root: pathlib.Path) -> list[str]:
        return [*argv, *(template.format(root=root) for template in templates)]

    return attempt.Case(" ".join(argv[1:])[:160], write, expects)
