"""The object that a test gets: the cluster, with functions for tests."""

import contextlib
import itertools
import json
import re
import urllib.request
from dataclasses import dataclass

from lib import api, assemble, controlplane, devices, images, node as on_node, prometheus, violations
from lib.namespaces import until
from lib.processes import Program
from lib.settings import NODE


class Skipped(Exception):
    """Raised by a test that this run does not have the means for."""


@dataclass(frozen=True)
class Sample:
    """One line of a /metrics answer."""

    name: str
    labels: dict[str, str]
    value: float


class Cluster:
    node = NODE
    gpus = devices.GPUS
    apiserver, scheduler, kubelet, containerd = controlplane.APISERVER, controlplane.SCHEDULER, on_node.KUBELET, on_node.RUNTIME
    kubectl, helm, request, apply = staticmethod(api.kubectl), staticmethod(api.helm), staticmethod(api.request), staticmethod(api.apply)
    until, ledger, sim = staticmethod(until), staticmethod(devices.ledger), staticmethod(devices.sim)
    xid, heal = staticmethod(devices.xid), staticmethod(devices.heal)

    def __init__(self) -> None:
        self.figures: dict[str, object] = {}
        self._numbers = itertools.count(1)
        # Also those of a run that was ended in the middle of a test.
        self._left = [at["metadata"]["name"] for at in api.request("GET", "/api/v1/namespaces")["items"] if at["metadata"]["name"].startswith("test-")]

    def record(self, name: str, value: object) -> None:
        """Records a measured figure for the summary and for --json."""
        self.figures[name] = value

    @contextlib.contextmanager
    def namespace(self, **labels: str):
        """A namespace for one test; afterwards it and its pods are gone."""
        self.tidy()
        name = f"test-{next(self._numbers)}"
        while api.answers(f"/api/v1/namespaces/{name}"):
            name = f"test-{next(self._numbers)}"
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
        until("service account", 20, lambda: api.answers(f"/api/v1/namespaces/{name}/serviceaccounts/default"))
        # After a failure it stays for the state that is printed, until the next test needs the GPUs.
        self._left.append(name)
        yield name
        self.tidy()

    def tidy(self) -> None:
        """Removes the namespaces of tests, also of those that failed."""
        while self._left:
            name = self._left.pop()
            self.kubectl("delete", "pods", "--all", "-n", name, "--grace-period=1", "--timeout=90s")
            violations.gather()
            self.kubectl("delete", "namespace", name, "--wait=false", "--ignore-not-found")

    def create(self, namespace: str, *objects: dict) -> None:
        """Creates objects in this namespace with kubectl."""
        api.apply(*({**item, "metadata": {**item["metadata"], "namespace": namespace}} for item in objects))

    def delete(self, kind: str, name: str, namespace: str | None = None, seconds: int = 60) -> None:
        where = ["-n", namespace] if namespace else []
        self.kubectl("delete", kind, name, *where, "--ignore-not-found", f"--timeout={seconds}s")

    def get(self, kind: str, name: str = "", namespace: str | None = None, selector: str = "") -> dict:
        where = ["-n", namespace] if namespace else []
        words = [kind, *([name] if name else []), *where, *(["-l", selector] if selector else [])]
        return json.loads(self.kubectl("get", *words, "-o", "json"))

    def wait(self, what: str, condition: str, namespace: str | None = None, seconds: int = 60) -> None:
        """`kubectl wait`: what is "pod/x", condition "condition=Ready", "delete" or "jsonpath={.status.phase}=Running"."""
        where = ["-n", namespace] if namespace else []
        self.kubectl("wait", what, f"--for={condition}", *where, f"--timeout={seconds}s", seconds=seconds + 30)

    def exec(self, namespace: str, pod: str, *argv: object, container: str | None = None) -> str:
        return self.kubectl("exec", "-n", namespace, pod, *(["-c", container] if container else []), "--", *argv)

    def logs(self, namespace: str, pod: str, *flags: str) -> str:
        return self.kubectl("logs", "-n", namespace, pod, *flags)

    def events(self, namespace: str, of: str | None = None) -> list[dict]:
        events = self.get("events", namespace=namespace)["items"]
        return [event for event in events if of in (None, event["involvedObject"]["name"])]

    def restart(self, program: Program) -> None:
        """Restarts a program of the cluster; returns once it works again."""
        program.stop()
        if program is self.apiserver:
            assemble.start_api_server()
            return
        program.start()
        if program is self.kubelet:
            until("kubelet", 30, lambda: program.check() or api.answers(f"/api/v1/nodes/{NODE}/proxy/healthz"))
        if program is self.containerd:
            until("containerd", 30, assemble.containerd_answers)

    def prometheus(self, expression: str) -> list[dict]:
        """The series of an expression as a real Prometheus has them: [{"metric": labels, "value": [time, text]}]."""
        prometheus.start()
        return prometheus.PODS.query(expression)

    def metrics(self, url: str) -> list[Sample]:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return parse_metrics(answer.read().decode())

    @staticmethod
    def quantile(samples: list[Sample], histogram: str, part: float) -> float:
        """Within the bucket as Prometheus' histogram_quantile does; series with other labels are added up."""
        counts: dict[float, float] = {}
        for sample in samples:
            if sample.name == f"{histogram}_bucket":
                bound = float(sample.labels["le"])
                counts[bound] = counts.get(bound, 0) + sample.value
        below, floor = 0.0, 0.0
        wanted = part * counts[float("inf")]
        for bound, count in sorted(counts.items()):
            if count >= wanted and count > below:
                return floor if bound == float("inf") else floor + (bound - floor) * (wanted - below) / (count - below)
            below, floor = count, bound
        raise AssertionError(f"{histogram} has counted nothing")

    def state(self) -> str:
        """Pods, events and the product's logs, printed after a failure."""
        questions = [
            ["get", "pods", "-A", "-o", "wide"],
            ["get", "events", "-A", "--sort-by=.lastTimestamp"],
        ]
        product = ["get", "pods", "-A", "-l", "app.kubernetes.io/name=sluice", "-o", "json"]
        with contextlib.suppress(Exception):
            for pod in json.loads(self.kubectl(*product, seconds=20))["items"]:
                at = pod["metadata"]
                questions.append(["logs", "-n", at["namespace"], at["name"], "--all-containers", "--prefix", "--tail=40"])
        texts = []
        for words in questions:
            try:
                text = self.kubectl(*words, seconds=20)
            except Exception as error:  # the answer to one question must not hide the others
                text = str(error)
            texts.append(f"--- kubectl {' '.join(words)}\n" + "\n".join(text.splitlines()[-80:]))
        return "\n".join(texts)

    @staticmethod
    def pod(name: str, *argv: str, image: str = images.BUSYBOX, annotations: dict | None = None, **container) -> dict:
        """A pod of one container `main`; further keywords are the container's own fields."""
        main = {"name": "main", "image": image, "imagePullPolicy": "Never", "command": list(argv)} | container
        spec = {"containers": [main], "restartPolicy": "Never", "terminationGracePeriodSeconds": 0}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": annotations or {}}, "spec": spec}


def parse_metrics(text: str) -> list[Sample]:
    samples = []
    for line in text.splitlines():
        if found := re.fullmatch(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)(?: \d+)?", line):
            labels = {key: value.replace('\\"', '"') for key, value in re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', found[2] or "")}
            samples.append(Sample(found[1], labels, float(found[3])))
    return samples
