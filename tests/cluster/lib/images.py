"""Images without a registry: archives of one layer made here, and the product's own Dockerfile built by buildah."""

import io
import json
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

from lib.node import PAUSE
from lib.settings import BIN, CONTAINERD, KUBERNETES, REPOSITORY, STATE, environment

BUSYBOX = "sluice.test/busybox:1"
# A shell and the C library, which the hook needs, and the product's program.
TOOLS = "sluice.test/tools:1"
PRODUCT = "sluice.test/sluice:test"
SCHEDULER = f"registry.k8s.io/kube-scheduler:v{KUBERNETES}"
FOLDER = STATE / "images"
APPLETS = "sh sleep cat env ls nc echo true false kill ps mkdir rm touch grep sed head tail date stat wc httpd"
# The driver's libraries want these besides what `ldd` tells of our own.
OF_THE_DRIVER = [f"/lib/x86_64-linux-gnu/{name}" for name in ("libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1")]


def libraries(*programs: Path) -> list[Path]:
    """The loader and every library of these programs, as the system names them."""
    text = subprocess.run(["ldd", *map(str, programs)], capture_output=True, text=True, check=True).stdout
    found = set(re.findall(r"(?:=> |^\s)(/\S+) \(0x", text, re.MULTILINE))
    return sorted(Path(path) for path in found | set(OF_THE_DRIVER))


def archive(name: str, files: dict[str, Path], links: dict[str, str], entrypoint: list[str]) -> Path:
    """A docker-archive of one layer."""
    FOLDER.mkdir(exist_ok=True)
    stem = re.sub(r"\W+", "-", name)
    layer, image = FOLDER / f"{stem}.layer", FOLDER / f"{stem}.tar"
    with tarfile.open(layer, "w") as tar:
        for inside, outside in files.items():
            tar.add(outside.resolve(), inside.lstrip("/"))
        for inside, target in links.items():
            link = tarfile.TarInfo(inside.lstrip("/"))
            link.type, link.linkname = tarfile.SYMTYPE, target
            tar.addfile(link)
        scratch = tarfile.TarInfo("tmp")
        scratch.type, scratch.mode = tarfile.DIRTYPE, 0o1777
        tar.addfile(scratch)
    digest = subprocess.run(["sha256sum", layer], capture_output=True, text=True, check=True).stdout.split()[0]
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": entrypoint, "Env": ["PATH=/usr/local/bin:/usr/bin:/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    with tarfile.open(image, "w") as tar:
        for inside, content in (("config.json", config), ("manifest.json", manifest)):
            text = json.dumps(content).encode()
            entry = tarfile.TarInfo(inside)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text))
        tar.add(layer, "layer.tar")
    layer.unlink()
    return image


def builder_stage(target: Path) -> Path:
    """A folder laid out like the file system of the Dockerfile's builder stage, by the script that the stage runs."""
    out = FOLDER / "builder"
    _quietly([REPOSITORY / "docker/lay-out", out / "out", target / "sluice", target / "libsluice.so"])
    return out


def product(target: Path) -> Path:
    """The Dockerfile's runtime stage with the given programs."""
    out, image = builder_stage(target), FOLDER / "product.tar"
    buildah = ["buildah", "--root", STATE / "buildah", "--runroot", "/run/buildah", "--storage-driver", "vfs"]
    stage = ["--isolation", "chroot", "--build-context", f"builder={out}", "--target", "runtime", "-t", PRODUCT]
    _quietly([*buildah, "build", *stage, "-f", REPOSITORY / "Dockerfile", REPOSITORY])
    _quietly([*buildah, "push", PRODUCT, f"docker-archive:{image}:{PRODUCT}"])
    return image


def _quietly(argv: list) -> None:
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, env=environment())
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, argv))}\n{done.stdout}{done.stderr}")


def make_and_import(target: Path) -> None:
    busybox = {"/bin/busybox": Path("/bin/busybox")}
    links = {f"/bin/{applet}": "busybox" for applet in APPLETS.split()}
    sluice = target / "sluice"
    with_c_library = busybox | {"/usr/bin/sluice": sluice} | {str(path): path for path in libraries(sluice)}
    # Static programs never load the hook; these are the system's own, which do.
    dynamic = {f"/usr/bin/{name}": Path(shutil.which(name)) for name in ("bash", "env", "cat", "sleep")}
    with_c_library |= dynamic | {str(path): path for path in libraries(*dynamic.values())}
    images = [
        archive(PAUSE, busybox, links, ["/bin/sleep", "infinity"]),
        archive(BUSYBOX, busybox, links, []),
        archive(TOOLS, with_c_library, {f"/bin/{a}": "busybox" for a in APPLETS.split() if f"/usr/bin/{a}" not in dynamic}, []),
        archive(SCHEDULER, {"/usr/local/bin/kube-scheduler": BIN / "kube-scheduler"}, {}, ["/usr/local/bin/kube-scheduler"]),
        product(target),
    ]
    for image in images:
        _quietly(["ctr", "--address", CONTAINERD, "-n", "k8s.io", "images", "import", image])
        image.unlink()
