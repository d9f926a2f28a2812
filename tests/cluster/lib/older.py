"""An older version of the product, built from its commit: what the scenario of an upgrade begins with."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from lib.settings import CACHE, REPOSITORY

# Names the older version's folder to the processes inside the cluster.
VARIABLE = "SLUICE_CLUSTER_OLDER"
FOLDER = Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None
PROGRAMS = ("sluice", "libsluice.so")
# What an installation needs beside the programs: the chart, and the Dockerfile with what it reads.
SOURCES = ("charts", "docker", "Dockerfile", "hook/include")


def build(commit: str) -> Path:
    """The folder of a commit: `bin` with development builds, stripped, the files of SOURCES, and `values.json`. Built if not there yet."""
    commit = _git("rev-parse", "--verify", f"{commit}^{{commit}}")
    folder = CACHE / f"older-{commit[:12]}"
    if (folder / "complete").exists():
        return folder
    print(f"older: building {commit[:12]} (minutes the first time)", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    # A build that was killed leaves the entry of its work tree behind.
    _git("worktree", "prune")
    (folder / "bin").mkdir(parents=True)
    tree, target = folder / "tree", folder / "target"
    _git("worktree", "add", "--quiet", "--detach", tree, commit)
    try:
        words = ["cargo", "build", "-q", "--locked", "-p", "sluice-cli", "-p", "sluice-hook"]
        subprocess.run(["nice", "-n", "5", *words], cwd=tree, env=os.environ | {"CARGO_TARGET_DIR": str(target)}, check=True)
        for name in PROGRAMS:
            subprocess.run(["strip", "--strip-debug", "-o", folder / "bin" / name, target / "debug" / name], check=True)
        for name in SOURCES:
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copytree(tree / name, folder / name) if (tree / name).is_dir() else shutil.copy2(tree / name, folder / name)
        (folder / "values.json").write_text(_values(tree))
    finally:
        _git("worktree", "remove", "--force", tree)
        shutil.rmtree(target, ignore_errors=True)
    (folder / "complete").touch()
    return folder


def _values(tree: Path) -> str:
    """The values with which the commit's own scenarios installed it: its chart refuses values that it does not know."""
    question = "import json; from lib import product; print(json.dumps(product.VALUES))"
    done = subprocess.run([sys.executable, "-c", question], cwd=tree / "tests/cluster", capture_output=True, text=True, check=True)
    return json.dumps(json.loads(done.stdout), indent=1)


def _git(*words: object) -> str:
    done = subprocess.run(["git", *map(str, words)], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip()
