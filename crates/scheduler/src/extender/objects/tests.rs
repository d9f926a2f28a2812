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
    assert_eq!((pod.metadata.labels, pod.metadata.managed_fields), (None, None));
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
