//! Tests of `informer.rs`.

use super::*;
use serde_json::json;
use watcher::Event;

fn pod(uid: &str) -> Pod {
    serde_json::from_value(json!({"metadata": {"uid": uid, "name": uid}})).unwrap()
}

fn known(store: &PodStore) -> Vec<&str> {
    store.pods.keys().map(String::as_str).collect()
}

#[test]
fn old_pods_remain_during_a_new_list_and_only_listed_ones_after_it() {
    let mut store = PodStore::default();
    for event in [Event::Init, Event::InitApply(pod("a")), Event::InitApply(pod("b")), Event::InitDone] {
        store.apply(event);
    }
    assert_eq!(known(&store), ["a", "b"]);
    assert!(store.apply(Event::Init).is_none());
    assert!(store.apply(Event::InitApply(pod("b"))).is_none());
    assert_eq!(known(&store), ["a", "b"]);
    // The list breaks off and starts again.
    assert!(store.apply(Event::Init).is_none());
    assert!(store.apply(Event::InitApply(pod("b"))).is_none());
    assert!(store.apply(Event::InitApply(pod("c"))).is_none());
    assert!(store.apply(Event::InitDone).is_some());
    assert_eq!(known(&store), ["b", "c"]);
}

#[test]
fn pods_are_distinguished_by_uid_under_the_same_name() {
    let mut store = PodStore::default();
    let named = |uid: &str| {
        serde_json::from_value::<Pod>(json!({"metadata": {"uid": uid, "name": "web-0"}})).unwrap()
    };
    store.apply(Event::Init);
    store.apply(Event::InitDone);
    store.apply(Event::Apply(named("old")));
    store.apply(Event::Apply(named("new")));
    store.apply(Event::Delete(named("old")));
    assert_eq!(known(&store), ["new"]);
}
