"""What SkyPilot and xpk take, and what xpk makes of a run; writes launchers.json.

pip install skypilot==0.14.1 xpk==1.16.0
python tests/oracles/launchers.py jobset.x-k8s.io_jobsets.yaml

The file is config/components/crd/bases/ of github.com/kubernetes-sigs/jobset at 08dfbdf. Of its
schema what the JobSet does not mention is left out.
"""

import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
from typing import Any

import yaml
from sky.utils import schemas

HERE = pathlib.Path(__file__).parent
GOLDEN = HERE.parent / "launch/golden/xpk.sh"


def main() -> None:
    """Asks both, and writes it down."""
    command = ["xpk", "workload", "create", "--help"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    usage = told.split("\n\n")[0]
    manifest = jobset()
    crd = yaml.safe_load(pathlib.Path(sys.argv[1]).read_text())
    (version,) = crd["spec"]["versions"]
    found = {
        "sky_task": schemas.get_task_schema(),
        "sky_resources": schemas.get_resources_schema(),
        "sky_storage": schemas.get_storage_schema(),
        "xpk_flags": sorted(set(re.findall(r"--[a-z][a-z-]+", usage))),
        "jobset": manifest,
        "jobset_schema": mentioned(version["schema"]["openAPIV3Schema"], manifest),
    }
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text(json.dumps(found, indent=1) + "\n")


def jobset() -> dict[str, Any]:
    """What xpk would hand to Kubernetes for the first frozen command."""
    (line, _) = (one for one in GOLDEN.read_text().splitlines() if "xpk w" in one)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "jobset.yaml")
        more = ["--dry-run", "--skip-validation", f"--output-manifest-file={path}"]
        subprocess.run([*shlex.split(line), *more], check=True)
        return yaml.safe_load(path.read_text())


def mentioned(schema: Any, value: Any) -> Any:
    """A structural schema without what the value does not mention, and descriptions.

    What it does not know is refused: Kubernetes would drop it.
    """
    kept = {key: one for key, one in schema.items() if key != "description"}
    if isinstance(value, dict) and "properties" in schema:
        known, needed = schema["properties"], schema.get("required", ())
        names = [key for key in known if key in value or key in needed]
        kept["properties"] = {
            key: mentioned(known[key], value.get(key)) for key in names
        }
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            kept["additionalProperties"] = False
    if isinstance(value, list) and "items" in schema:
        merged = {}
        for one in value:
            merged |= one if isinstance(one, dict) else {}
        kept["items"] = mentioned(schema["items"], merged or value[:1] and value[0])
    return kept


if __name__ == "__main__":
    main()
