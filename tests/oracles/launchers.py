"""Write launchers.json: the input formats of SkyPilot and xpk, and xpk's JobSet of a run.

pip install skypilot==0.14.1 xpk==1.16.0
python tests/oracles/launchers.py jobset.x-k8s.io_jobsets.yaml

The file is in config/components/crd/bases/ of github.com/kubernetes-sigs/jobset at 08dfbdf.
Entries of its schema that the JobSet does not use are left out.
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

FOLDER = pathlib.Path(__file__).parent
GOLDEN = FOLDER.parent / "launch/golden/xpk.sh"


def main() -> None:
    """Query both programs, and write the file."""
    command = ["xpk", "workload", "create", "--help"]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    usage = output.split("\n\n")[0]
    manifest = jobset()
    crd = yaml.safe_load(pathlib.Path(sys.argv[1]).read_text())
    (version,) = crd["spec"]["versions"]
    formats = {
        "sky_task": schemas.get_task_schema(),
        "sky_resources": schemas.get_resources_schema(),
        "sky_storage": schemas.get_storage_schema(),
        "xpk_flags": sorted(set(re.findall(r"--[a-z][a-z-]+", usage))),
        "jobset": manifest,
        "jobset_schema": mentioned(version["schema"]["openAPIV3Schema"], manifest),
    }
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text(json.dumps(formats, indent=1) + "\n")


def jobset() -> dict[str, Any]:
    """Return the manifest that xpk would send to Kubernetes for the first golden command."""
    (line, _) = (line for line in GOLDEN.read_text().splitlines() if "xpk w" in line)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "jobset.yaml")
        options = ["--dry-run", "--skip-validation", f"--output-manifest-file={path}"]
        subprocess.run([*shlex.split(line), *options], check=True)
        return yaml.safe_load(path.read_text())


def mentioned(schema: Any, value: Any) -> Any:
    """Return a structural schema without descriptions and without entries unused by `value`.

    Unknown properties are refused, as Kubernetes would drop them.
    """
    reduced = {key: entry for key, entry in schema.items() if key != "description"}
    if isinstance(value, dict) and "properties" in schema:
        known, needed = schema["properties"], schema.get("required", ())
        names = [key for key in known if key in value or key in needed]
        reduced["properties"] = {
            key: mentioned(known[key], value.get(key)) for key in names
        }
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            reduced["additionalProperties"] = False
    if isinstance(value, list) and "items" in schema:
        merged = {}
        for entry in value:
            merged |= entry if isinstance(entry, dict) else {}
        reduced["items"] = mentioned(schema["items"], merged or value[:1] and value[0])
    return reduced


if __name__ == "__main__":
    main()
