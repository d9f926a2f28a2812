use super::*;

fn client(uid: &str, pod: &str) -> Client {
    Client {
        pod_uid: uid.into(),
        namespace: "ml".into(),
        pod: pod.into(),
        class: ClassWord::BestEffort.into(),
        quota_ppm: 300_000,
        limit_ppm: 500_000,
        memory_bytes: 1 << 30,
        slo_ns: 5,
        gang: String::new(),
        overcommit: false,
        suspended: false,
    }
}

fn read(clients: Vec<Client>) -> Result<ClientSet, String> {
    ClientSet::read(SetClientsRequest { generation: 1, agent_instance: "a".into(), clients })
}

#[test]
fn valid_set_is_read_unchanged() {
    let long = "p".repeat(253);
    let namespace = "n".repeat(63);
    let set = read(vec![Client { namespace: namespace.clone(), ..client("u-1", &long) }]).unwrap();
    let only = &set.clients[0];
    assert_eq!(only.key, ClientKey::Pod { uid: "u-1".into(), namespace, name: long });
    assert_eq!((only.spec.request.ppm(), only.spec.limit.ppm()), (300_000, 500_000));
    assert_eq!((only.memory, only.slo_ns), (1 << 30, 5));
}

#[test]
fn each_class_of_the_control_api_is_the_ledgers_class_of_the_same_name() {
    let classes = [ClassWord::LatencyCritical, ClassWord::High, ClassWord::Normal, ClassWord::BestEffort];
    for (word, class) in classes.into_iter().zip(Class::ALL) {
        let set = read(vec![Client { class: word.into(), ..client("u-1", "a") }]).unwrap();
        assert_eq!(set.clients[0].spec.class, class);
    }
}

#[test]
fn memory_of_all_but_latency_critical_clients_may_leave() {
    let overcommits = |class: ClassWord| {
        let set = read(vec![Client { class: class.into(), overcommit: true, ..client("u-1", "a") }])?;
        Ok::<_, String>(set.clients[0].overcommit)
    };
    assert_eq!(overcommits(ClassWord::High), Ok(true));
    assert!(!read(vec![client("u-1", "a")]).unwrap().clients[0].overcommit);
    let refused = overcommits(ClassWord::LatencyCritical).unwrap_err();
    let expected = "clients[0] (\"ml\"/\"a\").overcommit is true for a latency-critical client";
    assert!(refused.contains(expected), "{refused}");
}

#[test]
fn client_of_any_class_is_suspended_by_its_flag() {
    let suspended = |suspended| {
        let class = ClassWord::LatencyCritical.into();
        read(vec![Client { class, suspended, ..client("u-1", "a") }]).unwrap().clients[0].suspended
    };
    assert!(suspended(true));
    assert!(!suspended(false));
}

#[test]
fn every_mistake_is_reported_with_its_place() {
    let wrong = vec![
        Client { quota_ppm: 600_000, gang: "a/b".into(), ..client("u-1", "a") },
        Client { class: 5, memory_bytes: 0, ..client("u-1", "b") },
        Client { quota_ppm: 2_000_000, limit_ppm: 0, ..client("", "with space") },
    ];
    let error = read(wrong).unwrap_err();
    for part in [
        "clients[0] (\"ml\"/\"a\").limit_ppm is 500000, expected at least quota_ppm, 600000",
        "clients[0] (\"ml\"/\"a\").gang is \"a/b\"",
        "clients[1] (\"ml\"/\"b\").pod_uid is there a second time",
        "clients[1] (\"ml\"/\"b\").class is 5, expected that of latency-critical, high, normal or best-effort",
        "clients[1] (\"ml\"/\"b\").memory_bytes is 0",
        "clients[2] (\"ml\"/\"with space\").pod_uid is \"\"",
        "clients[2] (\"ml\"/\"with space\").pod is \"with space\"",
        "quota_ppm is 2000000",
        "limit_ppm is 0",
        "adds up to 1900000",
    ] {
        assert!(error.contains(part), "{part} is not in: {error}");
    }
    let empty = ClientSet::read(SetClientsRequest::default()).unwrap_err();
    assert!(empty.contains("agent_instance"), "{empty}");
}
