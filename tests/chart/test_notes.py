"""What `helm install` tells about the way in which containers get their GPUs."""

import unittest

from rendering import notes

EVENTS = "kubectl get events --namespace default --field-selector involvedObject.kind=Node | grep Injection"
BOTH = "Containers get their GPUs by NRI and CDI where a node has both, else by NVIDIA's container runtime."
NRI = "Containers get their GPUs by NRI and CDI. A node whose runtime has no NRI, or that has no CDI specification with its GPUs, has the Event InjectionUnavailable:"
RUNTIME = "Containers get their GPUs by NVIDIA's container runtime."
DEFAULT_RUNTIME = "The agents and the pods with GPUs use the nodes' default container runtime"


class Notes(unittest.TestCase):
    def test_they_name_the_injection_that_the_values_choose_and_no_other(self):
        for values, said in [((), RUNTIME), (("injection=runtime",), RUNTIME), (("injection=auto",), BOTH), (("injection=nri",), NRI)]:
            text = notes(*values)
            self.assertEqual([one for one in (RUNTIME, BOTH, NRI) if one in text], [said], values)
            self.assertEqual(text.count(EVENTS), 1, values)

    def test_the_runtime_class_is_named_only_where_nvidia_runtime_may_inject(self):
        for injection in ("runtime", "auto"):
            self.assertIn(DEFAULT_RUNTIME, notes(f"injection={injection}"))
            text = notes(f"injection={injection}", "runtimeClassName=nvidia-cdi")
            self.assertIn("The agents and the pods with GPUs use the RuntimeClass nvidia-cdi.", text)
            self.assertNotIn(DEFAULT_RUNTIME, text)
        text = notes("injection=nri", "runtimeClassName=nvidia-cdi")
        self.assertNotIn(DEFAULT_RUNTIME, text)
        self.assertNotIn("RuntimeClass", text)

    def test_scrapers_are_told_of_where_the_network_policy_selects_them(self):
        text = "Name the namespace of your Prometheus there."
        self.assertIn(text, notes())
        for value in ("networkPolicy.enabled=false", "networkPolicy.metricsFrom=null"):
            self.assertNotIn(text, notes(value))


if __name__ == "__main__":
    unittest.main()
