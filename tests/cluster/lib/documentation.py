"""docs/kubernetes.md and docs/operators as a reader follows them: their commands, and the images that they name.

The machine has no network, so the images of the examples are stand-ins under their names: what would be Python there
runs the load generator. The manifests are applied unchanged.
"""

import re
import subprocess
from pathlib import Path

from lib import api, images
from lib.settings import CONTAINERD, REPOSITORY, SIMULATION, environment

PAGES = [REPOSITORY / "docs/kubernetes.md", *sorted((REPOSITORY / "docs/operators").glob("*.md"))]
# Default names in the chart and in deploy/.
PRODUCT = "ghcr.io/sluice-gpu/sluice:0.1.0"
STAND_IN = """#!/bin/sh
case "$*" in
  *serve*) mkdir -p /tmp/www && touch /tmp/www/index.html && httpd -p 8000 -h /tmp/www && exec sluice load lc ;;
  *) exec sluice load be ;;
esac
"""


def commands() -> dict[str, list[str]]:
    """The blocks marked `sh`, by the heading of level two, or else one, that they are under."""
    found: dict[str, list[str]] = {}
    for page in PAGES:
        heading, in_block = "", False
        for line in page.read_text().splitlines():
            if in_block:
                in_block = line != "```"
                if in_block and not line.startswith("#"):
                    found.setdefault(heading, []).append(line)
            elif line == "```sh":
                in_block = True
            elif line.startswith(("# ", "## ")):
                heading = line.lstrip("# ")
    return found


def run(heading: str, seconds: float = 300) -> list[str]:
    """Runs the commands under a heading from the root of the repository; returns their outputs."""
    outputs = []
    for line in commands()[heading]:
        words = ["bash", "-o", "pipefail", "-c", line]
        done = subprocess.run(words, capture_output=True, text=True, timeout=seconds, env=environment(), cwd=REPOSITORY)
        if done.returncode != 0:
            raise api.Failed([line], done.returncode, done.stdout, done.stderr)
        outputs.append(done.stdout)
    return outputs


def image_names() -> list[str]:
    """Images of the examples, without the product's own."""
    texts = [path.read_text() for path in sorted((REPOSITORY / "examples").glob("*.yaml"))]
    return sorted({name for text in texts for name in re.findall(r"^\s+image: (\S+)$", text, re.MULTILINE)} - {PRODUCT})


CTR = ["ctr", "--address", CONTAINERD, "-n", "k8s.io", "images"]


def provide_product() -> None:
    """The product's image under the name that the chart has for it."""
    subprocess.run([*CTR, "tag", "--force", images.PRODUCT, PRODUCT], check=True, capture_output=True, env=environment())


def provide_images() -> None:
    """The product's image under the name that the chart has for it, and a stand-in for each of the examples'."""
    provide_product()
    script = images.FOLDER / "stand-in"
    script.write_text(STAND_IN)
    script.chmod(0o755)
    sluice, busybox = SIMULATION / "sluice", Path("/bin/busybox")
    files = {"/usr/bin/sluice": sluice, "/bin/busybox": busybox, "/bin/python": script}
    files |= {str(path): path for path in images.libraries(sluice)}
    links = {f"/bin/{applet}": "busybox" for applet in ("sh", "mkdir", "touch", "httpd", "cat")}
    for name in image_names():
        # Containerd keeps names in full.
        full = name if name.split("/")[0].count(".") else f"docker.io/{name}"
        archive = images.archive(full, files, links, ["/bin/python"])
        subprocess.run([*CTR, "import", archive], check=True, capture_output=True, env=environment())
        archive.unlink()
