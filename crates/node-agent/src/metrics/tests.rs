use super::*;

#[test]
fn readiness_lists_each_missing_component_until_none_is_missing() {
    let plugin = watch::Sender::new(false);
    let injection = watch::Sender::new(InForce::None("no NRI at /nri.sock".into()));
    let proof = watch::Sender::new(Proof::NotInAgent("libnvidia-ml.so.1 cannot be loaded".into()));
    let inventory = InventorySlot::default();
    let (pods, statuses) = (watch::Sender::new(None), ManagerStatuses::default());
    let readiness = Sources {
        node: "n".into(),
        inventory: Arc::clone(&inventory),
        pods: pods.subscribe(),
        assignments: watch::Sender::new(None).subscribe(),
        statuses: statuses.clone(),
        command: ManagerCommand {
            program: "sluice".into(),
            socket_folder: "/run".into(),
            control_folder: "/run".into(),
            simulated: true,
            arguments: Vec::new(),
        },
        registered: plugin.subscribe(),
        injection: injection.subscribe(),
        proof: proof.subscribe(),
        lost: watch::Sender::default().subscribe(),
        loader_refusal: None,
    };
    let missing = [
        "the NVIDIA driver has not reported its GPUs",
        "kubelet has not accepted the registration of this agent",
        "the API server has not listed the node's pods",
        "containers cannot get GPUs, and --injection=nri allows no other path: no NRI at /nri.sock",
        "the node agent's container has no driver: libnvidia-ml.so.1 cannot be loaded",
    ];
    assert_eq!(readiness.missing(), missing);
    inventory.get_or_init(|| watch::Sender::new(NodeInventory::new(1, Vec::new())).subscribe());
    plugin.send_replace(true);
    proof.send_replace(Proof::Open);
    injection.send_replace(InForce::Nri("containerd v2.2.9".into(), None));
    pods.send_replace(Some(Arc::default()));
    statuses.add("GPU-a");
    assert_eq!(readiness.missing(), ["the pod-manager of GPU-a has not accepted its clients yet"]);
    statuses.update("GPU-a", |status| status.state = ManagerState::Serving);
    assert!(readiness.missing().is_empty());
    plugin.send_replace(false);
    assert_eq!(readiness.missing().len(), 1);
    // An agent that gives nothing on purpose is ready without kubelet.
    injection.send_replace(InForce::Closed);
    assert!(readiness.missing().is_empty());
}
