"""The Kubernetes API for tests: kubectl for what users do, plain HTTPS where a process for each request is too slow."""

import concurrent.futures
import http.client
import json
import ssl
import subprocess
import threading
import urllib.request

from lib.certificates import PKI
from lib.settings import API, environment


class Failed(AssertionError):
    """A command that failed: its arguments, exit code and output."""

    def __init__(self, words: list[str], code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err
        super().__init__(f"{' '.join(words)}: exit code {code}\n{out}{err}")


def command(*words: object, stdin: str | None = None, seconds: float = 120) -> str:
    """Runs a program of the cluster and returns its standard output."""
    argv = [str(word) for word in words]
    done = subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=seconds, env=environment())
    if done.returncode != 0:
        raise Failed(argv, done.returncode, done.stdout, done.stderr)
    return done.stdout


def kubectl(*words: object, stdin: str | None = None, seconds: float = 120) -> str:
    return command("kubectl", *words, stdin=stdin, seconds=seconds)


def helm(*words: object, seconds: float = 300) -> str:
    return command("helm", *words, seconds=seconds)


def request(method: str, path: str, body: dict | None = None, content: str = "application/json", seconds: float = 30, as_other: dict | None = None):
    """One request as the administrator, or as another user by headers of impersonation. An error is urllib's and contains the API
    server's answer."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": "Bearer token-admin", "Content-Type": content, **(as_other or {})}
    asked = urllib.request.Request(API + path, data=data, method=method, headers=headers)
    trusted = ssl.create_default_context(cafile=str(PKI / "ca.crt"))
    with urllib.request.urlopen(asked, timeout=seconds, context=trusted) as answer:
        text = answer.read()
    return json.loads(text) if text[:1] in (b"{", b"[") else text.decode()


def answers(path: str) -> bool:
    try:
        request("GET", path, seconds=2)
    except OSError:
        return False
    return True


def apply(*objects: dict | str) -> str:
    """Manifests as text or as objects."""
    texts = [item if isinstance(item, str) else json.dumps(item) for item in objects]
    return kubectl("apply", "-f", "-", stdin="\n---\n".join(texts))


def many(method: str, path: str, bodies, at_once: int = 8) -> int:
    """The same call with many bodies over a few connections; returns how many. The first failure is raised."""
    trusted, local = ssl.create_default_context(cafile=str(PKI / "ca.crt")), threading.local()
    headers = {"Authorization": "Bearer token-admin", "Content-Type": "application/json"}

    def one(body: dict) -> None:
        if not hasattr(local, "connection"):
            local.connection = http.client.HTTPSConnection(API.removeprefix("https://"), timeout=60, context=trusted)
        local.connection.request(method, path, json.dumps(body), headers)
        answer = local.connection.getresponse()
        text = answer.read()
        if answer.status >= 300:
            raise AssertionError(f"{method} {path}: {answer.status} {text[:500]!r}")

    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        return sum(1 for _ in pool.map(one, bodies))
