"""Which pods and users can read the pages of the daemons, as docs/operators/security.md states it."""

import contextlib
import json
import re
import ssl
import subprocess
import urllib.error
import urllib.request

from lib import api, images, policies, product
from lib.cluster import parse_metrics
from lib.settings import environment

SECONDS = 240
STATE_PORT, METRICS_PORT, EXTENDER_PORT, KUBE_SCHEDULER_PORT = 9407, 9400, 9401, 10259
# What a tenant usually has, in the tenant's own namespace alone.
TENANT = "edit"


# A page over HTTP, with its status line, by a shell: busybox's wget cannot resolve addresses without the C library's plugins.
FETCH = """exec 3<>/dev/tcp/$0/$1 && printf 'GET %s HTTP/1.0\\r\\n\\r\\n' "$2" >&3 && cat <&3"""
# Exit code of `timeout`.
TIMED_OUT = 143


def reader(cluster, ns: str) -> None:
    """A pod `reader` that can fetch pages."""
    cluster.create(ns, cluster.pod("reader", "/usr/bin/sleep", "1000", image=images.TOOLS))
    cluster.wait("pod/reader", "condition=Ready", ns)


def fetched(cluster, ns: str, address: str, port: int, path: str) -> str:
    """What the reader of a namespace gets, or the reason why it gets nothing."""
    try:
        return cluster.exec(ns, "reader", "timeout", "3", "bash", "-c", FETCH, address, port, path)
    except api.Failed as why:
        return "timed out" if why.code == TIMED_OUT else why.err


def running_client(cluster, ns: str) -> str:
    """Starts a pod with a GPU; returns the id of its container once the agent serves it."""
    product.create(ns, product.idle("client", quota="0.1", memory="64Mi"))
    product.all_running(ns)
    cluster.until("its client", 60, lambda: "client" in product.clients_of(ns))
    (status,) = cluster.get("pod", "client", ns)["status"]["containerStatuses"]
    return status["containerID"].rpartition("/")[2]


def names(metrics: str, ns: str) -> bool:
    """Whether a page of metrics names the pod of this namespace."""
    return any(sample.labels.get("namespace") == ns and sample.labels.get("pod") == "client" for sample in parse_metrics(metrics))


def test_no_pod_reads_the_state_of_the_agent_and_the_metrics_have_no_container_ids(cluster):
    product.need()
    with cluster.namespace() as ns:
        container = running_client(cluster, ns)
        reader(cluster, ns)
        address = product.agent()["status"]["podIP"]
        assert container in product.agent_state()
        # The network of this cluster enforces no policy, so the pod reaches the agent: it is the agent that keeps its state.
        metrics = ""

        def is_named() -> bool:
            nonlocal metrics
            metrics = fetched(cluster, ns, address, METRICS_PORT, "/metrics")
            return names(metrics, ns)

        try:
            cluster.until("the client in the metrics", 30, is_named)
        except TimeoutError as why:
            raise AssertionError(f"{why}: {metrics}") from why
        assert container not in metrics and 'pid="' not in metrics, metrics
        answer = fetched(cluster, ns, address, STATE_PORT, "/state")
        assert "Connection refused" in answer, answer
        answer = fetched(cluster, ns, address, METRICS_PORT, "/state")
        assert "404 Not Found" in answer.partition("\n")[0], answer


def test_network_policies_admit_the_scrapers_namespaces_alone(cluster):
    product.need()
    with cluster.namespace() as ns, scrapers_namespace(cluster) as scrapers:
        for where in (ns, scrapers):
            reader(cluster, where)
        pages = [(address_of("node-agent"), METRICS_PORT), (address_of("scheduler"), EXTENDER_PORT)]
        # A reader that fails without the policies proves nothing.
        for address, port in pages:
            answer = fetched(cluster, ns, address, port, "/metrics")
            assert "# HELP sluice_" in answer, answer
        with policies.enforced(product.NAMESPACE):
            for address, port in pages:
                answer = fetched(cluster, scrapers, address, port, "/metrics")
                assert "# HELP sluice_" in answer, answer
                answer = fetched(cluster, ns, address, port, "/metrics")
                assert answer == "timed out", answer


def address_of(component: str) -> str:
    return product.url(component, 0, "").removeprefix("http://").partition(":")[0]


@contextlib.contextmanager
def scrapers_namespace(cluster):
    """One of those that the chart's values name by default."""
    name = "monitoring"
    api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    try:
        cluster.until("service account", 20, lambda: api.answers(f"/api/v1/namespaces/{name}/serviceaccounts/default"))
        yield name
    finally:
        cluster.kubectl("delete", "pods", "--all", "-n", name, "--grace-period=1", "--timeout=90s")
        cluster.delete("namespace", name, seconds=90)


class User:
    """A service account of a tenant's namespace, with the token that its holder has."""

    def __init__(self, ns: str) -> None:
        self.namespace, self.subject = ns, f"--serviceaccount={ns}:user"
        api.kubectl("-n", ns, "create", "serviceaccount", "user")
        api.kubectl("-n", ns, "create", "rolebinding", "user", f"--clusterrole={TENANT}", self.subject)
        self.token = api.kubectl("-n", ns, "create", "token", "user").strip()

    def _words(self, *words: str) -> list[str]:
        # Without the flag kubectl would present the administrator's token of the kubeconfig.
        return ["kubectl", "--token", self.token, *words]

    def kubectl(self, *words: str) -> str:
        return api.command(*self._words(*words), seconds=20)

    def is_refused(self, *words: str) -> None:
        try:
            answer = self.kubectl(*words)
        except api.Failed as why:
            assert "Forbidden" in why.err or "forbidden" in why.err, why
        except subprocess.TimeoutExpired as why:
            raise AssertionError(f"{words} was not refused: it still runs") from why
        else:
            raise AssertionError(f"{words} was not refused: {answer[:200]}")

    def forwarded(self, pod: str, port: int, path: str) -> str:
        """What `kubectl port-forward` and curl show."""
        words = self._words("-n", product.NAMESPACE, "port-forward", pod, f":{port}")
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment()) as forward:
            try:
                line = forward.stdout.readline()
                local = re.fullmatch(r"Forwarding from 127\.0\.0\.1:(\d+) -> \d+\n", line)
                assert local, line + forward.stdout.read()
                with urllib.request.urlopen(f"http://127.0.0.1:{local[1]}{path}", timeout=10) as answer:
                    return answer.read().decode()
            finally:
                forward.kill()


def page(kind: str, name: str, port: int, path: str) -> str:
    """The address of a page behind the API server's proxy."""
    return f"/api/v1/namespaces/{product.NAMESPACE}/{kind}/{name}:{port}/proxy{path}"


@contextlib.contextmanager
def bound(user: User, *roles: tuple[str, str]):
    """Binds roles to a user: (kind of the binding, flag that names the role)."""
    for kind, role in roles:
        api.kubectl("-n", product.NAMESPACE, "create", kind, user.namespace, role, user.subject)
    try:
        yield
    finally:
        for kind, _ in roles:
            api.kubectl("-n", product.NAMESPACE, "delete", kind, user.namespace)


def test_users_read_what_the_documented_roles_allow(cluster):
    product.need()
    agent = product.agent()["metadata"]["name"]
    metrics = page("pods", agent, METRICS_PORT, "/metrics")
    with cluster.namespace() as ns:
        container = running_client(cluster, ns)
        user = User(ns)
        # The user's rights act: the refusals below are not those of a token that is not valid.
        assert "client" in user.kubectl("-n", ns, "get", "pods")
        to_state = [
            ("-n", product.NAMESPACE, "exec", agent, "--", "/usr/bin/sluice", "--version"),
            ("-n", product.NAMESPACE, "port-forward", agent, f":{STATE_PORT}"),
        ]
        to_metrics = [
            ("get", "--raw", metrics),
            ("get", "--raw", page("services", "sluice-scheduler", EXTENDER_PORT, "/metrics")),
            ("get", "--raw", f"/api/v1/nodes/{cluster.node}/proxy/metrics"),
        ]
        for words in [("-n", product.NAMESPACE, "get", "pods"), *to_state, *to_metrics]:
            user.is_refused(*words)
        assert kube_scheduler_answers(user.token) == 403

        # docs/operators/kubectl.md: the roles of `kubectl sluice` give the metrics, and not the state.
        with bound(user, ("clusterrolebinding", "--clusterrole=sluice-kubectl"), ("rolebinding", "--role=sluice-kubectl")):
            cluster.until("the client in the metrics", 30, lambda: names(user.kubectl("get", "--raw", metrics), ns))
            for words in to_state:
                user.is_refused(*words)
            try:
                answer = user.kubectl("get", "--raw", page("pods", agent, STATE_PORT, "/state"))
            except api.Failed as why:
                assert "connection refused" in why.err, why
            else:
                raise AssertionError(f"the API server's proxy reached the state: {answer[:200]}")

        # docs/operators/security.md: the right to create pods/portforward in Sluice's namespace gives the state.
        role = {"kind": "Role", "apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "state", "namespace": product.NAMESPACE}}
        rights = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}, {"apiGroups": [""], "resources": ["pods/portforward"], "verbs": ["create"]}]
        api.apply(role | {"rules": rights})
        try:
            with bound(user, ("rolebinding", "--role=state")):
                state = user.forwarded(agent, STATE_PORT, "/state")
                assert container in state and json.loads(state)["gpus"], state
        finally:
            cluster.delete("role", "state", product.NAMESPACE)


def kube_scheduler_answers(token: str) -> int:
    """The code with which Sluice's kube-scheduler answers a request for its metrics."""
    asked = urllib.request.Request(product.url("scheduler", KUBE_SCHEDULER_PORT, "/metrics").replace("http:", "https:"), headers={"Authorization": f"Bearer {token}"})
    try:
        # kube-scheduler makes itself a certificate.
        with urllib.request.urlopen(asked, timeout=10, context=ssl._create_unverified_context()) as answer:
            return answer.status
    except urllib.error.HTTPError as why:
        return why.code
