"""On which nodes the chart's pods run, and what they need there."""

import json
import threading
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import yaml

from rendering import CHART, Failed, of_kind, render, workloads


def pod_specifications(objects: list[dict]) -> dict[str, dict]:
    return {**workloads(objects), **{name: one["spec"] for name, one in of_kind(objects, "Pod").items()}}


class Nodes(unittest.TestCase):
    def test_every_pod_selects_nodes_that_can_run_the_image(self):
        required = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
        for name, spec in pod_specifications(render("cleanup.enabled=true")).items():
            self.assertEqual(spec["nodeSelector"], required, name)
        for component in ("nodeAgent", "scheduler", "webhook"):
            objects = workloads(render(f"{component}.nodeSelector.pool=gpu"))
            (name,) = [name for name in objects if name.replace("-", "").endswith(component.lower())]
            self.assertEqual(objects[name]["nodeSelector"], {**required, "pool": "gpu"}, name)

    def test_an_upgrade_replaces_agents_on_several_nodes_at_once(self):
        strategy = lambda *values: of_kind(render(*values), "DaemonSet")["sluice-node-agent"]["spec"]["updateStrategy"]
        self.assertEqual(strategy(), {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}})
        self.assertEqual(strategy("nodeAgent.updateStrategy.rollingUpdate.maxUnavailable=1")["rollingUpdate"], {"maxUnavailable": 1})
        self.assertEqual(strategy("nodeAgent.updateStrategy.type=OnDelete")["type"], "OnDelete")


class SeLinux(unittest.TestCase):
    def test_agents_carry_no_label_and_start_no_further_image_by_default(self):
        spec = workloads(render())["sluice-node-agent"]
        self.assertNotIn("initContainers", spec)
        self.assertNotIn("seLinuxOptions", spec["containers"][0]["securityContext"])

    def test_folders_that_pods_mount_are_labelled_before_the_agent_fills_them(self):
        spec = workloads(render("nodeAgent.seLinux.enabled=true"))["sluice-node-agent"]
        (step,) = spec["initContainers"]
        self.assertEqual(step["command"][:3], ["chcon", "--recursive", "system_u:object_r:container_file_t:s0"])
        mounts = {one["mountPath"]: one["name"] for one in step["volumeMounts"]}
        self.assertEqual(set(step["command"][3:]), set(mounts))
        paths = {one["name"]: one["hostPath"]["path"] for one in spec["volumes"]}
        self.assertEqual({paths[name] for name in mounts.values()}, {"/var/lib/sluice/lib", "/run/sluice"})
        # Files have the type of their folder, and the level of the process that makes them.
        label = {"type": "spc_t", "level": "s0"}
        self.assertEqual(spec["containers"][0]["securityContext"]["seLinuxOptions"], label)
        self.assertEqual(step["securityContext"]["seLinuxOptions"], label)
        self.assertEqual(step["securityContext"]["capabilities"], {"drop": ["ALL"]})

    def test_clean_up_may_remove_the_labelled_folders(self):
        for value, label in [("true", {"type": "spc_t", "level": "s0"}), ("false", None)]:
            spec = workloads(render("cleanup.enabled=true", f"nodeAgent.seLinux.enabled={value}"))["sluice-cleanup"]
            for one in spec["initContainers"] + spec["containers"]:
                self.assertEqual(one["securityContext"].get("seLinuxOptions"), label, one["name"])

    def test_labelling_image_comes_from_the_registry_of_the_site(self):
        values = ("nodeAgent.seLinux.enabled=true", "global.imageRegistry=registry.local")
        (step,) = workloads(render(*values))["sluice-node-agent"]["initContainers"]
        self.assertTrue(step["image"].startswith("registry.local/"), step["image"])


class ApiServer(BaseHTTPRequestHandler):
    """As much of an API server as helm asks: which kinds there are, and the RuntimeClasses. No other object exists."""

    answers: dict

    def do_GET(self):
        path = self.path.partition("?")[0]
        absent = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
        body = json.dumps(self.answers.get(path, absent)).encode()
        self.send_response(200 if path in self.answers else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def answers_of_a_cluster_with(classes: tuple) -> dict:
    kinds: dict[str, set] = {"node.k8s.io/v1": {"RuntimeClass"}}
    for one in render():
        kinds.setdefault(one["apiVersion"], set()).add(one["kind"])
    plural = lambda name: name[:-1] + "ies" if name.endswith("y") else name + "es" if name.endswith("s") else name + "s"
    answers = {"/version": {"major": "1", "minor": "34", "gitVersion": "v1.34.4"}, "/api": {"kind": "APIVersions", "versions": ["v1"]}}
    groups = []
    for version, names in kinds.items():
        listed = [{"name": plural(name.lower()), "namespaced": False, "kind": name, "verbs": ["get"]} for name in names]
        answers["/api/v1" if version == "v1" else f"/apis/{version}"] = {"kind": "APIResourceList", "groupVersion": version, "resources": listed}
        if version != "v1":
            preferred = {"groupVersion": version, "version": version.split("/")[1]}
            groups.append({"name": version.split("/")[0], "versions": [preferred], "preferredVersion": preferred})
    answers["/apis"] = {"kind": "APIGroupList", "groups": groups}
    for name in classes:
        runtime = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": name}
        answers[f"/apis/node.k8s.io/v1/runtimeclasses/{name}"] = runtime
    return answers


def rendered_in_a_cluster_with(*classes: str, values: tuple = ()) -> list[dict]:
    """What `helm install` renders where the cluster has these RuntimeClasses."""
    handler = type("Cluster", (ApiServer,), {"answers": answers_of_a_cluster_with(classes)})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = ("--kube-apiserver", f"http://127.0.0.1:{server.server_port}", "--kube-token", "none")
    try:
        return render(*values, more=("--dry-run=server", "--disable-openapi-validation", *address))
    finally:
        server.shutdown()
        server.server_close()


class RuntimeClass(unittest.TestCase):
    def chosen(self, objects: list[dict]) -> tuple[str | None, list[str]]:
        """The agents' RuntimeClass, and the webhook's flag with that of pods."""
        (webhook,) = workloads(objects)["sluice-webhook"]["containers"]
        flags = [flag for flag in webhook["args"] if flag.startswith("--runtime-class")]
        return workloads(objects)["sluice-node-agent"].get("runtimeClassName"), flags

    def test_class_nvidia_is_used_where_the_cluster_has_it(self):
        self.assertEqual(self.chosen(rendered_in_a_cluster_with("nvidia")), ("nvidia", ["--runtime-class=nvidia"]))

    def test_without_the_class_the_default_runtime_is_used(self):
        self.assertEqual(self.chosen(rendered_in_a_cluster_with("gvisor")), (None, []))

    def test_a_value_takes_precedence_over_the_cluster(self):
        cases = [("runtimeClassName=nvidia-cdi", ("nvidia-cdi", ["--runtime-class=nvidia-cdi"])), ("runtimeClassName=", (None, []))]
        for value, expected in cases:
            self.assertEqual(self.chosen(rendered_in_a_cluster_with("nvidia", values=(value,))), expected, value)


class Profiles(unittest.TestCase):
    GIVEN = ("nodeAgent.profiles[0].name=training", "nodeAgent.profiles[0].nodeLabels.pool=training", "nodeAgent.profiles[0].seatsPerGpu=4")

    def test_agents_read_profiles_from_a_config_map_and_restart_with_it(self):
        objects = render(*self.GIVEN)
        spec = workloads(objects)["sluice-node-agent"]
        (agent,) = spec["containers"]
        self.assertIn("--profiles=/etc/sluice/profiles.yaml", agent["args"])
        (volume,) = [one for one in spec["volumes"] if one["name"] == "configuration"]
        (config,) = [one for one in of_kind(objects, "ConfigMap").values() if one["metadata"]["name"] == volume["configMap"]["name"]]
        self.assertIn("seatsPerGpu: 4", config["data"]["profiles.yaml"])
        checksum = lambda *values: of_kind(render(*values), "DaemonSet")["sluice-node-agent"]["spec"]["template"]["metadata"]["annotations"].get("checksum/profiles")
        self.assertNotEqual(checksum(*self.GIVEN), checksum(*self.GIVEN, "nodeAgent.profiles[0].controls=off"))
        self.assertIsNone(checksum())

    def test_unknown_setting_is_refused_before_the_installation(self):
        with self.assertRaises(Exception) as refused:
            render(*self.GIVEN, "nodeAgent.profiles[0].seats=4")
        self.assertIn("seats", str(refused.exception))


class Policy(unittest.TestCase):
    GIVEN = ("policy.preemption.scheduling.quantum_ms=40", "policy.preemption.timeslice.lc_task_us=1000000")

    def agent(self, *values: str) -> dict:
        return of_kind(render(*values), "DaemonSet")["sluice-node-agent"]["spec"]["template"]

    def test_managers_read_the_policy_from_a_config_map(self):
        spec = self.agent(*self.GIVEN)["spec"]
        (agent,) = spec["containers"]
        self.assertIn("--policy-file=/etc/sluice/policy.yaml", agent["args"])
        self.assertNotIn("--profiles=/etc/sluice/profiles.yaml", agent["args"])
        (mount,) = [one for one in agent["volumeMounts"] if one["mountPath"] == "/etc/sluice"]
        (volume,) = [one for one in spec["volumes"] if one["name"] == mount["name"]]
        text = of_kind(render(*self.GIVEN), "ConfigMap")[volume["configMap"]["name"]]["data"]["policy.yaml"]
        self.assertEqual(yaml.safe_load(text), {"preemption": {"scheduling": {"quantum_ms": 40}, "timeslice": {"lc_task_us": 1000000}}})

    def test_another_policy_restarts_no_agent(self):
        self.assertEqual(self.agent(*self.GIVEN), self.agent(*self.GIVEN, "policy.preemption.scheduling.quantum_ms=60"))

    def test_without_a_policy_nothing_is_mounted(self):
        spec = self.agent()["spec"]
        self.assertNotIn("/etc/sluice", [one["mountPath"] for one in spec["containers"][0]["volumeMounts"]])
        self.assertFalse([one for one in spec["containers"][0]["args"] if one.startswith("--policy-file")])

    def test_wrong_policy_is_refused_before_the_installation(self):
        for value in ("policy.preemption.scheduling.quantum_ms=20", "policy.preemption.power=low", "policy.preemption.gates=auto"):
            with self.subTest(value), self.assertRaises(Failed) as refused:
                render(value)
            self.assertIn(value.split("=")[0].split(".")[-1] if "power" in value else "policy", str(refused.exception))

    def test_setting_in_two_places_is_refused(self):
        profile = ("nodeAgent.profiles[0].name=a", "nodeAgent.profiles[0].nodeLabels.pool=a")
        for policy, other in [
            ("policy.preemption.scheduling.quantum_ms=40", ("nodeAgent.turnMs=60",)),
            ("policy.preemption.scheduling.quantum_ms=40", (*profile, "nodeAgent.profiles[0].turnMs=60")),
        ]:
            with self.subTest(other), self.assertRaises(Failed) as refused:
                render(policy, *other)
            self.assertIn("keep one of them", str(refused.exception))
            render("policy.preemption.scheduling.longest_grant_ms=80", *other)

    def test_values_have_the_schema_of_the_manager(self):
        schema = json.loads((CHART.parents[1] / "docs/reference/policy.schema.json").read_text())
        for key in ("$schema", "title"):
            del schema[key]
        values = json.loads((CHART / "values.schema.json").read_text())
        self.assertEqual(values["properties"]["policy"], schema, "copy the schema into values.schema.json")


class Injection(unittest.TestCase):
    def agent(self, *values: str) -> dict:
        return workloads(render(*values))["sluice-node-agent"]

    def paths(self, spec: dict) -> set[str]:
        return {one["hostPath"]["path"] for one in spec["volumes"]} & {"/var/run/nri", "/etc/cdi", "/var/run/cdi"}

    def test_agent_reaches_nri_only_where_the_values_ask_for_it(self):
        for asked in ("injection=auto", "injection=nri"):
            self.assertEqual(self.paths(self.agent(asked)), {"/var/run/nri", "/etc/cdi", "/var/run/cdi"})
        self.assertEqual(self.paths(self.agent("injection=runtime")), set())
        self.assertEqual(self.paths(self.agent()), set())

    def test_without_nvidia_runtime_a_first_container_gives_the_agent_the_driver(self):
        spec = self.agent("injection=nri", "nodeAgent.seLinux.enabled=true")
        names = [one["name"] for one in spec["initContainers"]]
        self.assertEqual(names, ["label-folders", "own-driver"])
        own = spec["initContainers"][1]
        self.assertEqual((own["restartPolicy"], own["startupProbe"]["httpGet"]["path"]), ("Always", "/readyz"))
        self.assertIn("--own-driver", own["args"])
        (agent,) = spec["containers"]
        self.assertEqual(agent["name"], "node-agent")
        self.assertNotIn("NVIDIA_VISIBLE_DEVICES", [one["name"] for one in agent["env"]])
        self.assertNotIn("initContainers", self.agent("injection=runtime"))

    def test_with_auto_the_agent_gets_the_driver_as_pods_do_by_nri_or_by_the_runtime(self):
        spec = self.agent("injection=auto")
        (own,) = spec["initContainers"]
        self.assertIn("--injection=auto", own["args"])
        self.assertIn({"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}, spec["containers"][0]["env"])

    def test_nri_alone_uses_no_runtime_class_although_the_cluster_has_it(self):
        objects = rendered_in_a_cluster_with("nvidia", values=("injection=nri",))
        self.assertEqual(RuntimeClass.chosen(self, objects), (None, []))


if __name__ == "__main__":
    unittest.main()
