//! Restarts of managers and agents.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::fake_gpus::DRIVER;
use sluice_node_agent::gpus::driver::Usage;

use super::manager::Behaviour;
use super::node::{Node, is_there, last_set, names, soon, uuid};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_manager_is_restarted_and_gets_all_clients_again() {
    let node = Node::with_gpus(1).await;
    node.put("train", &[("quota", "0.3"), ("assigned-gpu", &uuid(0))]);
    let agent = node.start_agent().await;
    let mut received = node.managers[0].received();
    let before = last_set(&mut received, "the client", |set| names(&set.clients) == ["train"]).await;
    node.started(1).await;
    kill(Pid::from_raw(node.pids()[0]), Signal::SIGKILL).unwrap();
    let again = last_set(&mut received, "once more", |set| set.generation > before.generation).await;
    assert_eq!(again.clients, before.clients);
    node.state_with("one restart", |state| state["gpus"][0]["manager"]["restarts"] == 1).await;
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn managers_get_controls_flag_and_number_of_gpus() {
    let node = Node::with_gpus(2).await;
    let agent = node.start_agent().await;
    let arguments = node.started(2).await;
    for received in arguments {
        assert!(received.contains(" --node-gpus 2") && received.contains(" --controls=auto"), "{received}");
        // All managers of the node exchange tables in one folder, which no pod sees.
        let folder = received.split(" --gangs ").nth(1).and_then(|after| after.split(' ').next());
        assert!(folder.is_some_and(|folder| folder.ends_with("/control/gangs")), "{received}");
    }
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_gpu_is_tested_once_and_every_manager_gets_the_result() {
    let node = Node::with_gpus(2).await;
    let agent = node.start_agent().await;
    node.started(2).await;
    assert_eq!(node.tests().len(), 2);
    node.managers_serve().await;
    let is_proven =
        |line: &&str| line.starts_with("sluice_gpu_self_test{") && line.ends_with("outcome=\"proven\"} 1");
    node.metrics_with("two proofs", |text| text.lines().filter(is_proven).count() == 2).await;
    node.state_with("the proof", |state| state["gpus"][1]["manager"]["self_test"]["outcome"] == "proven")
        .await;
    kill(Pid::from_raw(node.pids()[0]), Signal::SIGKILL).unwrap();
    node.started(3).await;
    agent.end().await;
    // With a process on it, a GPU could not be tested any more.
    node.gpus.set_usage(Ok(Usage { driver: DRIVER.to_owned(), processes: 1 }));
    let agent = node.start_agent().await;
    let all = node.started(5).await;
    assert_eq!(node.tests().len(), 2, "a known result is not tested again");
    for gpu in [uuid(0), uuid(1)] {
        let result_file = |received: &String| {
            let words = received.split(' ').skip_while(|word| *word != "--self-test");
            words.skip(1).map(str::to_owned).next()
        };
        let received: Vec<_> =
            all.iter().filter(|received| received.contains(&gpu)).map(result_file).collect();
        assert!(received.iter().all(|file| file.is_some() && *file == received[0]), "{received:?}");
        assert!(is_there(std::path::Path::new(received[0].as_ref().unwrap())));
    }
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_manager_of_a_gpu_under_test_waits() {
    let node = Node::with_gpus(1).await;
    let unblock = node.block_tests();
    let agent = node.start_agent().await;
    let mut seen = node.api.node();
    let has_annotation = |object: &Value| object["metadata"]["annotations"]["sluice.dev/gpus"].is_string();
    soon("the node's annotation", seen.wait_for(has_annotation)).await.unwrap();
    let is_tested = async {
        while node.tests().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    soon("the test", is_tested).await;
    let is_pending = |state: &Value| state["gpus"][0]["manager"]["self_test"]["outcome"] == "pending";
    node.state_with("the pending test", is_pending).await;
    assert_eq!(node.arguments(), [""; 0]);
    unblock();
    assert!(node.started(1).await[0].contains("--self-test"));
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn manager_starts_without_test_on_a_gpu_in_use() {
    let node = Node::with_gpus(1).await;
    node.gpus.set_usage(Ok(Usage { driver: DRIVER.to_owned(), processes: 1 }));
    let agent = node.start_agent().await;
    last_set(&mut node.managers[0].received(), "a set", |_| true).await;
    let received = node.started(1).await;
    assert!(!received[0].contains("--self-test"), "{received:?}");
    assert_eq!(node.tests(), [""; 0]);
    node.managers_serve().await;
    let is_in_use = |state: &Value| state["gpus"][0]["manager"]["self_test"]["processes"] == 1;
    node.state_with("the GPU in use", is_in_use).await;
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_ends_its_managers_and_leaves_library_and_socket_folder() {
    let node = Node::with_gpus(2).await;
    let agent = node.start_agent().await;
    for manager in &node.managers {
        last_set(&mut manager.received(), "a set", |_| true).await;
    }
    node.started(2).await;
    // Left by a manager that was killed.
    let tables = node.control_socket("x").with_file_name("gangs");
    std::fs::create_dir_all(&tables).unwrap();
    std::fs::write(tables.join("GPU-x.json"), "").unwrap();
    agent.end().await;
    assert!(!is_there(&tables));
    for pid in node.pids() {
        assert!(kill(Pid::from_raw(pid), None).is_err(), "{pid} lives");
    }
    assert!(is_there(&node.socket_folder()));
    assert_eq!(
        std::fs::read_dir(node.library_folder())
            .unwrap()
            .filter(|entry| { entry.as_ref().unwrap().file_type().unwrap().is_dir() })
            .count(),
        1
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn next_agent_sends_the_same_clients_with_its_own_instance_id() {
    let node = Node::with_gpus(1).await;
    node.put("train", &[("quota", "0.3"), ("assigned-gpu", &uuid(0))]);
    let mut received = node.managers[0].received();
    let agent = node.start_agent().await;
    let before = last_set(&mut received, "the client", |set| names(&set.clients) == ["train"]).await;
    agent.end().await;
    let agent = node.start_agent().await;
    let after =
        last_set(&mut received, "the client again", |set| set.agent_instance != before.agent_instance).await;
    assert_eq!(after.clients, before.clients, "the first set is complete, not empty");
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_clients_are_sent_again_until_accepted() {
    let node = Node::with_gpus(1).await;
    let mut received = node.managers[0].received();
    let agent = node.start_agent().await;
    last_set(&mut received, "the empty set", |_| true).await;
    node.managers[0].set_behaviour(Behaviour::Refuses);
    node.put("train", &[("quota", "0.3"), ("assigned-gpu", &uuid(0))]);
    let refusal = format!("the pod-manager of {} refuses its clients", uuid(0));
    let has_refusal = |status, text: &str| status == 503 && text.contains(&refusal);
    node.page_with("/readyz", "the refusal", has_refusal).await;
    node.managers[0].set_behaviour(Behaviour::Normal);
    last_set(&mut received, "the client", |set| names(&set.clients) == ["train"]).await;
    agent.end().await;
}

/// A killed agent takes its managers with it, which then leave their sockets behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sockets_of_gpus_that_are_gone_are_removed_unless_a_process_listens() {
    let node = Node::with_gpus(1).await;
    std::fs::create_dir_all(node.socket_folder()).unwrap();
    let socket = |name: &str| node.socket_folder().join(name);
    let abandoned =
        [socket("GPU-gone.sock"), socket("GPU-gone.sock.4194305"), node.control_socket("GPU-gone")];
    for path in &abandoned {
        drop(std::os::unix::net::UnixListener::bind(path).unwrap());
    }
    let _served = std::os::unix::net::UnixListener::bind(socket("GPU-other.sock")).unwrap();
    std::fs::write(socket("GPU-file.sock"), "").unwrap();
    let agent = node.start_agent().await;
    node.started(1).await;
    assert!(abandoned.iter().all(|path| !is_there(path)), "{abandoned:?}");
    assert!(is_there(&socket("GPU-other.sock")), "a process listens");
    assert!(is_there(&socket("GPU-file.sock")), "no socket");
    assert!(is_there(&node.control_socket(&uuid(0))));
    agent.end().await;
}
