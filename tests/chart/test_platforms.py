"""What managed and hardened platforms need from the chart."""

import unittest

from rendering import Failed, of_kind, render, workloads

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
            self.assertTrue({"--listen=0.0.0.0:10343", "--metrics=0.0.0.0:10344"} <= set(container["args"]))
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


if __name__ == "__main__":
    unittest.main()
