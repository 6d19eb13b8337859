"""Takes the helm program out of the installed package of `helm.txt`: `unpack_helm.py FOLDER PROGRAM`."""

import io
import sys
import tarfile
import zipfile
from pathlib import Path

folder, program = Path(sys.argv[1]), Path(sys.argv[2])
package = next(folder.glob("aws_cdk/*/_jsii/*.tgz"))
with tarfile.open(package) as outer:
    layer = outer.extractfile("package/lib/layer.zip")
    assert layer is not None
    program.write_bytes(zipfile.ZipFile(io.BytesIO(layer.read())).read("helm/helm"))
program.chmod(0o755)
