//! The memory of processes goes to the manager of their GPU, and limits that it reaches become events.

use super::api::Kind;
use super::node::{Node, of_reason, soon, uuid};
use serde_json::json;
use sluice_node_agent::gpus::driver::{DriverUnavailable, ProcessMemory};
use sluice_proto::control::ExceededLimit;

const POD: &str = "0b6b5d2c-6a4e-4f0b-9d7e-3f1c2a5b7d90";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_of_processes_is_reported_by_pod_and_a_limit_that_it_reaches_becomes_an_event() {
    let (node, proc) = (Node::with_gpus(1).await, tempfile::tempdir().unwrap());
    for (pid, cgroup) in [(12, format!("0::/kubepods/pod{POD}/{}\n", "a".repeat(64))), (13, "0::/\n".into())]
    {
        std::fs::create_dir(proc.path().join(pid.to_string())).unwrap();
        std::fs::write(proc.path().join(format!("{pid}/cgroup")), cgroup).unwrap();
    }
    let mut pod = super::node::pod("train", &[("memory", "256Mi"), ("assigned-gpu", &uuid(0))]);
    pod["metadata"]["uid"] = json!(POD);
    node.api.put(Kind::Pods, pod);
    let memory = |pid| ProcessMemory { pid, bytes: Some(480 << 20) };
    node.gpus.set_memory(Ok(vec![memory(12), memory(13), ProcessMemory { pid: 14, bytes: None }]));
    let proc = format!("--proc={}", proc.path().display());
    let agent = node.start_agent_with_flags("runtime", &[proc]).await;
    let mut reading = node.managers[0].reading();
    let is_read = |reading: &sluice_proto::control::ReportMemoryRequest| !reading.processes.is_empty();
    let read = soon("a reading", reading.wait_for(is_read)).await.unwrap().clone();
    let rows: Vec<_> = read.processes.iter().map(|row| (row.pid, row.pod_uid.as_str(), row.bytes)).collect();
    assert_eq!(rows, [(12, POD, Some(480 << 20))], "the others are in no pod, or have ended");
    assert!(!read.failed);

    // Each question of the agent's is answered at once: it reads, and asks again.
    for _ in 0..3 {
        soon("the next question", node.managers[0].want_reading()).await;
        soon("its reading", reading.changed()).await.unwrap();
    }

    let (limit_bytes, overhead_bytes) = (256 << 20, 480 << 20);
    let exceeded =
        ExceededLimit { pod_uid: POD.into(), limit_bytes, overhead_bytes, pid: 12, process_bytes: 480 << 20 };
    node.managers[0].set_exceeded(vec![exceeded]);
    let event = of_reason(&mut node.api.seen(), "GpuMemoryLimitReached", 1).await.remove(0);
    assert_eq!(event["regarding"]["uid"], POD);
    let note = event["note"].as_str().unwrap();
    assert!(note.contains("limit is 256 MiB") && note.contains("process 12: 480 MiB"), "{note}");

    node.gpus.set_memory(Err(DriverUnavailable("the test says so".into())));
    soon("a failed reading", reading.wait_for(|reading| reading.failed)).await.unwrap();
    agent.end().await;
}
