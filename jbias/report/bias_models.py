"""What moved to jbias.report.network_frame, under its old name; to be removed."""

# ruff: noqa: F401
from jbias.report.network_frame import (
    AT,
    BIASES,
    DEGENERATE,
    FEW,
    MEMBERS,
    OTHERS,
    TITLES,
    Models,
    read_kinds,
)
from jbias.report.network_frame import build_models as build
from jbias.report.network_frame import decisions_text as decisions
from jbias.report.network_frame import few_decisions as few
from jbias.report.network_frame import parse_number as number
