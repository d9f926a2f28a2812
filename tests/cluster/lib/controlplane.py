"""etcd, API server, controller manager, the stock scheduler and kube-proxy: what a real cluster has, on one node."""

from lib.certificates import PKI
from lib.processes import Program
from lib.settings import ADDRESS, BIN, NODE, PODS, SERVICES, STATE

ETCD = Program(
    "etcd",
    [
        BIN / "etcd",
        f"--data-dir={STATE}/etcd",
        "--listen-client-urls=http://127.0.0.1:2379",
        "--advertise-client-urls=http://127.0.0.1:2379",
        "--listen-peer-urls=http://127.0.0.1:2380",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ],
)
APISERVER = Program(
    "kube-apiserver",
    [
        BIN / "kube-apiserver",
        "--etcd-servers=http://127.0.0.1:2379",
        f"--advertise-address={ADDRESS}",
        f"--service-cluster-ip-range={SERVICES}",
        f"--token-auth-file={PKI}/tokens.csv",
        f"--client-ca-file={PKI}/ca.crt",
        f"--tls-cert-file={PKI}/apiserver.crt",
        f"--tls-private-key-file={PKI}/apiserver.key",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--kubelet-client-certificate={PKI}/kubelet-client.crt",
        f"--kubelet-client-key={PKI}/kubelet-client.key",
        "--kubelet-preferred-address-types=InternalIP",
        "--enable-aggregator-routing=true",  # webhooks by Service reach pods without DNS
        "--endpoint-reconciler-type=master-count",
        f"--requestheader-client-ca-file={PKI}/ca.crt",
        "--requestheader-allowed-names=front-proxy",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={PKI}/front-proxy.crt",
        f"--proxy-client-key-file={PKI}/front-proxy.key",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={PKI}/service-accounts.key",
        f"--service-account-signing-key-file={PKI}/service-accounts.key",
        "--max-requests-inflight=3000",
        "--max-mutating-requests-inflight=1500",
    ],
)
CONTROLLERS = Program(
    "kube-controller-manager",
    [
        BIN / "kube-controller-manager",
        f"--kubeconfig={STATE}/kubeconfig-controller-manager",
        f"--authentication-kubeconfig={STATE}/kubeconfig-controller-manager",
        f"--authorization-kubeconfig={STATE}/kubeconfig-controller-manager",
        f"--root-ca-file={PKI}/ca.crt",
        f"--service-account-private-key-file={PKI}/service-accounts.key",
        f"--cluster-cidr={PODS}",
        "--use-service-account-credentials",
        "--leader-elect=false",
        # kwok renews the leases of its nodes (fleet.py) every 50 s, the default grace period: under load its nodes became unreachable.
        "--node-monitor-grace-period=200s",
        # At the default of 20 requests a second the first taint of a thousand nodes stays for minutes.
        "--kube-api-qps=1000",
        "--kube-api-burst=2000",
    ],
)
SCHEDULER = Program(
    "kube-scheduler",
    [
        BIN / "kube-scheduler",
        f"--kubeconfig={STATE}/kubeconfig-scheduler",
        f"--authentication-kubeconfig={STATE}/kubeconfig-scheduler",
        f"--authorization-kubeconfig={STATE}/kubeconfig-scheduler",
        "--leader-elect=false",
        "--kube-api-qps=5000",
        "--kube-api-burst=5000",
    ],
)
PROXY = Program(
    "kube-proxy",
    [
        BIN / "kube-proxy",
        f"--kubeconfig={STATE}/kubeconfig-proxy",
        f"--hostname-override={NODE}",
        f"--cluster-cidr={PODS}",
        "--proxy-mode=iptables",
        "--conntrack-max-per-core=0",
        "--oom-score-adj=0",
    ],
)
