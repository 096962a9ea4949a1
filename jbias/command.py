"""How the commands that have one parser end: by an exit code, and one line of why."""

import os
import sys
from collections.abc import Callable


def run(work: Callable[[], int], *, stopped: str) -> int:
    """Does the work and returns its exit code; 2 for what is refused, 130 if stopped.

    `stopped` says what the same command does then. JBIAS_TRACEBACK=1 lets errors pass.
    """
    try:
        return work()
    except (ValueError, OSError) as error:
        if os.environ.get("JBIAS_TRACEBACK"):
            raise
        print(f"jbias: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"jbias: stopped; the same command {stopped}", file=sys.stderr)
        return 130
