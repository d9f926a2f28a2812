"""The node: containerd, where the simulated NVIDIA runtime is a RuntimeClass as the GPU Operator makes it from 25.10 on, and kubelet."""

import json

from lib.certificates import PKI
from lib.processes import Program
from lib.settings import ADDRESS, BIN, CONTAINERD, NODE, PODS, STATE

PAUSE = "sluice.test/pause:1"
CDI = "/var/run/cdi"
RUNTIME = Program("containerd", [BIN / "containerd", "--config", STATE / "containerd.toml"])
KUBELET = Program(
    "kubelet",
    [
        BIN / "kubelet",
        f"--config={STATE}/kubelet.json",
        f"--kubeconfig={STATE}/kubeconfig-kubelet",
        f"--hostname-override={NODE}",
        f"--node-ip={ADDRESS}",
        # What NVIDIA's feature discovery puts on a node with GPUs.
        "--node-labels=nvidia.com/gpu.present=true",
    ],
)


def write_configuration() -> None:
    (STATE / "containerd.toml").write_text(containerd())
    (STATE / "kubelet.json").write_text(json.dumps(kubelet(), indent=1))
    (STATE / "cni").mkdir()
    (STATE / "cni/10-bridge.conflist").write_text(json.dumps(network(), indent=1))


def containerd() -> str:
    runtime = "plugins.'io.containerd.cri.v1.runtime'"
    return f"""version = 3
root = '{STATE}/containerd'
state = '/run/containerd'
oom_score = 0

[grpc]
address = '{CONTAINERD}'

[{runtime}]
restrict_oom_score_adj = true # the machine's root may lack CAP_SYS_RESOURCE
disable_apparmor = true
enable_cdi = true
cdi_spec_dirs = ['/etc/cdi', '{CDI}']

[{runtime}.cni]
bin_dirs = ['/usr/lib/cni']
conf_dir = '{STATE}/cni'

[{runtime}.containerd]
default_runtime_name = 'runc'

[{runtime}.containerd.runtimes.runc]
runtime_type = 'io.containerd.runc.v2'
options = {{ SystemdCgroup = false }}

[{runtime}.containerd.runtimes.nvidia]
runtime_type = 'io.containerd.runc.v2'
options = {{ SystemdCgroup = false, BinaryName = '{BIN}/nvidia-runtime' }}

[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = '{PAUSE}'
"""


def kubelet() -> dict:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": ADDRESS,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{PKI}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "containerRuntimeEndpoint": f"unix://{CONTAINERD}",
        "maxPods": 250,
        "failSwapOn": False,
        "enforceNodeAllocatable": [],
        "oomScoreAdj": 0,
        "resolvConf": "",
        "clusterDNS": ["10.96.0.10"],  # no server answers there; without the setting each pod gets a warning
        "clusterDomain": "cluster.local",
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "nodeStatusUpdateFrequency": "1s",
        "registryPullQPS": 0,
    }


def network() -> dict:
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipMasq": True,
        "hairpinMode": True,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": PODS}]], "routes": [{"dst": "0.0.0.0/0"}]},
    }
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge, portmap]}
