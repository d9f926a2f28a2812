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
