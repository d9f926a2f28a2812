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
# What `helm upgrade` goes to: another hook.
PRODUCT_NEXT = "sluice.test/sluice:next"
# What `helm upgrade` begins with, if a run is given an older version.
PRODUCT_OLDER = "sluice.test/sluice:older"
SCHEDULER = f"registry.k8s.io/kube-scheduler:v{KUBERNETES}"
FOLDER = STATE / "images"
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


def product(name: str, target: Path, hook: Path, source: Path = REPOSITORY) -> Path:
    """Builds the runtime stage of the source's Dockerfile. docker/lay-out creates the files of the builder stage."""
    out, image = FOLDER / f"builder-{hook.parent.name}", FOLDER / f"{hook.parent.name}.tar"
    shutil.rmtree(out, ignore_errors=True)
    _quietly([source / "docker/lay-out", out / "out", target / "sluice", hook])
    buildah = ["buildah", "--root", STATE / "buildah", "--runroot", "/run/buildah", "--storage-driver", "vfs"]
    stage = ["--isolation", "chroot", "--build-context", f"builder={out}", "--target", "runtime", "-t", name]
    _quietly([*buildah, "build", *stage, "-f", source / "Dockerfile", source])
    _quietly([*buildah, "push", name, f"docker-archive:{image}:{name}"])
    return image


def newer_hook(hook: Path) -> Path:
    """The same library with other content, so that an upgrade installs a new file."""
    newer = FOLDER / "next/libsluice.so"
    newer.parent.mkdir(parents=True, exist_ok=True)
    newer.write_bytes(hook.read_bytes() + b"\0" * 8)
    return newer


def _quietly(argv: list) -> None:
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, env=environment())
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, argv))}\n{done.stdout}{done.stderr}")


def make_and_import(target: Path) -> None:
    busybox = {"/bin/busybox": Path("/bin/busybox")}
    applets = subprocess.run(["busybox", "--list"], capture_output=True, text=True, check=True).stdout.split()
    links = {f"/bin/{applet}": "busybox" for applet in applets if applet != "busybox"}
    sluice = target / "sluice"
    with_c_library = busybox | {"/usr/bin/sluice": sluice} | {str(path): path for path in libraries(sluice)}
    # Static programs never load the hook; these are the system's own, which do.
    dynamic = {f"/usr/bin/{name}": Path(shutil.which(name)) for name in ("bash", "env", "cat", "sleep", "chcon")}
    with_c_library |= dynamic | {str(path): path for path in libraries(*dynamic.values())}
    images = [
        archive(PAUSE, busybox, links, ["/bin/sleep", "infinity"]),
        archive(BUSYBOX, busybox, links, []),
        archive(TOOLS, with_c_library, {at: to for at, to in links.items() if f"/usr{at}" not in dynamic}, []),
        archive(SCHEDULER, {"/usr/local/bin/kube-scheduler": BIN / "kube-scheduler"}, {}, ["/usr/local/bin/kube-scheduler"]),
        product(PRODUCT, target, target / "libsluice.so"),
        product(PRODUCT_NEXT, target, newer_hook(target / "libsluice.so")),
    ]
    for image in images:
        bring(image)


def bring(image: Path) -> None:
    """Imports an archive into containerd and removes it."""
    _quietly(["ctr", "--address", CONTAINERD, "-n", "k8s.io", "images", "import", image])
    image.unlink()
