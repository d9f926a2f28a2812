"""One authority for the API server's serving certificate, kubelet's clients and the front proxy; the tokens."""

import subprocess

from lib.settings import ADDRESS, API, NODE, STATE

PKI = STATE / "pki"
TOKENS = {
    "admin": ("system:admin", "system:masters"),
    "controller-manager": ("system:kube-controller-manager", ""),
    "scheduler": ("system:kube-scheduler", ""),
    "proxy": ("system:kube-proxy", ""),
    "kubelet": (f"system:node:{NODE}", "system:nodes"),
}


def openssl(*words: str, stdin: str | None = None) -> None:
    done = subprocess.run(["openssl", *words], input=stdin, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"openssl {' '.join(words)}: {done.stderr}")


def leaf(name: str, subject: str, extensions: str) -> None:
    key, request, certificate = (str(PKI / f"{name}.{kind}") for kind in ("key", "csr", "crt"))
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", request, "-subj", subject)
    (PKI / f"{name}.ext").write_text(extensions)
    authority = ["-CA", str(PKI / "ca.crt"), "-CAkey", str(PKI / "ca.key"), "-CAcreateserial"]
    openssl("x509", "-req", "-in", request, *authority, "-out", certificate, "-days", "30", "-extfile", str(PKI / f"{name}.ext"))


def make() -> None:
    PKI.mkdir()
    authority = ["-keyout", str(PKI / "ca.key"), "-out", str(PKI / "ca.crt"), "-subj", "/CN=sluice-test-ca"]
    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", *authority, "-days", "30")
    names = f"IP:{ADDRESS},IP:127.0.0.1,IP:10.96.0.1,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc"
    leaf("apiserver", "/CN=kube-apiserver", f"extendedKeyUsage=serverAuth\nsubjectAltName={names}\n")
    client = "extendedKeyUsage=clientAuth\n"
    leaf("kubelet-client", "/O=system:masters/CN=kube-apiserver-kubelet-client", client)
    leaf("front-proxy", "/CN=front-proxy", client)
    openssl("genrsa", "-out", str(PKI / "service-accounts.key"), "2048")
    lines = (f'token-{name},{user},{name},"{group}"' for name, (user, group) in TOKENS.items())
    (PKI / "tokens.csv").write_text("\n".join(lines) + "\n")
    for name in TOKENS:
        (STATE / f"kubeconfig-{name}").write_text(kubeconfig(name))


def kubeconfig(name: str) -> str:
    return f"""apiVersion: v1
kind: Config
clusters: [{{name: test, cluster: {{server: "{API}", certificate-authority: {PKI}/ca.crt}}}}]
users: [{{name: {name}, user: {{token: token-{name}}}}}]
contexts: [{{name: test, context: {{cluster: test, user: {name}}}}}]
current-context: test
"""
