"""What moved to jbias.report.network_frame, under its old name; to be removed."""

from jbias.report.network_frame import cells_of, row  # noqa: F401
