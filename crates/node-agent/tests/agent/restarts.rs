//! Managers and agents that end, and what the others notice.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::manager::Mood;
use crate::node::{Node, is_there, last_set, names, soon, uuid};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manager_that_is_killed_is_started_again_and_told_everything_again() {
    let node = Node::with_gpus(1).await;
    node.put("train", &[("quota", "0.3"), ("assigned-gpu", &uuid(0))]);
    let agent = node.start_agent().await;
    let mut told = node.managers[0].told();
    let before = last_set(&mut told, "the client", |set| names(&set.clients) == ["train"]).await;
    let pid = soon("a process", async {
        loop {
            match node.pids().as_slice() {
                [pid] => break *pid,
                _ => tokio::task::yield_now().await,
            }
        }
    })
    .await;
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    let again = last_set(&mut told, "once more", |set| set.generation > before.generation).await;
    assert_eq!(again.clients, before.clients);
    let state = node.state().await;
    assert_eq!(state["gpus"][0]["manager"]["restarts"], 1);
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn managers_are_told_to_use_the_gpus_controls_and_how_many_share_the_driver() {
    let node = Node::with_gpus(2).await;
    let agent = node.start_agent().await;
    let arguments = soon("two managers", async {
        loop {
            match node.arguments() {
                all if all.len() == 2 => break all,
                _ => tokio::task::yield_now().await,
            }
        }
    })
    .await;
    for told in arguments {
        assert!(told.contains(" --node-gpus 2") && told.contains(" --controls=auto"), "{told}");
    }
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_ends_takes_its_managers_along_and_leaves_pods_their_library_and_folder() {
    let node = Node::with_gpus(2).await;
    let agent = node.start_agent().await;
    for manager in &node.managers {
        last_set(&mut manager.told(), "a set", |_| true).await;
    }
    agent.end().await;
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
async fn the_next_agent_tells_managers_the_same_under_a_name_of_its_own() {
    let node = Node::with_gpus(1).await;
    node.put("train", &[("quota", "0.3"), ("assigned-gpu", &uuid(0))]);
    let mut told = node.managers[0].told();
    let agent = node.start_agent().await;
    let before = last_set(&mut told, "the client", |set| names(&set.clients) == ["train"]).await;
    agent.end().await;
    let agent = node.start_agent().await;
    let after =
        last_set(&mut told, "the client again", |set| set.agent_instance != before.agent_instance).await;
    assert_eq!(after.clients, before.clients, "the first that it hears is the whole set, not an empty one");
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manager_that_refuses_its_clients_is_asked_again_until_it_takes_them() {
    let node = Node::with_gpus(1).await;
    let mut told = node.managers[0].told();
    let agent = node.start_agent().await;
    last_set(&mut told, "the empty set", |_| true).await;
    node.managers[0].be(Mood::Refuses);
    node.put("train", &[("quota", "0.3"), ("assigned-gpu", &uuid(0))]);
    let missing = soon("not ready", async {
        loop {
            let (status, text) = node.get("/readyz").await;
            if status == 503 && text.contains("does not take its clients") {
                break text;
            }
        }
    })
    .await;
    assert!(missing.contains(&uuid(0)), "{missing}");
    node.managers[0].be(Mood::Good);
    last_set(&mut told, "the client", |set| names(&set.clients) == ["train"]).await;
    agent.end().await;
}
