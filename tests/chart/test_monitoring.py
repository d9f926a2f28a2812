"""Who may scrape Sluice's programs, and the objects for the Prometheus Operator and for Grafana."""

import json
import re
import unittest

import yaml

from rendering import CHART, of_kind, render

MONITORS = "monitoring.monitors.enabled=true"
WITHOUT_KUBE_SCHEDULER = "monitoring.monitors.kubeScheduler=false"


def monitors(*values: str) -> dict:
    return of_kind(render(*values), "ServiceMonitor")


class KubeScheduler(unittest.TestCase):
    """Its metrics are served over HTTPS, to accounts that may read them."""

    def test_its_port_is_open_and_in_the_service_only_where_it_is_scraped(self):
        for values, scraped in (((MONITORS, WITHOUT_KUBE_SCHEDULER), False), ((MONITORS,), True), ((), False)):
            objects = render(*values)
            service = of_kind(objects, "Service")["sluice-scheduler"]["spec"]["ports"]
            policy = of_kind(objects, "NetworkPolicy")["sluice-scheduler"]["spec"]
            opened = {port["port"] for rule in policy["ingress"] for port in rule["ports"]}
            self.assertEqual(10259 in opened, scraped, values)
            self.assertEqual("kube-scheduler" in [one["name"] for one in service], scraped, values)
            self.assertEqual("sluice-kube-scheduler" in of_kind(objects, "ServiceMonitor"), scraped, values)

    def test_monitor_of_its_own_sends_prometheus_token(self):
        # Where Prometheus forbids the token's file, it drops the whole monitor: the extender's must not depend on it.
        found = monitors(MONITORS)
        self.assertEqual(set(found), {"sluice-scheduler", "sluice-kube-scheduler", "sluice-webhook"})
        (endpoint,) = found["sluice-kube-scheduler"]["spec"]["endpoints"]
        self.assertEqual((endpoint["port"], endpoint["scheme"]), ("kube-scheduler", "https"))
        self.assertIn("bearerTokenFile", endpoint)
        for name in ("sluice-scheduler", "sluice-webhook"):
            self.assertNotIn("bearerTokenFile", str(found[name]))


class Monitors(unittest.TestCase):
    def test_series_keep_their_own_labels(self):
        # The extender's have the node of a GPU, not its own.
        for name, one in of_kind(render(MONITORS), "PodMonitor", "ServiceMonitor").items():
            endpoints = one["spec"].get("endpoints") or one["spec"]["podMetricsEndpoints"]
            self.assertEqual([endpoint.get("honorLabels") for endpoint in endpoints], [True], name)

    def test_a_monitor_selects_a_service_that_has_its_port(self):
        objects = render(MONITORS)
        for name, one in of_kind(objects, "ServiceMonitor").items():
            selected = one["spec"]["selector"]["matchLabels"].items()
            services = [service for service in of_kind(objects, "Service").values() if selected <= service["metadata"]["labels"].items()]
            self.assertEqual(len(services), 1, name)
            ports = {port["name"] for port in services[0]["spec"]["ports"]}
            self.assertTrue({endpoint["port"] for endpoint in one["spec"]["endpoints"]} <= ports, name)


    def test_labels_and_interval_reach_every_monitor(self):
        objects = render(MONITORS, "monitoring.monitors.labels.release=prometheus", "monitoring.monitors.interval=15s")
        found = of_kind(objects, "PodMonitor", "ServiceMonitor")
        self.assertEqual(set(found), {"sluice-node-agent", "sluice-scheduler", "sluice-kube-scheduler", "sluice-webhook"})
        for name, one in found.items():
            self.assertEqual(one["metadata"]["labels"]["release"], "prometheus", name)
            (endpoint,) = one["spec"].get("endpoints") or one["spec"]["podMetricsEndpoints"]
            self.assertEqual(endpoint["interval"], "15s", name)


class Rules(unittest.TestCase):
    def test_rule_object_has_every_rule_of_the_file_unchanged(self):
        # Helm would evaluate the templates of the alerts' texts if the file were a template.
        self.assertFalse(of_kind(render(), "PrometheusRule"))
        rule = of_kind(render("monitoring.rules.enabled=true", "monitoring.rules.labels.release=prometheus"), "PrometheusRule")["sluice"]
        self.assertEqual(rule["spec"], yaml.safe_load((CHART / "monitoring/rules.yaml").read_text()))
        self.assertIn("{{ $labels.gpu }}", str(rule["spec"]))
        self.assertEqual(rule["metadata"]["labels"]["release"], "prometheus")


class Dashboards(unittest.TestCase):
    def maps(self, *values: str) -> dict:
        return {name: one for name, one in of_kind(render(*values), "ConfigMap").items() if "dashboard" in name}

    def test_sidecar_finds_one_map_for_each_reader(self):
        self.assertFalse(self.maps())
        found = self.maps("monitoring.dashboards.enabled=true")
        self.assertEqual(set(found), {f"sluice-dashboard-{reader}" for reader in ("user", "operator", "planner")})
        for name, one in found.items():
            self.assertEqual(one["metadata"]["labels"]["grafana_dashboard"], "1", name)
            self.assertNotIn("annotations", one["metadata"])
            (text,) = one["data"].values()
            committed = CHART / f"monitoring/dashboards/{name.rpartition('-')[2]}.json"
            self.assertEqual(json.loads(text), json.loads(committed.read_text()))
        # The sidecar writes all of them into one folder.
        self.assertEqual(len({key for one in found.values() for key in one["data"]}), len(found))

    def test_values_set_the_label_and_the_folder(self):
        values = ("labels.grafana_dashboard=null", "labels.team=gpu", "annotations.grafana_folder=GPUs")
        for one in self.maps("monitoring.dashboards.enabled=true", *(f"monitoring.dashboards.{value}" for value in values)).values():
            self.assertNotIn("grafana_dashboard", one["metadata"]["labels"])
            self.assertEqual(one["metadata"]["labels"]["team"], "gpu")
            self.assertEqual(one["metadata"]["annotations"], {"grafana_folder": "GPUs"})

    def test_every_panel_fits_the_grid_and_queries_by_the_chosen_datasource(self):
        for path in (CHART / "monitoring/dashboards").glob("*.json"):
            dashboard = json.loads(path.read_text())
            cells = set()
            for panel in dashboard["panels"]:
                at = panel["gridPos"]
                self.assertLessEqual(at["x"] + at["w"], 24, panel["title"])
                own = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
                self.assertFalse(own & cells, f"{path.name}: {panel['title']} lies over another panel")
                cells |= own
                for target in panel.get("targets", []):
                    self.assertEqual(target["datasource"]["uid"], "${datasource}", panel["title"])
            names = {one["name"] for one in dashboard["templating"]["list"]}
            used = set(re.findall(r"\$(?!__)\{?(\w+)", json.dumps(dashboard["panels"])))
            self.assertEqual(used - names, set(), path.name)


class NetworkPolicies(unittest.TestCase):
    def sources(self, component: str, *values: str) -> list:
        """Who may connect to each port: None stands for all."""
        spec = of_kind(render(*values), "NetworkPolicy")[f"sluice-{component}"]["spec"]
        return [(sorted(port["port"] for port in rule["ports"]), rule.get("from")) for rule in spec["ingress"]]

    def test_pages_about_tenants_are_closed_to_tenants_by_default(self):
        for component, port in (("node-agent", 9400), ("scheduler", 9401), ("webhook", 9404)):
            rules = [(ports, sources) for ports, sources in self.sources(component) if port in ports]
            self.assertTrue(rules)
            for _, sources in rules:
                self.assertTrue(sources, f"{component}: everybody may read port {port}")
                for source in sources:
                    # A pod's labels are its user's choice, a namespace's name is not.
                    of_namespace = source.get("namespaceSelector", {}).get("matchExpressions", [{}])[0].get("key")
                    in_our_own = "namespaceSelector" not in source and "podSelector" in source
                    self.assertTrue(in_our_own or of_namespace == "kubernetes.io/metadata.name", source)

    def test_helm_test_reaches_what_it_asks_and_names_all_of_it(self):
        for values in ((), ("networkPolicy.metricsFrom[0].ipBlock.cidr=10.0.0.0/8",), ("networkPolicy.enabled=false",)):
            objects = render(*values)
            pod = of_kind(objects, "Pod")["sluice-test"]
            asked = [one for one in pod["spec"]["containers"][0]["args"] if one.startswith("--answers=")]
            self.assertEqual(len(asked), 3, values)
            for policy in of_kind(objects, "NetworkPolicy").values():
                sources = [source for rule in policy["spec"]["ingress"] for source in rule.get("from", [])]
                component = policy["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/component"]
                allowed = [one["podSelector"]["matchLabels"] for one in sources if "namespaceSelector" not in one and "podSelector" in one]
                if component != "node-agent":
                    self.assertTrue(any(labels.items() <= pod["metadata"]["labels"].items() for labels in allowed), component)

    def test_api_server_reaches_the_webhook_from_anywhere(self):
        self.assertIn(([9443], None), self.sources("webhook"))

    def test_values_replace_the_scrapers(self):
        found = self.sources("node-agent", "networkPolicy.metricsFrom[0].namespaceSelector.matchLabels.team=observability")
        self.assertEqual(found, [([9400], [{"namespaceSelector": {"matchLabels": {"team": "observability"}}}])])
        # An empty list opens the ports to all.
        self.assertEqual(self.sources("node-agent", "networkPolicy.metricsFrom=null"), [([9400], None)])


if __name__ == "__main__":
    unittest.main()
