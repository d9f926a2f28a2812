"""The configuration of the kube-scheduler that the chart runs beside the extender."""

import unittest

import yaml

from rendering import Failed, of_kind, render


def configuration(*values: str) -> dict:
    return yaml.safe_load(of_kind(render(*values), "ConfigMap")["sluice-scheduler"]["data"]["config.yaml"])


class Scheduler(unittest.TestCase):
    def test_extender_corrects_the_victims_of_a_preemption(self):
        configured = configuration()
        (extender,) = configured["extenders"]
        self.assertEqual(extender["preemptVerb"], "preempt")
        # Without it kube-scheduler sends whole pods, and the extender refuses.
        self.assertTrue(extender["nodeCacheCapable"])
        # kube-scheduler would evict by its own choice if it could go on without the extender's answer.
        self.assertFalse(extender["ignorable"])
        self.assertEqual(configured["profiles"], [{"schedulerName": "sluice-scheduler"}])

    def test_extender_is_asked_about_every_node_unless_a_value_says_otherwise(self):
        self.assertEqual(configuration()["percentageOfNodesToScore"], 100)
        value = "scheduler.kubeScheduler.percentageOfNodesToScore"
        self.assertEqual(configuration(f"{value}=30")["percentageOfNodesToScore"], 30)
        # kube-scheduler's own default.
        self.assertNotIn("percentageOfNodesToScore", configuration(f"{value}=null"))
        for wrong in ("101", "-1", "all"):
            with self.subTest(wrong), self.assertRaises(Failed) as refusal:
                render(f"{value}={wrong}")
            self.assertIn("percentageOfNodesToScore", str(refusal.exception))

    def test_drain_may_evict_replicas_that_are_not_ready(self):
        budgets = of_kind(render(), "PodDisruptionBudget")
        self.assertEqual(set(budgets), {"sluice-scheduler", "sluice-webhook"})
        for name, budget in budgets.items():
            self.assertEqual(budget["spec"]["unhealthyPodEvictionPolicy"], "AlwaysAllow", name)


if __name__ == "__main__":
    unittest.main()
