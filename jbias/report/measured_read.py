"""What moved to jbias.report.network_frame, under its old name; to be removed."""

from jbias.report.network_frame import Network, Place, read  # noqa: F401
