use sluice_proto::control::{Client, ClientUsage};

use super::*;

fn pod(uid: &str, suspended: Option<bool>) -> Arc<PodView> {
    Arc::new(PodView { uid: uid.into(), suspended, ..PodView::default() })
}

fn client(uid: &str, suspended: bool) -> Client {
    Client { pod_uid: uid.into(), suspended, ..Client::default() }
}

#[test]
fn pod_is_concerned_while_it_is_suspended_or_its_condition_says_so() {
    let pods = [pod("never", None), pod("new", None), pod("again", Some(false)), pod("resumed", Some(true))];
    let known: Pods = pods.into_iter().map(|pod| (pod.uid.clone(), pod)).collect();
    let mut assigned = Assignments::default();
    let on_a = [client("never", false), client("new", true), client("again", true), client("unknown", true)];
    assigned.sets.insert("GPU-a".into(), on_a.into());
    assigned.sets.insert("GPU-b".into(), vec![client("new", true), client("resumed", false)]);
    let found = concerned(&known, &assigned);
    let found: Vec<_> =
        found.iter().map(|one| (one.pod.uid.as_str(), one.is_to_be, one.gpus.join(" "))).collect();
    let expected = [("again", true, "GPU-a"), ("new", true, "GPU-a GPU-b"), ("resumed", false, "GPU-b")];
    assert_eq!(found, expected.map(|(uid, is_to_be, gpus)| (uid, is_to_be, gpus.to_owned())));
}

/// Reports in which these GPUs have the pod `u` and withhold its grants or do not, beside one that is withheld.
fn reports(of: &[(&str, Option<bool>)]) -> BTreeMap<String, SnapshotResponse> {
    let usage = |uid: &str, grants_withheld| ClientUsage {
        client: Some(client(uid, true)),
        grants_withheld,
        ..ClientUsage::default()
    };
    let report = |withheld: Option<bool>| SnapshotResponse {
        clients: [usage("other", true)].into_iter().chain(withheld.map(|it| usage("u", it))).collect(),
        ..SnapshotResponse::default()
    };
    of.iter().map(|(gpu, withheld)| ((*gpu).to_owned(), report(*withheld))).collect()
}

#[test]
fn grants_are_withheld_once_every_manager_reports_it() {
    let gpus = ["GPU-a", "GPU-b"].map(str::to_owned).to_vec();
    let one = Concerned { pod: pod("u", None), is_to_be: true, gpus };
    let withheld = |of: &[(&str, Option<bool>)]| is_withheld(&one, &reports(of));
    assert_eq!(withheld(&[("GPU-a", Some(true)), ("GPU-b", Some(true))]), Some(true));
    assert_eq!(withheld(&[("GPU-a", Some(true)), ("GPU-b", Some(false))]), Some(false));
    // A manager that does not answer, and one that does not have the pod yet.
    assert_eq!(withheld(&[("GPU-a", Some(true))]), None);
    assert_eq!(withheld(&[("GPU-a", Some(true)), ("GPU-b", None)]), None);
}

#[test]
fn pod_that_was_never_suspended_gets_no_condition() {
    let differing =
        |suspended| [None, Some(false), Some(true)].map(|before| differs(&pod("u", before), suspended));
    assert_eq!(differing(true), [true, true, false]);
    assert_eq!(differing(false), [false, false, true]);
}
