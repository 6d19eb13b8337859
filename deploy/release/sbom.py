#!/usr/bin/env python3
"""Makes an SBOM of cargo-cyclonedx the same on every machine: without the path of the sources and the time.

    deploy/release/sbom.py toolsieve.cdx.json > FILE

The time is that of SOURCE_DATE_EPOCH.
"""

import json
import os
import re
import sys
import uuid
from datetime import UTC, datetime
from pathlib import Path


def main() -> None:
    """Reads the SBOM, and prints it."""
    text = Path(sys.argv[1]).read_text()
    package = json.loads(text)["metadata"]["component"]
    reference = f"pkg:cargo/{package['name']}@{package['version']}"
    text = re.sub(r'path\+file://[^"# ]*#(?:[\w.-]+@)?[\w.+-]+', reference, text)
    text = re.sub(r"\?download_url=file://[^\"#]*", "", text)
    bom = json.loads(text)
    time = datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), UTC)
    bom["metadata"]["timestamp"] = time.strftime("%Y-%m-%dT%H:%M:%SZ")
    bom.pop("serialNumber", None)
    digest = json.dumps(bom, sort_keys=True)
    bom["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, digest)}"
    json.dump(bom, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
