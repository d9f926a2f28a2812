//! Time is tokio's paused clock: it advances only while every task waits.

use super::*;
use crate::node::events::PendingEvent;
use crate::pods::{Assignments, Pods};
use std::fs;
use tokio::sync::mpsc;

struct Node {
    proc: tempfile::TempDir,
    in_force: watch::Sender<InForce>,
    pods: watch::Sender<Option<Arc<Pods>>>,
    assignments: watch::Sender<Option<Arc<Assignments>>>,
    proof: watch::Receiver<Proof>,
    events: mpsc::Receiver<PendingEvent>,
}

impl Node {
    fn start(own_path: OwnPath) -> Self {
        let proc = tempfile::tempdir().unwrap();
        let (in_force, in_force_seen) = watch::channel(InForce::Runtime("it is wanted".into()));
        let (pods, pods_seen) = watch::channel(Some(Arc::default()));
        let (assignments, assignments_seen) = watch::channel(Some(Arc::default()));
        let (proof_known, proof) = watch::channel(Proof::Open);
        let (event_queue, events) = EventQueue::new();
        let inputs = Inputs {
            node: "n".into(),
            proc: proc.path().to_owned(),
            own_path,
            in_force: in_force_seen,
            pods: pods_seen,
            assignments: assignments_seen,
        };
        tokio::spawn(follow(inputs, proof_known, event_queue));
        Self { proc, in_force, pods, assignments, proof, events }
    }

    /// A pod with one GPU starts, whose container has the mount of this file.
    fn start_pod(&self, name: char, file: &str) {
        let id = name.to_string().repeat(64);
        let folder = self.proc.path().join(format!("{}", u32::from(name)));
        fs::create_dir_all(&folder).unwrap();
        let cgroup = format!("0::/kubepods/pod01234567-89ab-cdef-0123-456789abcdef/{id}\n");
        fs::write(folder.join("cgroup"), cgroup).unwrap();
        fs::write(folder.join("mountinfo"), format!("9 1 0:1 /x {file} ro - overlay overlay rw\n")).unwrap();
        let view = PodView {
            uid: name.to_string(),
            namespace: "ml".into(),
            name: name.to_string(),
            container: "main".into(),
            container_names: [(id, "main".to_owned())].into(),
            ..PodView::default()
        };
        let mut pods = self.pods.borrow().as_deref().cloned().unwrap_or_default();
        pods.insert(name.to_string(), Arc::new(view));
        let gpus = pods.keys().map(|uid| (uid.clone(), vec!["GPU-1".to_owned()])).collect();
        self.assignments.send_replace(Some(Arc::new(Assignments { gpus, ..Assignments::default() })));
        self.pods.send_replace(Some(Arc::new(pods)));
    }

    async fn is(&mut self, label: &str) {
        self.proof.wait_for(|proof| proof.label() == label).await.unwrap();
    }
}

const LIBRARY: &str = "/usr/lib/libcuda.so.1";

#[tokio::test(start_paused = true)]
async fn own_container_proves_its_path_alone_and_a_new_container_proves_the_other() {
    let mut node = Node::start(OwnPath::Runtime);
    node.is("proven").await;
    // This container exists before NRI is in force.
    node.start_pod('a', LIBRARY);
    node.in_force.send_replace(InForce::Nri("containerd v2.2.9".into(), None));
    node.is("open").await;
    node.start_pod('b', LIBRARY);
    node.is("proven").await;
    assert_eq!(*node.proof.borrow(), Proof::Proven("container main of pod ml/b".into()));
    assert!(node.events.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn container_without_a_driver_is_reported_on_pod_and_node_until_another_one_has_it() {
    let mut node = Node::start(OwnPath::Other);
    tokio::time::sleep(LOOK_EVERY).await;
    node.start_pod('a', "/etc/ld.so.preload");
    node.is("not-in-pod").await;
    for (kind, reason) in [("Pod", Reason::NotInjected), ("Node", Reason::InjectionFailed)] {
        let event = node.events.recv().await.unwrap();
        assert_eq!((event.about.kind.as_deref(), event.reason), (Some(kind), reason));
        assert!(event.note.contains("ml/a") && event.note.contains("no libcuda.so"), "{}", event.note);
    }
    tokio::time::sleep(10 * LOOK_EVERY).await;
    assert!(node.events.try_recv().is_err(), "it is reported once");
    node.start_pod('b', LIBRARY);
    node.is("proven").await;
}

#[tokio::test(start_paused = true)]
async fn container_that_is_still_being_created_is_not_reported() {
    let mut node = Node::start(OwnPath::Other);
    tokio::time::sleep(LOOK_EVERY / 2).await;
    node.start_pod('a', "/etc/ld.so.preload");
    tokio::time::sleep(LOOK_EVERY / 10).await;
    node.start_pod('a', LIBRARY);
    node.is("proven").await;
    tokio::time::sleep(10 * LOOK_EVERY).await;
    assert!(node.events.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn container_without_processes_is_searched_for_until_a_second_look_and_no_longer() {
    let mut node = Node::start(OwnPath::Other);
    tokio::time::sleep(LOOK_EVERY).await;
    node.start_pod('a', LIBRARY);
    let process = node.proc.path().join(u32::from('a').to_string());
    fs::remove_dir_all(&process).unwrap();
    tokio::time::sleep(3 * LOOK_EVERY).await;
    node.start_pod('a', LIBRARY);
    tokio::time::sleep(10 * LOOK_EVERY).await;
    assert_eq!(*node.proof.borrow(), Proof::Open, "it was searched for");
    node.start_pod('b', LIBRARY);
    node.is("proven").await;
    assert_eq!(*node.proof.borrow(), Proof::Proven("container main of pod ml/b".into()));
}

#[tokio::test(start_paused = true)]
async fn changes_of_pods_in_quick_succession_are_followed_by_one_look() {
    let mut node = Node::start(OwnPath::Other);
    tokio::time::sleep(LOOK_EVERY).await;
    let began = Instant::now();
    node.start_pod('a', "/etc/ld.so.preload");
    tokio::time::sleep(BETWEEN_LOOKS / 10).await;
    node.start_pod('b', LIBRARY);
    node.is("proven").await;
    assert!(began.elapsed() >= BETWEEN_LOOKS, "{:?}", began.elapsed());
}
