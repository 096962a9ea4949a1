r"""Empirical risk minimisation: the plain baseline.

    python -m jbias.main --config=configs/erm.py
    python -m jbias.main --config=configs/erm.py:data=pacs,root=DIR,seeds=2

The arguments after the colon stand in configs/common.py.
"""

import ml_collections

from configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """The experiment; see configs/common.py for `arg`."""
    return common.experiment(arg, dict(name="erm"))
