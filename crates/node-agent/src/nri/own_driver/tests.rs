use super::*;
use crate::nri::CdiFolders;

#[tokio::test]
async fn only_the_agents_container_of_its_own_pod_gets_all_gpus() {
    let root = tempfile::tempdir().unwrap();
    let places = Places { socket: "/absent".into(), cdi: CdiFolders(vec![root.path().to_owned()]) };
    let ready = CancellationToken::new();
    let mut plugin = OwnDriverPlugin {
        places,
        pod_uid: "mine".into(),
        injection: Injection::Nri,
        ready: ready.clone(),
        unsupported_reason: None,
    };
    let adjust = async |plugin: &mut OwnDriverPlugin, uid: &str, name: &str| {
        let pod = PodSandbox { uid: uid.into(), ..PodSandbox::default() };
        let container = Container { name: name.into(), ..Container::default() };
        plugin.adjust(&pod, &container, Duration::MAX).await
    };
    assert!(adjust(&mut plugin, "mine", "node-agent").await.unwrap_err().contains("device all"));
    std::fs::write(root.path().join("gpu.yaml"), "kind: nvidia.com/gpu\ndevices: [{name: all}]\n").unwrap();
    let given = adjust(&mut plugin, "mine", "node-agent").await.unwrap();
    assert_eq!(given.cdi_devices, [CdiDevice { name: "nvidia.com/gpu=all".into() }]);
    // Another pod may have a container of this name.
    for (uid, name) in [("other", "node-agent"), ("mine", "own-driver"), ("", "")] {
        assert_eq!(adjust(&mut plugin, uid, name).await, Ok(ContainerAdjustment::default()));
    }

    plugin.registered("containerd v2.0.7".into(), &[], &[]);
    assert!(ready.is_cancelled());
    assert!(adjust(&mut plugin, "mine", "node-agent").await.unwrap_err().contains("2.0.7"));
    // NVIDIA's runtime serves the agent then.
    plugin.injection = Injection::Auto;
    assert_eq!(adjust(&mut plugin, "mine", "node-agent").await, Ok(ContainerAdjustment::default()));
}

/// Simulated time until the agent's container may be created; `None` if that takes longer than a minute.
async fn ready_after(socket: &std::path::Path, injection: Injection) -> Option<Duration> {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let health = port.local_addr().unwrap();
    drop(port);
    let places = Places { socket: socket.to_owned(), cdi: CdiFolders(Vec::new()) };
    let began = tokio::time::Instant::now();
    let served = give_own_driver(places, "mine".into(), injection, health, CancellationToken::new());
    let answers = async {
        while tokio::net::TcpStream::connect(health).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        began.elapsed()
    };
    let answers = tokio::time::timeout(Duration::from_secs(60), answers);
    tokio::select! { after = answers => after.ok(), ended = served => panic!("{ended:?}") }
}

#[tokio::test(start_paused = true)]
async fn agent_may_start_at_once_only_if_the_runtime_has_no_nri() {
    let root = tempfile::tempdir().unwrap();
    let absent = root.path().join("absent.sock");
    assert!(ready_after(&absent, Injection::Auto).await.unwrap() < Duration::from_secs(1));
    assert_eq!(ready_after(&absent, Injection::Nri).await, None);

    // It refuses connections, as while it starts again.
    let refusing = root.path().join("refusing.sock");
    drop(tokio::net::UnixListener::bind(&refusing).unwrap());
    assert!(ready_after(&refusing, Injection::Auto).await.unwrap() >= LONGEST_WAIT);

    // It accepts the connection and does not answer.
    let silent = root.path().join("silent.sock");
    let _listener = tokio::net::UnixListener::bind(&silent).unwrap();
    let after = ready_after(&silent, Injection::Auto).await.unwrap();
    assert!(after >= LONGEST_WAIT && after < 2 * LONGEST_WAIT, "{after:?}");
}
