use super::*;

#[test]
fn quanta_grow_with_the_gpus_of_the_node() {
    let quanta_ms = |node_gpus| {
        let config = Config { node_gpus, ..Config::new("/run/sluice/gpu.sock", "/etc/sluice/resources") };
        (config.policy().quantum_ns / 1_000_000, config.policy().min_quantum_ns / 1_000_000)
    };
    assert_eq!([1, 4, 8, 16].map(quanta_ms), [(50, 30), (50, 50), (100, 100), (200, 200)]);
    let of_eight = Config { node_gpus: 8, ..Config::new("/run/sluice/gpu.sock", "/etc/sluice/resources") };
    assert_eq!(of_eight.channel_group_policy().control_ns, 50_000_000);
}
