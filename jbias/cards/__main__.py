"""Entry point of `jbias card`."""

import sys

from jbias.cards import cli

if __name__ == "__main__":
    sys.exit(cli.main())
