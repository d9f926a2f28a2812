//! Managers and agents that end, and what the others notice.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use sluice_node_agent::gpus::driver::Usage;
use sluice_node_agent::gpus::fake::DRIVER;

use super::manager::Behaviour;
use super::node::{Node, is_there, last_set, names, soon, uuid};

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
    let arguments = node.started(2).await;
    for told in arguments {
        assert!(told.contains(" --node-gpus 2") && told.contains(" --controls=auto"), "{told}");
    }
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_gpu_is_tried_once_before_its_manager_starts_and_every_manager_gets_the_verdict() {
    let node = Node::with_gpus(2).await;
    let agent = node.start_agent().await;
    node.started(2).await;
    assert_eq!(node.tests().len(), 2);
    node.managers_serve().await;
    let (_, text) = node.get("/metrics").await;
    assert_eq!(text.matches("outcome=\"proven\"} 1").count(), 2, "{text}");
    assert_eq!(node.state().await["gpus"][1]["manager"]["self_test"]["outcome"], "proven");
    kill(Pid::from_raw(node.pids()[0]), Signal::SIGKILL).unwrap();
    node.started(3).await;
    agent.end().await;
    // With a program on a GPU nobody could be tried any more.
    node.gpus.set_usage(Ok(Usage { driver: DRIVER.to_owned(), processes: 1 }));
    let agent = node.start_agent().await;
    let all = node.started(5).await;
    assert_eq!(node.tests().len(), 2, "what is known is not tried again");
    for gpu in [uuid(0), uuid(1)] {
        let verdict = |told: &String| {
            let words = told.split(' ').skip_while(|word| *word != "--self-test");
            words.skip(1).map(str::to_owned).next()
        };
        let told: Vec<_> = all.iter().filter(|told| told.contains(&gpu)).map(verdict).collect();
        assert!(told.iter().all(|file| file.is_some() && *file == told[0]), "{told:?}");
        assert!(is_there(std::path::Path::new(told[0].as_ref().unwrap())));
    }
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_gpu_is_tried_only_its_manager_waits() {
    let node = Node::with_gpus(1).await;
    let let_go = node.hold_tests();
    let agent = node.start_agent().await;
    let mut seen = node.api.node();
    let is_marked =
        |object: &serde_json::Value| object["metadata"]["annotations"]["sluice.dev/gpus"].is_string();
    soon("the node's marks", seen.wait_for(is_marked)).await.unwrap();
    let is_tried = async {
        while node.tests().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    soon("the test", is_tried).await;
    assert_eq!(node.state().await["gpus"][0]["manager"]["self_test"]["outcome"], "pending");
    assert_eq!(node.arguments(), [""; 0]);
    let_go();
    assert!(node.started(1).await[0].contains("--self-test"));
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manager_does_not_wait_for_a_gpu_that_is_in_use() {
    let node = Node::with_gpus(1).await;
    node.gpus.set_usage(Ok(Usage { driver: DRIVER.to_owned(), processes: 1 }));
    let agent = node.start_agent().await;
    last_set(&mut node.managers[0].told(), "a set", |_| true).await;
    let told = node.started(1).await;
    assert!(!told[0].contains("--self-test"), "{told:?}");
    assert_eq!(node.tests(), [""; 0]);
    node.managers_serve().await;
    assert_eq!(node.state().await["gpus"][0]["manager"]["self_test"]["processes"], 1);
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
    node.managers[0].set_behaviour(Behaviour::Refuses);
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
    node.managers[0].set_behaviour(Behaviour::Normal);
    last_set(&mut told, "the client", |set| names(&set.clients) == ["train"]).await;
    agent.end().await;
}
