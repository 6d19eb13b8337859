"""Generated requests against the running service: its own routes, and the routes of a published document."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT, World

SECONDS = 480
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)


@pytest.mark.parametrize("described", ["our own routes", "a published document"])
def test_generated_requests_are_answered_as_described(described: str, world: World, tmp_path: Path) -> None:
    description = tmp_path / "openapi.json"
    if described == "our own routes":
        description.write_bytes((ROOT / "openapi/service.json").read_bytes())
    else:
        document = world.get("/odd/openapi.json")
        # The paths of this document are below the server's own.
        assert document["servers"] == [{"url": "/odd"}]
        description.write_text(json.dumps(document))
    base = world.url + ("" if described == "our own routes" else "/odd")
    command = [str(Path(sys.executable).with_name("schemathesis")), "run", str(description), "--url", base]
    command += ["--checks", ",".join(CHECKS), "--max-examples", "15", "--phases", "examples,coverage,fuzzing"]
    command += ["--seed", "1", "--no-color", "--suppress-health-check", "all", "--generation-database", "none"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    print(done.stdout[-2000:])
