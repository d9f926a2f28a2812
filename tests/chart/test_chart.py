"""What the chart renders, and what it refuses. Needs helm on the PATH and PyYAML; .ci/run helm brings both."""

import shutil
import tempfile
import unittest
from pathlib import Path

from rendering import CHART, NAMESPACE, Failed, containers, of_kind, render, rules, workloads

# (value, part of the complaint). Each kind of mistake once: no such key, another type, not one of, out of range, form.
REFUSED = [
    ("nodeAgent.seatPerGpu=4", "'/nodeAgent': additional properties 'seatPerGpu' not allowed"),
    ("replicaCount=2", "additional properties 'replicaCount' not allowed"),
    ("nodeAgent.seatsPerGpu=many", "'/nodeAgent/seatsPerGpu': got string, want null or integer"),
    ("nodeAgent.healthPort=9400", "the agent serves its metrics there"),
    ("nodeAgent.healthPort=9407", "the agent serves its state there"),
    ("injection=auto,nodeAgent.healthPort=9406", "the agent serves its own-driver's probe there"),
    ("nodeAgent.seatsPerGpu=0", "'/nodeAgent/seatsPerGpu': minimum"),
    ("nodeAgent.onManagerLoss=ajar", "'/nodeAgent/onManagerLoss': value must be one of 'open', 'closed'"),
    ("nodeAgent.controls=on", "'/nodeAgent/controls': value must be one of 'auto', 'any-driver', 'off'"),
    ("nodeAgent.controls=simulated", "'/nodeAgent/controls': value must be one of 'auto', 'any-driver', 'off'"),
    ("nodeAgent.adopt=all", "'/nodeAgent/adopt': value must be one of 'auto', 'off'"),
    ("nodeAgent.violationPolicy=kill", "'/nodeAgent/violationPolicy': value must be one of 'auto', 'report', 'stop', 'evict'"),
    ("nodeAgent.lostGpuPolicy=drain", "'/nodeAgent/lostGpuPolicy': value must be one of 'report', 'taint', 'evict'"),
    ("nodeAgent.turnMs=20", "'/nodeAgent/turnMs': minimum"),
    ("nodeAgent.selfTest=twice", "'/nodeAgent/selfTest': value must be one of 'once', 'off'"),
    ("nodeAgent.gpuLookEveryMs=1", "'/nodeAgent/gpuLookEveryMs': minimum"),
    ("nodeAgent.gpuGoodLooks=0", "'/nodeAgent/gpuGoodLooks': minimum"),
    ("nodeAgent.ignoreXids={x}", "'/nodeAgent/ignoreXids/0': got string, want integer"),
    ("nodeAgent.extraArgs={bare}", "'/nodeAgent/extraArgs/0'"),
    ("scheduler.strategy=pack", "'/scheduler/strategy': value must be one of 'binpack', 'spread'"),
    ("scheduler.extenderTimeout=5", "'/scheduler/extenderTimeout'"),
    ("webhook.timeoutSeconds=60", "'/webhook/timeoutSeconds': maximum"),
    ("image.pullPolicy=never", "'/image/pullPolicy': value must be one of"),
    ("image.digest=sha256:12", "'/image/digest'"),
    ("monitoring.rules.enabled=maybe", "'/monitoring/rules/enabled': got string, want boolean"),
]


class Values(unittest.TestCase):
    def test_a_wrong_value_is_refused_by_name(self):
        for value, complaint in REFUSED:
            with self.subTest(value), self.assertRaises(Failed) as refusal:
                render(value)
            self.assertIn(complaint, str(refusal.exception), value)

    def test_the_default_namespace_is_refused_unless_it_is_asked_for(self):
        with self.assertRaises(Failed) as refusal:
            render(namespace="default")
        self.assertIn("--namespace sluice-system --create-namespace", str(refusal.exception))
        self.assertTrue(render("allowDefaultNamespace=true", namespace="default"))

    def test_an_older_kubernetes_is_refused(self):
        with self.assertRaises(Failed) as refusal:
            render(more=("--kube-version", "1.29.9"))
        self.assertIn("kubeVersion: >=1.30", str(refusal.exception))

    def test_a_flag_is_there_only_if_its_value_is_set(self):
        cases = [
            ("injection=auto", "node-agent", "--injection=auto"),
            ("injection=runtime", "node-agent", "--injection=runtime"),
            ("nodeAgent.contextReserve=256Mi", "node-agent", "--context-reserve=256Mi"),
            ("nodeAgent.contextReserve=0", "node-agent", "--context-reserve=0"),
            ("nodeAgent.hostMemory=1.5Ti", "node-agent", "--host-memory=1.5Ti"),
            ("nodeAgent.seatsPerGpu=16", "node-agent", "--seats-per-gpu=16"),
            ("nodeAgent.onManagerLoss=closed", "node-agent", "--on-manager-loss=closed"),
            ("nodeAgent.controls=off", "node-agent", "--controls=off"),
            ("nodeAgent.controls=false", "node-agent", "--controls=off"),
            ("nodeAgent.violationPolicy=stop", "node-agent", "--violation-policy=stop"),
            ("nodeAgent.violationPolicy=evict", "node-agent", "--violation-policy=evict"),
            ("nodeAgent.lostGpuPolicy=taint", "node-agent", "--lost-gpu-policy=taint"),
            ("nodeAgent.lostGpuGraceSeconds=0", "node-agent", "--lost-gpu-grace-seconds=0"),
            ("nodeAgent.mig=instances", "node-agent", "--mig=instances"),
            ("nodeAgent.mig=false", "node-agent", "--mig=off"),
            ("nodeAgent.turnMs=100", "node-agent", "--turn-ms=100"),
            ("nodeAgent.selfTest=off", "node-agent", "--self-test=off"),
            ("nodeAgent.selfTest=false", "node-agent", "--self-test=off"),
            ("nodeAgent.gpuLookEveryMs=3600000", "node-agent", "--gpu-look-every-ms=3600000"),
            ("nodeAgent.gpuGoodLooks=5", "node-agent", "--gpu-good-looks=5"),
            ("nodeAgent.ignoreXids={63,92}", "node-agent", "--ignore-xids=63,92"),
            ("nodeAgent.criticalXids={31}", "node-agent", "--critical-xids=31"),
            ("scheduler.strategy=spread", "scheduler", "--strategy=spread"),
            ("runtimeClassName=nvidia", "webhook", "--runtime-class=nvidia"),
            ("webhook.sandboxRuntimeClasses={gvisor,vm-*}", "webhook", "--sandbox-runtime-classes=gvisor,vm-*"),
        ]
        for value, component, flag in cases:
            name = flag.split("=")[0]
            arguments = [one.get("args", []) for one in workloads(render())[f"sluice-{component}"]["containers"]]
            self.assertFalse([one for one in sum(arguments, []) if one.startswith(name)], flag)
            arguments = [one.get("args", []) for one in workloads(render(value))[f"sluice-{component}"]["containers"]]
            self.assertIn(flag, sum(arguments, []))

    def test_a_runtime_class_is_for_the_agent_too(self):
        self.assertNotIn("runtimeClassName", workloads(render())["sluice-node-agent"])
        self.assertEqual(workloads(render("runtimeClassName=nvidia"))["sluice-node-agent"]["runtimeClassName"], "nvidia")

    def test_one_registry_is_for_every_image(self):
        for one in containers(render("global.imageRegistry=registry.local:5000/mirror")):
            self.assertTrue(one["image"].startswith("registry.local:5000/mirror/"), one["image"])
        images = {one["image"] for one in containers(render())}
        self.assertEqual(images, {"ghcr.io/sluice-gpu/sluice:0.1.0", "registry.k8s.io/kube-scheduler:v1.34.4"})


class Rights(unittest.TestCase):
    def test_nobody_may_do_everything(self):
        objects = render("cleanup.enabled=true")
        for role in of_kind(objects, "Role", "ClusterRole").values():
            self.assertNotIn("*", str(role["rules"]), role["metadata"]["name"])
        bound = {one["roleRef"]["name"] for one in of_kind(objects, "ClusterRoleBinding").values()}
        system = {name for name in bound if not name.startswith("sluice-")}
        self.assertEqual(system, {"system:kube-scheduler", "system:volume-scheduler"})

    def test_agent_may_evict_pods_only_if_a_policy_is_to_evict(self):
        right = ("", "pods/eviction", "create", False)
        cases = [((), False), (("nodeAgent.lostGpuPolicy=evict",), True)]
        for lost in ("report", "taint"):
            cases += [((f"nodeAgent.lostGpuPolicy={lost}", f"nodeAgent.violationPolicy={one}"), False) for one in ("auto", "report", "stop")]
            cases += [((f"nodeAgent.lostGpuPolicy={lost}",), False), ((f"nodeAgent.lostGpuPolicy={lost}", "nodeAgent.violationPolicy=evict"), True)]
        for values, evicts in cases:
            objects = render(*values)
            self.assertEqual(right in rules(objects, "node-agent"), evicts, values)

    def test_agents_tolerate_the_taint_that_they_set(self):
        tolerations = workloads(render())["sluice-node-agent"]["tolerations"]
        self.assertIn({"key": "sluice.dev/gpu-lost", "operator": "Exists", "effect": "NoSchedule"}, tolerations)

    def test_secrets_and_webhooks_are_writable_by_name_alone_and_by_the_webhook_alone(self):
        objects = render()
        for component in ("node-agent", "scheduler"):
            self.assertNotIn("secrets", [resource for _, resource, _, _ in rules(objects, component)])
        self.assertTrue(rules(objects, "webhook"))
        self.assertTrue(all(by_name for _, _, _, by_name in rules(objects, "webhook")))
        self.assertEqual(rules(render("webhook.certManager.enabled=true"), "webhook"), [])

    def test_only_the_scheduler_binds_and_only_the_agent_patches_nodes(self):
        objects = render()
        having = lambda resource, verb: [
            component for component in ("node-agent", "scheduler", "webhook")
            if (resource, verb) in [(found, done) for _, found, done, _ in rules(objects, component)]
        ]
        # The cluster's own role for a scheduler contains the right to bind, and all that the extender does beside its lease.
        stock = [
            [subject["name"] for subject in one["subjects"]] for one in of_kind(objects, "ClusterRoleBinding").values()
            if one["roleRef"]["name"] == "system:kube-scheduler"
        ]
        self.assertEqual(stock, [["sluice-scheduler"]])
        self.assertEqual({resource for _, resource, _, _ in rules(objects, "scheduler")}, {"leases"})
        self.assertEqual(having("pods/binding", "create"), [])
        self.assertEqual(having("nodes", "patch"), ["node-agent"])
        self.assertEqual(having("pods", "patch") + having("pods", "update"), [])
        self.assertEqual((having("pods/status", "patch"), having("pods/status", "update")), (["node-agent"], []))

    def test_scheduler_creates_its_lease_itself_and_changes_no_other(self):
        # Argo CD applies no Lease: https://github.com/argoproj/argo-cd/blob/v2.7.2/util/settings/resources_filter.go
        objects = render()
        self.assertEqual(of_kind(objects, "Lease"), {})
        # RBAC cannot restrict `create` to a name.
        lease = [(verb, by_name) for _, resource, verb, by_name in rules(objects, "scheduler") if resource == "leases"]
        others = [("get", True), ("list", True), ("watch", True), ("update", True), ("patch", True)]
        self.assertEqual(sorted(lease), sorted([("create", False), *others]))

    def test_agent_may_do_what_it_does_and_no_more(self):
        done = {(resource, verb) for _, resource, verb, _ in rules(render(), "node-agent")}
        reads = {("pods", "list"), ("pods", "watch"), ("nodes", "list"), ("nodes", "watch")}
        writes = {("nodes", "patch"), ("nodes/status", "patch"), ("pods/status", "patch"), ("events", "create"), ("events", "patch")}
        self.assertEqual(done, reads | writes)

    def test_every_container_is_confined(self):
        for one in containers(render("cleanup.enabled=true")):
            context = one["securityContext"]
            inspection = {"add": ["SYS_PTRACE", "DAC_READ_SEARCH", "DAC_OVERRIDE"]} if one["name"] == "node-agent" else {}
            self.assertEqual(context["capabilities"], {"drop": ["ALL"], **inspection}, one["name"])
            self.assertTrue(context["readOnlyRootFilesystem"], one["name"])
            self.assertFalse(context["allowPrivilegeEscalation"], one["name"])
            self.assertNotIn("privileged", context)
            if one["name"] not in ("node-agent", "clean", "stay"):
                self.assertTrue(context["runAsNonRoot"] and context["runAsUser"] > 0, one["name"])

    def test_only_inspection_gives_the_agent_capabilities_and_it_is_on_by_default(self):
        inspecting = ["DAC_OVERRIDE", "DAC_READ_SEARCH", "SYS_PTRACE"]
        for value, added in [("nodeAgent.adopt=null", inspecting), ("nodeAgent.adopt=auto", inspecting), ("nodeAgent.adopt=off", []), ("nodeAgent.adopt=false", [])]:
            for one in containers(render(value)):
                if one["name"] == "node-agent":
                    self.assertIn("--adopt=" + ("auto" if added else "off"), one["args"], value)
                capabilities = one["securityContext"]["capabilities"]
                self.assertEqual(capabilities["drop"], ["ALL"], one["name"])
                self.assertEqual(sorted(capabilities.get("add", [])), added if one["name"] == "node-agent" else [], one["name"])


class Objects(unittest.TestCase):
    def test_everything_carries_the_release_and_its_namespace(self):
        cluster = {"ClusterRole", "ClusterRoleBinding", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration",
                   "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
        for one in render("monitoring.monitors.enabled=true", "monitoring.rules.enabled=true", "monitoring.dashboards.enabled=true"):
            described = f"{one['kind']} {one['metadata']['name']}"
            self.assertEqual(one["metadata"]["labels"]["app.kubernetes.io/instance"], "sluice", described)
            where = None if one["kind"] in cluster else "kube-system" if described.endswith("authentication-reader") else NAMESPACE
            self.assertEqual(one["metadata"].get("namespace"), where, described)

    def test_a_new_version_of_the_chart_alone_restarts_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            newer = Path(shutil.copytree(CHART, Path(folder) / "sluice"))
            text = (newer / "Chart.yaml").read_text().replace("0.1.0", "0.2.0")
            (newer / "Chart.yaml").write_text(text)
            for kind in ("DaemonSet", "Deployment"):
                for name, one in of_kind(render("image.tag=same", chart=newer), kind).items():
                    before = of_kind(render("image.tag=same"), kind)[name]
                    self.assertEqual(one["spec"]["template"], before["spec"]["template"], name)
                    self.assertNotEqual(one["metadata"]["labels"], before["metadata"]["labels"], name)

    def test_what_the_daemons_fill_is_rendered_empty(self):
        objects = render()
        self.assertNotIn("data", of_kind(objects, "Secret")["sluice-webhook-certificate"])

    def test_monitors_need_no_knowledge_of_the_cluster(self):
        self.assertFalse(of_kind(render(), "PodMonitor", "ServiceMonitor"))
        self.assertTrue(of_kind(render("monitoring.monitors.enabled=true"), "PodMonitor", "ServiceMonitor"))

    def test_probes_are_on_every_container_that_serves(self):
        for name, spec in workloads(render()).items():
            for one in spec["containers"]:
                self.assertTrue({"livenessProbe", "readinessProbe"} <= set(one), f"{name}/{one['name']}")

    def test_log_format_reaches_every_daemon(self):
        for name, spec in workloads(render("logFormat=json")).items():
            for one in spec["containers"]:
                if one["name"] != "kube-scheduler":
                    self.assertIn({"name": "SLUICE_LOG_FORMAT", "value": "json"}, one["env"], f"{name}/{one['name']}")

    def test_kubelet_probes_the_agent_on_a_port_of_its_own(self):
        for settings, port in [([], 9405), (["nodeAgent.healthPort=9500"], 9500)]:
            (agent,) = workloads(render(*settings))["sluice-node-agent"]["containers"]
            ports = {one["name"]: one["containerPort"] for one in agent["ports"]}
            self.assertEqual(ports["health"], port)
            self.assertNotEqual(ports["health"], ports["metrics"])
            probed = {agent[probe]["httpGet"]["port"] for probe in ("livenessProbe", "readinessProbe")}
            self.assertEqual(probed, {"health"})
            # The agent serves it at the address of --http, which extraArgs may set.
            self.assertEqual("--health=9500" in agent["args"], port == 9500)

    def test_cert_manager_makes_the_certificate_for_the_service(self):
        objects = render("webhook.certManager.enabled=true")
        certificate = of_kind(objects, "Certificate")["sluice-webhook"]["spec"]
        self.assertIn(f"sluice-webhook.{NAMESPACE}.svc", certificate["dnsNames"])
        self.assertFalse(of_kind(objects, "Secret"))
        mounted = workloads(objects)["sluice-webhook"]["volumes"][0]["secret"]["secretName"]
        self.assertEqual(certificate["secretName"], mounted)
        own = render("webhook.certManager.enabled=true", "webhook.certManager.issuerRef.name=ca", "webhook.certManager.issuerRef.kind=ClusterIssuer")
        self.assertFalse(of_kind(own, "Issuer"))
        self.assertEqual(set(of_kind(own, "Certificate")), {"sluice-webhook"})
        self.assertEqual(of_kind(own, "Certificate")["sluice-webhook"]["spec"]["issuerRef"], {"kind": "ClusterIssuer", "name": "ca"})

    def test_cert_manager_signs_with_a_ca_that_outlives_the_certificate(self):
        objects = render("webhook.certManager.enabled=true")
        certificates, issuers = of_kind(objects, "Certificate"), of_kind(objects, "Issuer")
        serving = certificates["sluice-webhook"]["spec"]
        self.assertFalse(serving.get("isCA"))
        signed = issuers[serving["issuerRef"]["name"]]["spec"]["ca"]["secretName"]
        (authority,) = [one["spec"] for one in certificates.values() if one["spec"]["secretName"] == signed]
        self.assertTrue(authority["isCA"] and authority["commonName"] and authority["duration"] == "87600h")
        self.assertEqual(issuers[authority["issuerRef"]["name"]]["spec"], {"selfSigned": {}})
        # What the API server trusts comes with the serving certificate: the CA that signed it.
        for one in of_kind(objects, "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration").values():
            self.assertEqual(one["metadata"]["annotations"]["cert-manager.io/inject-ca-from"], f"{NAMESPACE}/sluice-webhook")

    def test_annotations_beside_the_template_are_warned_of_and_never_refused(self):
        objects = render()
        policy = of_kind(objects, "ValidatingAdmissionPolicy")["sluice-workload-annotations"]["spec"]
        binding = of_kind(objects, "ValidatingAdmissionPolicyBinding")["sluice-workload-annotations"]["spec"]
        self.assertEqual((policy["failurePolicy"], binding["validationActions"]), ("Ignore", ["Warn"]))
        matched = {kind for rule in policy["matchConstraints"]["resourceRules"] for kind in rule["resources"]}
        self.assertEqual(matched, {"deployments", "statefulsets", "daemonsets", "jobs"})
        for name, one in of_kind(objects, "ValidatingAdmissionPolicyBinding").items():
            if name != "sluice-workload-annotations":
                self.assertEqual(one["spec"]["validationActions"], ["Deny"], name)

    def test_debugging_containers_are_mutated_before_they_are_validated(self):
        objects = render()
        for kind, path in [("MutatingWebhookConfiguration", "/mutate"), ("ValidatingWebhookConfiguration", "/validate")]:
            hooks = of_kind(objects, kind)["sluice-webhook"]["webhooks"]
            (hook,) = [one for one in hooks if one["rules"][0]["resources"] == ["pods/ephemeralcontainers"]]
            self.assertEqual((hook["clientConfig"]["service"]["path"], hook["rules"][0]["operations"]), (path, ["UPDATE"]))
            (condition,) = hook["matchConditions"]
            self.assertIn("object.metadata.annotations.exists(k, k.startsWith('sluice.dev/'))", condition["expression"])


if __name__ == "__main__":
    unittest.main()
