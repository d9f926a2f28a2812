"""What managed and hardened platforms need from the chart."""

import unittest

from rendering import of_kind, render, workloads

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


if __name__ == "__main__":
    unittest.main()
