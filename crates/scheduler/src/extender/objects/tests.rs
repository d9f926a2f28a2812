use super::*;

#[test]
fn only_needed_fields_of_a_pod_are_kept() {
    let text = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"n","uid":"u","resourceVersion":"7",
            "labels":{"a":"b"},"annotations":{"sluice.dev/quota":"0.3","other":"large"},
            "managedFields":[{"manager":"kubelet","fieldsV1":{"f:x":{}}}],"ownerReferences":null},
            "spec":{"nodeName":"node-a","containers":[{"name":"c"}]},"status":{"phase":"Running"}}"#;
    let pod: Pod = serde_json::from_str(text).unwrap();
    assert_eq!((pod.uid(), pod.node(), pod.title().as_str()), (Some("u"), Some("node-a"), "n/p"));
    assert_eq!(pod.annotations().unwrap().len(), 1);
    assert_eq!(pod.labels().unwrap()["a"], "b");
    assert_eq!(pod.metadata.managed_fields, None);
    assert_eq!(pod.metadata.resource_version.as_deref(), Some("7"));
}

#[test]
fn pod_has_ended_by_phase_not_by_deletion_timestamp() {
    let pod = |text: &str| serde_json::from_str::<Pod>(text).unwrap();
    assert!(
        !pod(r#"{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"},"status":{"phase":"Running"}}"#)
            .has_ended()
    );
    assert!(!pod(r#"{"metadata":{"name":"p"}}"#).has_ended());
    for phase in ["Succeeded", "Failed"] {
        assert!(pod(&format!(r#"{{"status":{{"phase":"{phase}"}}}}"#)).has_ended());
    }
}

#[test]
fn requests_are_the_sum_of_the_containers() {
    let pod = |spec: &str| serde_json::from_str::<Pod>(&format!(r#"{{"spec":{spec}}}"#)).unwrap();
    let two =
        pod(r#"{"priority":7,"containers":[{"resources":{"requests":{"cpu":"500m","sluice.dev/gpu":"1"}}},
            {"resources":{"requests":{"cpu":"2"}}},{"resources":{}},{}]}"#);
    assert_eq!(two.spec().priority(), 7);
    let expected = [("cpu".to_owned(), 2500), ("sluice.dev/gpu".to_owned(), 1000)];
    assert_eq!(two.spec().requests(), expected.into());
    assert!(!two.spec().has_uncounted_needs());
}

#[test]
fn needs_beside_the_requests_of_the_containers_are_noticed() {
    let has_uncounted = |spec: &str| {
        serde_json::from_str::<Pod>(&format!(r#"{{"spec":{spec}}}"#)).unwrap().spec().has_uncounted_needs()
    };
    for spec in [
        r#"{"initContainers":[{"name":"i"}]}"#,
        r#"{"overhead":{"cpu":"1"}}"#,
        r#"{"resources":{"requests":{"cpu":"1"}}}"#,
        r#"{"resourceClaims":[{"name":"c"}]}"#,
        r#"{"containers":[{"ports":[{"hostPort":80}]}]}"#,
        r#"{"containers":[{"resources":{"requests":{"cpu":"a lot"}}}]}"#,
        r#"{"volumes":[{"name":"v","persistentVolumeClaim":{"claimName":"c"}}]}"#,
        r#"{"affinity":{"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{}]}}}"#,
        r#"{"affinity":{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{}]}}}"#,
        r#"{"topologySpreadConstraints":[{"whenUnsatisfiable":"DoNotSchedule"}]}"#,
    ] {
        assert!(has_uncounted(spec), "{spec}");
    }
    for spec in [
        "{}",
        r#"{"containers":[{"ports":[{"containerPort":80}]}],"volumes":[{"name":"v","emptyDir":{}}]}"#,
        r#"{"affinity":{"podAntiAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{}]}}}"#,
        r#"{"topologySpreadConstraints":[{"whenUnsatisfiable":"ScheduleAnyway"}]}"#,
    ] {
        assert!(!has_uncounted(spec), "{spec}");
    }
}

#[test]
fn budget_protects_the_pods_that_its_selector_matches() {
    let budget = |spec: &str| {
        let text = format!(
            r#"{{"metadata":{{"name":"b","namespace":"n"}},"spec":{spec},"status":{{"disruptionsAllowed":2,
            "disruptedPods":{{"gone":"2026-01-01T00:00:00Z"}}}}}}"#
        );
        serde_json::from_str::<Budget>(&text).unwrap()
    };
    let labels = [("app".to_owned(), "a".to_owned())].into();
    let some = budget(r#"{"selector":{"matchLabels":{"app":"a"}}}"#);
    assert_eq!(some.disruptions_allowed(), 2);
    assert!(some.protects("n", "p", &labels));
    assert!(!some.protects("other", "p", &labels) && !some.protects("n", "gone", &labels));
    assert!(!some.protects("n", "p", &std::collections::BTreeMap::new()));
    let expression =
        r#"{"selector":{"matchExpressions":[{"key":"app","operator":"In","values":["a","b"]}]}}"#;
    assert!(budget(expression).protects("n", "p", &labels));
    assert!(budget(r#"{"selector":{}}"#).protects("n", "p", &labels), "an empty selector matches every pod");
    assert!(!budget("{}").protects("n", "p", &labels), "no selector matches none");
}
