"""What SkyPilot and xpk take, as they tell it themselves; writes launchers.json.

pip install skypilot==0.14.1 xpk==1.16.0
python tests/oracles/launchers.py
"""

import json
import pathlib
import re
import subprocess

from sky.utils import schemas


def main() -> None:
    """Asks both, and writes it down."""
    command = ["xpk", "workload", "create", "--help"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    usage = told.split("\n\n")[0]
    found = {
        "sky_task": schemas.get_task_schema(),
        "sky_resources": schemas.get_resources_schema(),
        "sky_storage": schemas.get_storage_schema(),
        "xpk_flags": sorted(set(re.findall(r"--[a-z][a-z-]+", usage))),
    }
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
