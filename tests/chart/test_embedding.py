"""The chart as a part of another chart, and the manifests for clusters without Helm."""

import re
import shutil
import tempfile
import unittest
from pathlib import Path

import yaml

from rendering import CHART, Failed, of_kind, render, workloads

DEPLOY = CHART.parents[1] / "deploy"
UMBRELLA = {
    "apiVersion": "v2",
    "name": "platform",
    "version": "1.0.0",
    "dependencies": [{"name": "sluice", "version": "*", "condition": "sluice.enabled"}],
}


class Umbrella(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.chart = Path(folder.name)
        shutil.copytree(CHART, self.chart / "charts/sluice")
        (self.chart / "Chart.yaml").write_text(yaml.safe_dump(UMBRELLA))

    def render(self, *values: str) -> list[dict]:
        return render(*values, chart=self.chart)

    def test_chart_is_a_dependency_with_a_condition(self):
        self.assertIn("sluice-node-agent", workloads(self.render("sluice.enabled=true")))
        self.assertEqual(self.render("sluice.enabled=false"), [])

    def test_globals_of_other_charts_are_accepted(self):
        objects = self.render("global.storageClass=fast", "global.postgresql.auth.username=x", "global.imageRegistry=registry.local")
        (agent,) = workloads(objects)["sluice-node-agent"]["containers"]
        self.assertTrue(agent["image"].startswith("registry.local/"))

    def test_pull_secrets_are_names_or_objects(self):
        for value in ("global.imagePullSecrets={regcred}", "global.imagePullSecrets[0].name=regcred"):
            for name, spec in workloads(self.render(value)).items():
                self.assertEqual(spec["imagePullSecrets"], [{"name": "regcred"}], f"{value}: {name}")

    def test_unknown_values_of_the_chart_itself_are_still_refused(self):
        with self.assertRaises(Failed) as refusal:
            self.render("sluice.nodeAgent.seatPerGpu=4")
        self.assertIn("additional properties 'seatPerGpu' not allowed", str(refusal.exception))


class Manifests(unittest.TestCase):
    def test_manifest_names_no_version_of_kubernetes(self):
        text = (DEPLOY / "sluice.yaml").read_text()
        self.assertEqual(re.findall(r"kube-scheduler:(\S+)", text), ["KUBERNETES_VERSION"])

    def test_namespace_admits_the_agents(self):
        objects = [one for one in yaml.safe_load_all((DEPLOY / "sluice.yaml").read_text()) if one]
        labels = of_kind(objects, "Namespace")["sluice-system"]["metadata"]["labels"]
        # hostPath and hostPID: the level `baseline` refuses them.
        self.assertEqual(labels["pod-security.kubernetes.io/enforce"], "privileged")


if __name__ == "__main__":
    unittest.main()
