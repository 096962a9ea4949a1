"""What moved to jbias.report.network_frame, under its old name; to be removed."""

from jbias.report import network_frame
from jbias.report.network_frame import USUAL  # noqa: F401
from jbias.report.network_frame import Method as Made  # noqa: F401


def compare(models, titles):
    return network_frame.compare_methods(models)
