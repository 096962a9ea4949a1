"""Entry point of `jbias measure`."""

import sys

from jbias.measuring import cli

if __name__ == "__main__":
    sys.exit(cli.main())
