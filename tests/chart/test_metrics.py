"""Every metric that a rule, a dashboard or the documentation names is served by a program, and the operators' page has all of them."""

import re
import unittest
from pathlib import Path

import yaml

REPOSITORY = Path(__file__).parents[2]
MONITORING = REPOSITORY / "charts/sluice/monitoring"
NAMES = re.compile(r"\bsluice_[a-z0-9_]+")
OF_HISTOGRAMS = ("_bucket", "_sum", "_count")
CLIENTS = "sluice_client_"


def served(crate: str = "*") -> set[str]:
    """Metric names in the sources of the daemons. The sources build names of clients from a prefix and a suffix."""
    found = set()
    for path in REPOSITORY.glob(f"crates/{crate}/src/**/*.rs"):
        text = path.read_text()
        found |= set(re.findall(r'"(sluice_[a-z0-9_]+)"', text))
        if f'"{CLIENTS}{{what}}"' in text:
            found |= {CLIENTS + name for name in re.findall(r'"([a-z_]+)"', text)}
    return found


def named(path: Path) -> set[str]:
    names = set(NAMES.findall(path.read_text()))
    return {next((name.removesuffix(end) for end in OF_HISTOGRAMS if name.endswith(end)), name) for name in names}


class Names(unittest.TestCase):
    def test_every_series_that_is_asked_for_is_served(self):
        known = served()
        self.assertGreater(len(known), 20)
        dashboards = [*(MONITORING / "dashboards").glob("*.json")]
        self.assertEqual(len(dashboards), 3)
        asking = [MONITORING / "rules.yaml", *dashboards, REPOSITORY / "docs/operators/metrics.md"]
        for path in asking:
            self.assertTrue(named(path), f"{path} names no series")
        pages = [*(REPOSITORY / "docs/operators").glob("*.md"), REPOSITORY / "docs/kubernetes.md"]
        for path in {*pages, *asking}:
            with self.subTest(path):
                self.assertEqual(named(path) - known, set())

    def test_operators_page_has_every_series_that_the_cluster_serves(self):
        page = named(REPOSITORY / "docs/operators/metrics.md")
        for crate in ("node-agent", "scheduler"):
            with self.subTest(crate):
                self.assertEqual(served(crate) - page, set())


class Alerts(unittest.TestCase):
    def test_each_alert_is_tested_with_and_without_its_fault(self):
        read = lambda path: yaml.safe_load(path.read_text())
        alerts = {rule["alert"] for group in read(MONITORING / "rules.yaml")["groups"] for rule in group["rules"] if "alert" in rule}
        cases = [case for test in read(Path(__file__).with_name("rules_test.yaml"))["tests"] for case in test["alert_rule_test"]]
        for fires in (True, False):
            tested = {case["alertname"] for case in cases if bool(case.get("exp_alerts")) == fires}
            self.assertEqual(alerts - tested, set(), f"alerts without a case that expects {fires}")
            self.assertEqual(tested - alerts, set())


if __name__ == "__main__":
    unittest.main()
