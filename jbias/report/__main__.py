"""Entry point of `jbias report`."""

import sys

from jbias.report import cli

if __name__ == "__main__":
    sys.exit(cli.main())
