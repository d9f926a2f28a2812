"""Shares as claims: off by default, and what the value dra.enabled adds. Needs what rendering.py needs."""

import re
import unittest

import kubernetes_validate
import yaml

from rendering import CHART, Failed, of_kind, render, rules, workloads

KUBERNETES = ("--kube-version", "1.36.3")
ON = "dra.enabled=true"
EXAMPLES = CHART.parents[1] / "examples/dra"


def rendered(*values: str) -> list[dict]:
    return render(*values, more=KUBERNETES)


class Claims(unittest.TestCase):
    def test_nothing_of_it_but_the_policy_of_claims_is_there_by_default(self):
        # Pods may have claims from before the value was turned off, and a second pod could still reserve one.
        (policy,) = [one for one in rendered() if "resource.k8s.io" in yaml.safe_dump(one)]
        self.assertEqual((policy["kind"], policy["metadata"]["name"]), ("ValidatingAdmissionPolicy", "sluice-claims"))
        self.assertEqual(policy, of_kind(rendered(ON), policy["kind"])["sluice-claims"])
        self.assertIn("sluice-claims", [one["spec"]["policyName"] for one in of_kind(rendered(), "ValidatingAdmissionPolicyBinding").values()])
        # No claims of shares exist on older Kubernetes.
        self.assertNotIn("resource.k8s.io", yaml.safe_dump_all(render()))
        text = yaml.safe_dump_all(rendered())
        for word in ("--dra", "DeviceClass", "plugins_registry"):
            self.assertNotIn(word, text)

    def test_older_kubernetes_is_refused(self):
        with self.assertRaises(Failed) as refusal:
            render(ON)
        self.assertIn("dra.enabled is true, expected Kubernetes 1.36 or newer, found v1.34.4", str(refusal.exception))

    def test_objects_are_valid(self):
        for injection in ("runtime", "nri"):
            for one in rendered(ON, f"injection={injection}"):
                with self.subTest(kind=one["kind"], name=one["metadata"]["name"]):
                    kubernetes_validate.validate(one, "1.36", strict=True)

    def test_agent_may_read_a_claim_and_write_slices_and_no_other_component_may(self):
        before, objects = rendered(), rendered(ON)
        added = set(rules(objects, "node-agent")) - set(rules(before, "node-agent"))
        slices = {("resource.k8s.io", "resourceslices", verb, False) for verb in ("list", "watch", "create", "patch", "delete")}
        self.assertEqual(added, slices | {("resource.k8s.io", "resourceclaims", "get", False)})
        for component in ("scheduler", "webhook"):
            self.assertEqual(rules(objects, component), rules(before, component))
        added = set(rules(objects, "kubectl")) - set(rules(before, "kubectl"))
        self.assertEqual(added, {("resource.k8s.io", one, "list", False) for one in ("resourceslices", "resourceclaims")})

    def test_webhooks_pods_start_anew_when_claims_get_webhooks_of_their_own(self):
        # They add the authority of their certificate to each webhook at their start, and later at long intervals.
        template = lambda *values: of_kind(rendered(*values), "Deployment")["sluice-webhook"]["spec"]["template"]["metadata"]["annotations"]
        self.assertNotEqual(template(), template(ON))

    def test_translation_gives_the_extender_the_right_to_create_templates_in_the_listed_namespaces_only(self):
        listed = "dra.translateIn={team-a,team-b}"
        with self.assertRaises(Failed) as refusal:
            render(listed)
        self.assertIn("expected dra.enabled=true beside it", str(refusal.exception))
        objects = rendered(ON, listed)
        roles = [one for one in objects if one["kind"] == "Role" and one["metadata"]["name"] == "sluice-scheduler-claim-templates"]
        self.assertEqual({one["metadata"]["namespace"] for one in roles}, {"team-a", "team-b"})
        for role in roles:
            self.assertEqual(role["rules"], [{"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaimtemplates"], "verbs": ["create"]}])
        self.assertIn("--claims-in=team-a,team-b", workloads(objects)["sluice-webhook"]["containers"][0]["args"])
        extender = [one for one in workloads(objects)["sluice-scheduler"]["containers"] if "--claims-in=team-a,team-b" in one.get("args", [])]
        self.assertEqual(len(extender), 1)

    def test_agent_gets_kubelets_folders_by_the_same_path_and_writes_only_the_last_cdi_folder(self):
        for values, folder in (((), "/var/lib/kubelet"), (("nodeAgent.hostPaths.kubelet=/data/kubelet",), "/data/kubelet")):
            for injection in ("runtime", "auto", "nri"):
                pod = workloads(rendered(ON, f"injection={injection}", *values))["sluice-node-agent"]
                (agent,) = pod["containers"]
                self.assertIn("--dra", agent["args"])
                self.assertEqual(f"--kubelet-folder={folder}" in agent["args"], bool(values))
                paths = {one["name"]: one["hostPath"]["path"] for one in pod["volumes"] if "hostPath" in one}
                mounts = {one["name"]: one for one in agent["volumeMounts"]}
                self.assertEqual(len(mounts), len(agent["volumeMounts"]))
                for name in ("plugins-registry", "claims"):
                    self.assertEqual(mounts[name]["mountPath"], paths[name])
                    self.assertTrue(paths[name].startswith(f"{folder}/plugins"), paths[name])
                self.assertEqual([mounts[f"cdi-{at}"].get("readOnly", False) for at in (0, 1)], [True, False])
                for other in pod.get("initContainers", []):
                    self.assertTrue(all(one["readOnly"] for one in other["volumeMounts"] if one["name"].startswith("cdi-")))

    def test_policies_restrict_slices_to_the_agents_node_and_claims_to_one_pod(self):
        policies = of_kind(rendered(ON), "ValidatingAdmissionPolicy")
        bound = {one["spec"]["policyName"] for one in of_kind(rendered(ON), "ValidatingAdmissionPolicyBinding").values()}
        for name, resource in (("sluice-resource-slices", "resourceslices"), ("sluice-claims", "resourceclaims/status")):
            (rule,) = policies[name]["spec"]["matchConstraints"]["resourceRules"]
            self.assertEqual((rule["apiGroups"], rule["resources"]), (["resource.k8s.io"], [resource]))
            self.assertIn(name, bound)

    def test_webhook_sees_claims_on_shares_and_classes_with_a_configuration_for_them_only(self):
        def hooks(*values):
            (configuration,) = of_kind(rendered(*values), "ValidatingWebhookConfiguration").values()
            return {one["name"].partition(".")[0]: one for one in configuration["webhooks"]}

        added = {name: one for name, one in hooks(ON).items() if name not in hooks()}
        self.assertEqual(set(added), {"resourceclaims", "resourceclaimtemplates", "deviceclasses"})
        for name, one in added.items():
            (rule,) = one["rules"]
            self.assertEqual((rule["apiGroups"], rule["resources"], one["failurePolicy"]), (["resource.k8s.io"], [name], "Fail"))
            (condition,) = one["matchConditions"]
            self.assertIn("'gpu.sluice.dev'", condition["expression"])

    def test_examples_are_valid_and_use_the_charts_class(self):
        (name,) = of_kind(rendered(ON), "DeviceClass")
        for file in sorted(EXAMPLES.glob("*.yaml")):
            for one in yaml.safe_load_all(file.read_text()):
                with self.subTest(file.name, kind=one["kind"]):
                    kubernetes_validate.validate(one, "1.36", strict=True)
            self.assertEqual(set(re.findall(r"deviceClassName: (\S+)", file.read_text())), {name})


if __name__ == "__main__":
    unittest.main()
