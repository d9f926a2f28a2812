"""The labels of nodeAgent.seLinux, on a kernel without SELinux: the step sets them, and what the agent makes later can inherit them.

Not shown here: what a policy then allows.
"""

import contextlib
import hashlib
import json
import os
import shutil
import struct
from pathlib import Path

from lib import api, images, product
from lib.devices import GPUS
from lib.processes import running
from lib.settings import REPOSITORY

SECONDS = 300
LABEL, XATTR = "system_u:object_r:container_file_t:s0", "security.selinux"
FOLDERS = (Path("/var/lib/sluice/lib"), Path("/run/sluice"))
DEFAULT_ACL, ACL = "system.posix_acl_default", "system.posix_acl_access"
SE_LINUX = {"enabled": True, "image": dict(zip(("registry", "repository", "tag"), ("sluice.test", "tools", "1"))) | {"pullPolicy": "Never"}}


def below(folder: Path) -> list[Path]:
    return [folder, *folder.rglob("*")]


def remove(attribute: str) -> None:
    for folder in FOLDERS:
        for path in below(folder):
            with contextlib.suppress(OSError):
                os.removexattr(path, attribute, follow_symlinks=False)


def labelling_pod() -> dict:
    """The chart's step as a pod of its own. The capability stands for SELinux, which lets a file's owner set its label."""
    values = product.merged(product.VALUES, {"nodeAgent": {"seLinux": SE_LINUX}})
    words = ["helm", "template", product.RELEASE, REPOSITORY / "charts/sluice", "-n", product.NAMESPACE, "--show-only", "templates/node-agent/daemonset.yaml", "-f", "-"]
    rendered = api.kubectl("create", "--dry-run=client", "-o", "json", "-f", "-", stdin=api.command(*words, stdin=json.dumps(values)))
    spec = json.loads(rendered)["spec"]["template"]["spec"]
    (step,) = spec["initContainers"]
    step["securityContext"]["capabilities"]["add"] = ["SYS_ADMIN"]
    mounted = {one["name"] for one in step["volumeMounts"]}
    volumes = [one for one in spec["volumes"] if one["name"] in mounted]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "label"}, "spec": {"restartPolicy": "Never", "containers": [step], "volumes": volumes}}


def label(path: Path) -> str:
    with contextlib.suppress(OSError):
        return os.getxattr(path, XATTR).decode().rstrip("\0")
    return ""


def test_the_step_labels_all_that_pods_mount_of_the_node(cluster):
    product.need()
    with cluster.namespace() as ns:
        product.create(ns, product.tenant("a", quota=0.1, memory="64Mi", gpu_uuid=GPUS[0]))
        product.all_running(ns)
        # A kept cluster has those of an earlier run.
        remove(XATTR)
        cluster.create(ns, labelling_pod())
        cluster.wait("pod/label", "jsonpath={.status.phase}=Succeeded", ns)
        assert not [path for folder in FOLDERS for path in below(folder) if label(path) != LABEL]
        # By the pod's own mounts: the file that the loader reads, the library that it names, the manager's socket.
        (tenant,) = running("/usr/bin/sluice", "be", "--duration-us", "5000")
        root = Path(f"/proc/{tenant}/root")
        preload = root / "etc/ld.so.preload"
        library = root / preload.read_text().strip().lstrip("/")
        mine = [preload, library, root / "run/sluice", *(root / "run/sluice").glob("*.sock")]
        assert len(mine) >= 4 and {str(path): label(path) for path in mine} == {str(path): LABEL for path in mine}
        assert label(root / "etc/passwd") != LABEL


@contextlib.contextmanager
def inherited():
    """A default ACL passes, as an SELinux type does, from a folder to what is made in it, and not to what is moved into it."""
    entries = [(0x01, 7, -1), (0x02, 4, 4242), (0x04, 5, -1), (0x10, 7, -1), (0x20, 5, -1)]
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    try:
        for folder in FOLDERS:
            for path in filter(Path.is_dir, below(folder)):
                os.setxattr(path, DEFAULT_ACL, acl)
        yield
    finally:
        remove(DEFAULT_ACL)


def test_what_the_agent_makes_later_inherits_from_the_labelled_folders(cluster):
    product.need()
    # An earlier test may have left it.
    other = hashlib.sha256((images.FOLDER / "next/libsluice.so").read_bytes()).hexdigest()
    shutil.rmtree(FOLDERS[0] / other, ignore_errors=True)
    try:
        expect_inherited()
    finally:
        product.install()


def expect_inherited() -> None:
    with inherited():
        before = {path.stat(follow_symlinks=False).st_ino for folder in FOLDERS for path in below(folder)}
        # The other library, and the sockets of other managers.
        product.install(image={"tag": images.PRODUCT_NEXT.rpartition(":")[2]})
        made = [path for folder in FOLDERS for path in below(folder) if path.stat(follow_symlinks=False).st_ino not in before]
        names = {path.name for path in made}
        assert names >= {"libsluice.so", "ld.so.preload", *(f"{uuid}.sock" for uuid in GPUS)}, names
        assert not [path for path in made if ACL not in os.listxattr(path, follow_symlinks=False)], made
