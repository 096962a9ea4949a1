"""Entry point of `jbias observe`."""

import sys

from jbias.observing import cli

if __name__ == "__main__":
    sys.exit(cli.main())
