"""Entry point of `jbias prepare`."""

import sys

from jbias import prepare

if __name__ == "__main__":
    sys.exit(prepare.main())
