"""The values of each platform in docs/operators/platforms.md: what they render is valid Kubernetes, and says what the page says."""

import re
import unittest
from pathlib import Path

import kubernetes_validate
import yaml

from rendering import CHART, containers, of_kind, render, workloads

PAGE = CHART.parents[1] / "docs/operators/platforms.md"
FILES = {file.stem: file for file in sorted((Path(__file__).parent / "platforms").glob("*.yaml"))}
# The oldest Kubernetes that the chart accepts, and those of the cluster tests.
KUBERNETES = ("1.30", "1.34", "1.36")
# Kinds that are no part of Kubernetes; other tests name their fields.
OTHERS = {"PodMonitor", "ServiceMonitor", "PrometheusRule", "SecurityContextConstraints", "Issuer", "Certificate"}


def rendered(platform: str, *values: str) -> list[dict]:
    return render(*values, more=("--values", str(FILES[platform])))


class Schemas(unittest.TestCase):
    def validate(self, objects: list[dict]):
        for one in objects:
            if one["kind"] not in OTHERS:
                for version in KUBERNETES:
                    with self.subTest(kind=one["kind"], name=one["metadata"]["name"], kubernetes=version):
                        kubernetes_validate.validate(one, version, strict=True)

    def test_objects_of_each_platform_are_valid_in_each_kubernetes(self):
        self.assertGreaterEqual(set(FILES), {"gke", "eks-other-cni", "aks", "openshift", "talos", "bottlerocket", "k3s-rke2", "microk8s"})
        for platform in FILES:
            with self.subTest(platform):
                self.validate(rendered(platform, "cleanup.enabled=true"))

    def test_objects_of_every_switch_are_valid(self):
        switches = (
            "monitoring.monitors.enabled", "monitoring.rules.enabled", "monitoring.dashboards.enabled", "openshift.enabled", "criticalPodsQuota.enabled",
            "nodeAgent.seLinux.enabled", "webhook.hostNetwork", "cleanup.enabled",
        )
        for injection in ("runtime", "auto", "nri"):
            self.validate(render(f"injection={injection}", "listenAddress=::", *(f"{switch}=true" for switch in switches)))

    def test_an_unknown_field_or_a_wrong_type_is_found(self):
        (agent,) = of_kind(render(), "DaemonSet").values()
        for field, value in (("hostPids", True), ("hostPID", "yes")):
            broken = {**agent["spec"]["template"]["spec"], field: value}
            wrong = {**agent, "spec": {**agent["spec"], "template": {**agent["spec"]["template"], "spec": broken}}}
            for version in KUBERNETES:
                with self.subTest(field), self.assertRaises(kubernetes_validate.ValidationError):
                    kubernetes_validate.validate(wrong, version, strict=True)


class Page(unittest.TestCase):
    def test_page_shows_the_tested_values_and_no_others(self):
        shown = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
        self.assertEqual(sorted(shown), sorted(file.read_text() for file in FILES.values()))


class Values(unittest.TestCase):
    def agent(self, platform: str) -> tuple[dict, dict]:
        spec = workloads(rendered(platform))["sluice-node-agent"]
        (agent,) = spec["containers"]
        return spec, agent

    def paths(self, spec: dict) -> set[str]:
        return {one["hostPath"]["path"] for one in spec["volumes"] if "hostPath" in one}

    def test_a_runtime_class_is_named_where_helm_cannot_look_it_up(self):
        for platform, file in FILES.items():
            expected = yaml.safe_load(file.read_text()).get("runtimeClassName")
            self.assertEqual(self.agent(platform)[0].get("runtimeClassName"), expected, platform)

    def test_gke_has_the_library_on_a_file_system_with_exec_and_a_quota(self):
        # https://cloud.google.com/container-optimized-os/docs/concepts/disks-and-filesystem: /var is not executable.
        spec, agent = self.agent("gke")
        self.assertFalse([path for path in self.paths(spec) if path.startswith("/var/lib/sluice")])
        self.assertIn("--state-folder=/home/kubernetes/bin/sluice", agent["args"])
        self.assertEqual(len(of_kind(rendered("gke"), "ResourceQuota")), 1)

    def test_openshift_admits_every_pod(self):
        objects = rendered("openshift")
        self.assertEqual(set(of_kind(objects, "SecurityContextConstraints")), {"sluice-node-agent"})
        for one in containers(objects):
            context = one["securityContext"]
            self.assertTrue(context.get("runAsUser") in (None, 0), one["name"])
            self.assertEqual(context.get("seLinuxOptions", {}).get("type"), "spc_t" if context.get("runAsUser") == 0 else None, one["name"])

    def test_talos_needs_no_folder_in_etc(self):
        for path in self.paths(self.agent("talos")[0]):
            self.assertFalse(path.startswith("/etc"), path)

    def test_bottlerocket_relabels_with_a_type_that_may(self):
        spec, agent = self.agent("bottlerocket")
        for one in (*spec["initContainers"], agent):
            self.assertEqual(one["securityContext"]["seLinuxOptions"]["type"], "super_t")

    def test_microk8s_has_kubelets_folder_elsewhere_on_the_node_and_at_its_place_in_the_agent(self):
        for objects, name in ((rendered("microk8s"), "node-agent"), (rendered("microk8s", "cleanup.enabled=true"), "cleanup")):
            spec = workloads(objects)[f"sluice-{name}"]
            (folder,) = [one["hostPath"]["path"] for one in spec["volumes"] if one["name"] == "device-plugins"]
            self.assertEqual(folder, "/var/snap/microk8s/common/var/lib/kubelet/device-plugins")
            for container in spec["containers"]:
                mounts = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
                self.assertEqual(mounts["device-plugins"], "/var/lib/kubelet/device-plugins")


if __name__ == "__main__":
    unittest.main()
