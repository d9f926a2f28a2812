"""The rights of the users of `kubectl sluice`."""

import unittest

from rendering import render


class Rights(unittest.TestCase):
    def test_roles_only_read_and_neither_a_binding_nor_an_aggregation_gives_them_to_anyone(self):
        objects = render()
        roles = [one for one in objects if one["kind"] in ("ClusterRole", "Role") and one["metadata"]["name"] == "sluice-kubectl"]
        self.assertEqual({one["kind"] for one in roles}, {"ClusterRole", "Role"})
        for role in roles:
            self.assertLessEqual({verb for rule in role["rules"] for verb in rule["verbs"]}, {"get", "list"})
            aggregated = [label for label in role["metadata"]["labels"] if label.startswith("rbac.authorization.k8s.io/aggregate")]
            self.assertEqual(aggregated, [])
        bindings = [one for one in objects if one["kind"] in ("ClusterRoleBinding", "RoleBinding")]
        self.assertNotIn("sluice-kubectl", [one["roleRef"]["name"] for one in bindings])

    def test_proxy_to_pods_is_permitted_in_the_namespace_of_sluice_only(self):
        kinds = {one["kind"] for one in render() for rule in one.get("rules", []) if "pods/proxy" in rule.get("resources", [])}
        self.assertEqual(kinds, {"Role"})


if __name__ == "__main__":
    unittest.main()
