"""The configuration of the kube-scheduler that the chart runs beside the extender."""

import unittest

import yaml

from rendering import Failed, containers, of_kind, render, rules


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

    def test_settings_of_plugins_reach_the_profile(self):
        own = "scheduler.kubeScheduler"
        (profile,) = configuration(
            f"{own}.plugins.score.disabled[0].name=ImageLocality",
            f"{own}.plugins.multiPoint.enabled[0].name=Coscheduling",
            f"{own}.plugins.multiPoint.enabled[0].weight=3",
            f"{own}.pluginConfig[0].name=PodTopologySpread",
            f"{own}.pluginConfig[0].args.defaultingType=List",
        )["profiles"]
        self.assertEqual(profile, {
            "schedulerName": "sluice-scheduler",
            "plugins": {
                "multiPoint": {"enabled": [{"name": "Coscheduling", "weight": 3}]},
                "score": {"disabled": [{"name": "ImageLocality"}]},
            },
            "pluginConfig": [{"name": "PodTopologySpread", "args": {"defaultingType": "List"}}],
        })

    def test_settings_of_plugins_that_would_place_pods_wrongly_are_refused(self):
        own = "scheduler.kubeScheduler"
        for values, complaints in [
            ([f"{own}.plugins.fliter.disabled[0].name=X"], ["additional properties 'fliter' not allowed"]),
            ([f"{own}.plugins.score.disable[0].name=X"], ["additional properties 'disable' not allowed"]),
            ([f"{own}.plugins.score.enabled[0].weight=3"], ["missing property 'name'"]),
            ([f"{own}.pluginConfig[0].name=X"], ["missing property 'args'"]),
            ([f"{own}.plugins.multiPoint.disabled[0].name=NodeResourcesFit"], ["plugins.multiPoint.disabled"]),
            ([f"{own}.plugins.filter.disabled[0].name=NodeAffinity"], ["expected NodeAffinity to stay"]),
            ([f"{own}.plugins.preFilter.disabled[0].name=*"], ["expected NodeResourcesFit to stay"]),
            # Each mistake is in one message.
            (
                [
                    *(f"{own}.pluginConfig[{at}].name=NodeResourcesFit" for at in (0, 1)),
                    f"{own}.pluginConfig[0].args.ignoredResourceGroups[0]=sluice.dev",
                    f"{own}.pluginConfig[1].args.ignoredResources[0]=sluice.dev/gpu",
                ],
                ["has \"NodeResourcesFit\" twice", "ignores \"sluice.dev\"", "ignores \"sluice.dev/gpu\""],
            ),
        ]:
            with self.subTest(values), self.assertRaises(Failed) as refusal:
                render(*values)
            for complaint in complaints:
                self.assertIn(complaint, str(refusal.exception))

    def test_plugin_that_is_enabled_again_at_its_point_may_be_disabled(self):
        point = "scheduler.kubeScheduler.plugins.filter"
        enabled = [f"{point}.enabled[{at}].name={name}" for at, name in enumerate(["NodeResourcesFit", "NodeAffinity", "TaintToleration"])]
        (profile,) = configuration(f"{point}.disabled[0].name=*", *enabled)["profiles"]
        self.assertEqual(profile["plugins"]["filter"]["disabled"], [{"name": "*"}])

    def test_scale_up_pods_need_a_flag_a_right_and_no_webhook(self):
        without, with_pods = render(), render("scheduler.scaleUpPods=true")
        (flags, more) = ({flag for one in containers(objects) if one["name"] == "extender" for flag in one["args"]} for objects in (without, with_pods))
        self.assertEqual(more - flags, {"--scale-up-pods"})
        right = ("", "pods", "create", False)
        self.assertNotIn(right, rules(without, "scheduler"))
        self.assertIn(right, rules(with_pods, "scheduler"))
        # Only in the release's namespace.
        self.assertNotIn("sluice-scheduler", of_kind(with_pods, "ClusterRole"))
        account = "system:serviceaccount:sluice-system:sluice-scheduler"
        for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
            (hook,) = (one for one in of_kind(with_pods, kind)["sluice-webhook"]["webhooks"] if one["rules"][0]["resources"] == ["pods"] and "CREATE" in one["rules"][0]["operations"])
            conditions = {one["name"]: one["expression"] for one in hook["matchConditions"]}
            self.assertEqual(conditions["not-scale-up-pods"], f"request.userInfo.username != '{account}' || object.spec.schedulerName != 'scale-up.sluice.dev'")
        self.assertNotIn("not-scale-up-pods", str(without))
        self.assertIn("sluice-scale-up", of_kind(with_pods, "ValidatingAdmissionPolicy"))
        self.assertNotIn("sluice-scale-up", of_kind(without, "ValidatingAdmissionPolicy"))

    def test_drain_may_evict_replicas_that_are_not_ready(self):
        budgets = of_kind(render(), "PodDisruptionBudget")
        self.assertEqual(set(budgets), {"sluice-scheduler", "sluice-webhook"})
        for name, budget in budgets.items():
            self.assertEqual(budget["spec"]["unhealthyPodEvictionPolicy"], "AlwaysAllow", name)


if __name__ == "__main__":
    unittest.main()
