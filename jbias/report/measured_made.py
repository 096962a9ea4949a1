"""What moved to jbias.report.networks, under its old name; to be removed."""

from jbias.report.networks import provenance  # noqa: F401
