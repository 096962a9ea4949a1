"""Entry point of `python -m jbias.measuring`."""

import sys

from jbias.measuring import cli

if __name__ == "__main__":
    sys.exit(cli.main())
