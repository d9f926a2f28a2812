use super::*;
use sluice_core::ledger::ClientSpec;
use sluice_core::share::Share;

fn pod(uid: &str, class: Class) -> Definition {
    let key = ClientKey::Pod { uid: uid.into(), namespace: "ml".into(), name: "pod".into() };
    let spec = ClientSpec { request: Share::ZERO, limit: Share::ONE, class };
    Definition { key, spec, memory: 100, slo_ns: 0, overcommit: false, suspended: false, gang: None }
}

fn add(clients: &mut Clients, definition: Definition) -> ClientId {
    let metrics = crate::metrics::pair().unwrap().0.add(&definition.key).unwrap();
    clients.add(definition, metrics, GpuTime::new(1, 0))
}

#[test]
fn removed_client_is_not_found_but_remembered_until_it_is_forgotten() {
    let mut clients = Clients::default();
    let id = add(&mut clients, pod("u-1", Class::BestEffort));
    assert!(clients.find_by_pod("u-1").is_some() && !clients.was_removed("u-1"));
    clients.mark_removed(id);
    assert!(clients.find_by_pod("u-1").is_none() && clients.was_removed("u-1") && clients.is_removed(id));
    assert!(clients.present().is_empty());
    clients.forget(id);
    assert!(!clients.was_removed("u-1"));
    assert_eq!(clients.name(id), "removed client");
}

#[test]
fn pod_of_the_same_name_with_another_uid_is_another_client() {
    let mut clients = Clients::default();
    let first = add(&mut clients, pod("u-1", Class::BestEffort));
    let second = add(&mut clients, pod("u-2", Class::LatencyCritical));
    assert_ne!(first, second);
    assert_eq!((clients.is_critical(first), clients.is_critical(second)), (false, true));
    assert_eq!(clients.pods().count(), 2);
}
