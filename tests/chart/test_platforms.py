"""What managed and hardened platforms need from the chart."""

import unittest

from rendering import Failed, containers, of_kind, render, workloads

GKE = ("--kube-version", "1.34.4-gke.1047000")


class CriticalPods(unittest.TestCase):
    """Pods of the classes system-*-critical where the API server admits them only with a quota."""

    def quotas(self, *values: str, more: tuple = ()) -> dict:
        return of_kind(render(*values, more=more), "ResourceQuota")

    def test_quota_covers_the_priority_classes_of_all_pods_and_limits_nothing_else(self):
        objects = render("criticalPodsQuota.enabled=true")
        (quota,) = of_kind(objects, "ResourceQuota").values()
        (scope,) = quota["spec"]["scopeSelector"]["matchExpressions"]
        used = {spec["priorityClassName"] for spec in workloads(objects).values()}
        self.assertEqual((scope["scopeName"], scope["operator"], set(scope["values"])), ("PriorityClass", "In", used))
        self.assertEqual(quota["spec"]["hard"], {"pods": "1G"})

    def test_quota_is_there_on_gke_unless_a_value_says_otherwise(self):
        self.assertEqual(self.quotas(), {})
        self.assertEqual(set(self.quotas(more=GKE)), {"sluice-critical-pods"})
        self.assertEqual(self.quotas("criticalPodsQuota.enabled=false", more=GKE), {})


class AdmissionEnforcer(unittest.TestCase):
    def test_aks_leaves_the_webhooks_selectors_to_the_chart(self):
        # Its enforcer would own them, and Helm 4's server-side apply refuses an upgrade then.
        for values in ((), ("webhook.certManager.enabled=true",)):
            for name, one in of_kind(render(*values), "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration").items():
                self.assertEqual(one["metadata"]["annotations"]["admissions.enforcer/disabled"], "true", name)


class Policies(unittest.TestCase):
    def test_policies_of_pods_evaluate_only_pods_with_keys_of_sluice(self):
        keys = {"sluice-immutable-requests": ["'sluice.dev/'", "'sharedgpu/'"], "sluice-assignment": ["'sluice.dev/assigned-gpu'"]}
        policies = of_kind(render(), "ValidatingAdmissionPolicy")
        for name, named in keys.items():
            (condition,) = policies[name]["spec"]["matchConditions"]
            for text in (*named, "oldObject", "object"):
                self.assertIn(text, condition["expression"], name)
        # One that fails closed and has no condition could stop every status update of the cluster.
        for name, one in policies.items():
            self.assertTrue(one["spec"].get("matchConditions"), name)


class Addresses(unittest.TestCase):
    FLAGS = {
        "node-agent": {"--http": 9400, "--health": None},
        "scheduler": {"--metrics-listen": 9401},
        "webhook": {"--listen": 9443, "--metrics": 9404},
    }

    def flags(self, *values: str) -> dict[str, dict[str, str]]:
        """Flags with addresses, by component."""
        found = {}
        for component, names in self.FLAGS.items():
            spec = workloads(render(*values))[f"sluice-{component}"]
            arguments = [one for container in spec["containers"] for one in container.get("args", [])]
            found[component] = {name: one.split("=", 1)[1] for one in arguments for name in names if one.startswith(name + "=")}
        return found

    def test_programs_listen_at_their_own_default_addresses_by_default(self):
        self.assertEqual(self.flags(), {component: {} for component in self.FLAGS})

    def test_every_listener_has_the_address_of_the_values(self):
        for address, written in (("::", "[::]"), ("0.0.0.0", "0.0.0.0")):
            expected = {
                component: {name: f"{written}:{port}" for name, port in names.items() if port} for component, names in self.FLAGS.items()
            }
            self.assertEqual(self.flags(f"listenAddress={address}"), expected)
        (own,) = workloads(render("listenAddress=::", "injection=nri"))["sluice-node-agent"]["initContainers"]
        # The probes of the agent are at the address of --http if --health is a port.
        self.assertTrue({"--http=[::]:9400", "--health=9406"} <= set(own["args"]), own["args"])

    def test_what_is_no_address_is_refused(self):
        for wrong in ("[::]", "localhost", "::/0", "10.0.0.1:80"):
            with self.subTest(wrong), self.assertRaises(Failed) as refusal:
                render(f"listenAddress={wrong}")
            self.assertIn("listenAddress", str(refusal.exception))


class HostNetwork(unittest.TestCase):
    VALUES = ("webhook.hostNetwork=true", "webhook.port=10343", "webhook.metricsPort=10344")

    def test_webhook_is_in_the_pod_network_by_default(self):
        spec = workloads(render())["sluice-webhook"]
        self.assertEqual((spec.get("hostNetwork"), spec.get("dnsPolicy")), (None, None))

    def test_webhook_in_the_host_network_resolves_services_and_is_replaced_one_by_one(self):
        objects = render(*self.VALUES)
        spec = workloads(objects)["sluice-webhook"]
        self.assertEqual((spec["hostNetwork"], spec["dnsPolicy"]), (True, "ClusterFirstWithHostNet"))
        # Two replicas do not fit on a node, so a third one may fit on no node.
        strategy = of_kind(objects, "Deployment")["sluice-webhook"]["spec"]["strategy"]
        self.assertEqual(strategy, {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}})

    def test_port_is_that_of_the_container_the_flags_the_annotation_and_the_network_policy(self):
        for values in (self.VALUES, self.VALUES[1:]):
            objects = render(*values, "networkPolicy.enabled=true")
            (container,) = workloads(objects)["sluice-webhook"]["containers"]
            self.assertEqual([one["containerPort"] for one in container["ports"]], [10343, 10344])
            self.assertTrue({"--listen=[::]:10343", "--metrics=[::]:10344"} <= set(container["args"]))
            template = of_kind(objects, "Deployment")["sluice-webhook"]["spec"]["template"]
            self.assertEqual(template["metadata"]["annotations"]["prometheus.io/port"], "10344")
            policy = of_kind(objects, "NetworkPolicy")["sluice-webhook"]["spec"]
            opened = {port["port"] for rule in policy["ingress"] for port in rule["ports"]}
            self.assertEqual(opened, {10343, 10344})
            # The service keeps its ports, which the webhook configurations and helm test name.
            service = of_kind(objects, "Service")["sluice-webhook"]["spec"]
            self.assertEqual([(one["port"], one["targetPort"]) for one in service["ports"]], [(443, "https"), (9404, "metrics")])

    def test_listeners_of_the_webhook_have_different_ports(self):
        with self.assertRaises(Failed) as refusal:
            render("webhook.port=9404")
        self.assertIn("webhook.port is 9404, expected another port than webhook.metricsPort", str(refusal.exception))


class HostPaths(unittest.TestCase):
    """Folders of the node: the agent's mounts have the node's paths, because kubelet and pods get them by name."""

    STATE = "nodeAgent.hostPaths.state=/home/kubernetes/bin/sluice"
    CDI = "nodeAgent.hostPaths.cdi={/var/cdi/static,/var/cdi/dynamic}"

    def mounts(self, spec: dict, container: dict) -> dict[str, str]:
        """The node's path by the container's."""
        paths = {one["name"]: one["hostPath"]["path"] for one in spec["volumes"] if "hostPath" in one}
        return {one["mountPath"]: paths[one["name"]] for one in container["volumeMounts"] if one["name"] in paths}

    def agent(self, *values: str) -> tuple[dict, dict]:
        spec = workloads(render(*values))["sluice-node-agent"]
        return spec, spec["containers"][0]

    def test_state_folder_is_mounted_under_its_own_path_and_passed_to_the_agent(self):
        for value, path, flags in ((self.STATE, "/home/kubernetes/bin/sluice", 1), ("nodeAgent.hostPaths.state=null", "/var/lib/sluice", 0)):
            spec, agent = self.agent(value)
            mounts = self.mounts(spec, agent)
            self.assertEqual(mounts[path], path)
            self.assertEqual([one for one in agent["args"] if one.startswith("--state-folder")], [f"--state-folder={path}"][:flags])
            self.assertEqual("/var/lib/sluice" in mounts, not flags)

    def test_library_of_another_state_folder_is_labelled_and_cleaned_up(self):
        spec, _ = self.agent(self.STATE, "nodeAgent.seLinux.enabled=true")
        self.assertEqual(self.mounts(spec, spec["initContainers"][0])["/host/library"], "/home/kubernetes/bin/sluice/lib")
        spec = workloads(render(self.STATE, "cleanup.enabled=true"))["sluice-cleanup"]
        for container in spec["initContainers"] + spec["containers"]:
            self.assertIn("--state-folder=/host/home/kubernetes/bin/sluice", container["args"])
            # The parent, because a mount point cannot be removed.
            self.assertEqual(self.mounts(spec, container)["/host/home/kubernetes/bin"], "/home/kubernetes/bin")

    def test_cdi_and_nri_folders_are_mounted_and_passed_to_both_plugins(self):
        for injection in ("auto", "nri"):
            spec, agent = self.agent(f"injection={injection}", self.CDI, "nodeAgent.hostPaths.nri=/run/other/nri")
            for container in [agent, *spec.get("initContainers", [])]:
                mounts = self.mounts(spec, container)
                flags = [one for one in container["args"] if one.startswith(("--cdi-folder", "--nri-socket"))]
                self.assertEqual(flags, ["--nri-socket=/run/other/nri/nri.sock", "--cdi-folder=/var/cdi/static", "--cdi-folder=/var/cdi/dynamic"])
                for path in ("/run/other/nri", "/var/cdi/static", "/var/cdi/dynamic"):
                    self.assertEqual(mounts[path], path, container["name"])
                self.assertNotIn("/etc/cdi", mounts)

    def test_a_path_that_is_not_absolute_is_refused(self):
        for value in ("state=sluice", "nri=../nri", "cdi={cdi}", "state=/", "state=/var/lib/../sluice"):
            with self.subTest(value), self.assertRaises(Failed) as refusal:
                render(f"nodeAgent.hostPaths.{value}")
            self.assertIn("hostPaths", str(refusal.exception))


class OpenShift(unittest.TestCase):
    def constraint(self, *values: str) -> dict:
        return of_kind(render("openshift.enabled=true", *values), "SecurityContextConstraints")["sluice-node-agent"]

    def test_no_constraint_elsewhere(self):
        self.assertEqual(of_kind(render(), "SecurityContextConstraints"), {})

    def test_constraint_admits_the_agent_and_nothing_more(self):
        for values in ((), ("nodeAgent.adopt=off",), ("injection=nri", "nodeAgent.seLinux.enabled=true", "nodeAgent.seLinux.type=super_t")):
            constraint = self.constraint(*values)
            spec = workloads(render("openshift.enabled=true", *values))["sluice-node-agent"]
            self.assertEqual(constraint["users"], [f"system:serviceaccount:sluice-system:{spec['serviceAccountName']}"])
            self.assertEqual(constraint["groups"], [])
            self.assertEqual(constraint["allowHostPID"], spec["hostPID"])
            for right in ("allowHostNetwork", "allowHostIPC", "allowHostPorts", "allowPrivilegedContainer", "allowPrivilegeEscalation"):
                self.assertFalse(constraint[right], right)
            added = {one for container in spec["containers"] for one in container["securityContext"]["capabilities"].get("add", [])}
            self.assertEqual(set(constraint["allowedCapabilities"] or []), added)
            # A projected volume has the account's token.
            kinds = {next(kind for kind in one if kind != "name") for one in spec["volumes"]} | {"configMap", "projected"}
            self.assertEqual(set(constraint["volumes"]), kinds)
            options = {str(one["securityContext"].get("seLinuxOptions")) for one in spec["containers"] + spec.get("initContainers", [])}
            allowed = constraint["seLinuxContext"]
            wanted = allowed.get("seLinuxOptions") if allowed["type"] == "MustRunAs" else None
            self.assertEqual(options, {str(wanted)})

    def test_constraint_of_the_clean_up_goes_with_it(self):
        objects = render("openshift.enabled=true", "cleanup.enabled=true", "nodeAgent.seLinux.enabled=true")
        constraint = of_kind(objects, "SecurityContextConstraints")["sluice-cleanup"]
        self.assertEqual(constraint["users"], ["system:serviceaccount:sluice-system:sluice-cleanup"])
        self.assertEqual(constraint["allowedCapabilities"], [])
        self.assertNotIn("sluice-cleanup", of_kind(render("openshift.enabled=true"), "SecurityContextConstraints"))

    def test_programs_without_rights_have_the_user_of_their_namespace(self):
        # OpenShift's restricted-v2 refuses any other user.
        for name, spec in {**workloads(render("openshift.enabled=true")), "test": of_kind(render("openshift.enabled=true"), "Pod")["sluice-test"]["spec"]}.items():
            for one in spec["containers"]:
                context = one["securityContext"]
                if name != "sluice-node-agent":
                    self.assertEqual((context["runAsNonRoot"], context.get("runAsUser"), context.get("runAsGroup")), (True, None, None), one["name"])


class SeLinuxTypes(unittest.TestCase):
    def test_types_are_those_of_the_values(self):
        values = ("nodeAgent.seLinux.enabled=true", "nodeAgent.seLinux.type=super_t", "nodeAgent.seLinux.fileType=local_t")
        spec = workloads(render(*values))["sluice-node-agent"]
        self.assertEqual(spec["containers"][0]["securityContext"]["seLinuxOptions"], {"type": "super_t", "level": "s0"})
        self.assertIn("system_u:object_r:local_t:s0", spec["initContainers"][0]["command"])


class Images(unittest.TestCase):
    def test_no_image_has_the_tag_latest(self):
        for one in containers(render("nodeAgent.seLinux.enabled=true", "cleanup.enabled=true")):
            self.assertNotRegex(one["image"], ":latest$|/[^:@]+$", one["name"])


if __name__ == "__main__":
    unittest.main()
