"""What moved to jbias.report.network_frame, under its old name; to be removed."""

from jbias.report.network_frame import read_config as config  # noqa: F401
from jbias.report.network_frame import read_json  # noqa: F401
from jbias.report.network_frame import read_measures as measures  # noqa: F401
from jbias.report.network_frame import read_records as read  # noqa: F401
