//! Time is tokio's paused clock: it advances only while every task waits.

use super::*;
use crate::gpus::fake::gpu;
use crate::node::events::PendingEvent;
use crate::pods::{Assignments, PodView, Pods};
use clap::Parser;
use std::sync::Arc;
use std::time::Duration;

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    flags: Flags,
}

const EVICT: &str = "--lost-gpu-policy=evict";

/// Two GPUs, and a pod on each: `pod-0` and `pod-1`.
struct Node {
    found: watch::Sender<BTreeMap<String, String>>,
    inventory: watch::Sender<NodeInventory>,
    skipped: watch::Sender<Vec<Skipped>>,
    taint: watch::Receiver<WantedTaint>,
    evictions: mpsc::UnboundedReceiver<Eviction>,
    events: mpsc::Receiver<PendingEvent>,
    assignments: watch::Sender<Option<Arc<Assignments>>>,
    pods: watch::Sender<Option<Arc<Pods>>>,
}

impl Node {
    fn with(words: &[&str]) -> Self {
        Self::with_taints(words, false)
    }

    fn with_taints(words: &[&str], has_device_taints: bool) -> Self {
        let flags = Program::parse_from([&["agent"], words].concat()).flags;
        let (found, found_seen) = watch::channel(BTreeMap::new());
        let (inventory, inventory_seen) = watch::channel(NodeInventory::new(1, vec![gpu(0), gpu(1)]));
        let (skipped, skipped_seen) = watch::channel(Vec::new());
        let uid = |index| format!("pod-{index}");
        let named = [0, 1].map(|index| (uid(index), vec![gpu(index).uuid])).into();
        let assignments = Some(Arc::new(Assignments { named, ..Assignments::default() }));
        let (assignments, assignments_seen) = watch::channel(assignments);
        let view = |index| Arc::new(PodView { uid: uid(index), name: uid(index), ..PodView::default() });
        let pods: Pods = [0, 1].map(|index| (uid(index), view(index))).into();
        let (pods, pods_seen) = watch::channel(Some(Arc::new(pods)));
        let (taint_wanted, taint) = watch::channel(WantedTaint::Keep);
        let (evictions_wanted, evictions) = mpsc::unbounded_channel();
        let (event_queue, events) = EventQueue::new();
        let inputs = Inputs {
            found: found_seen,
            inventory: inventory_seen,
            skipped: skipped_seen,
            assignments: assignments_seen,
            pods: pods_seen,
            has_device_taints,
        };
        let outputs = Outputs {
            lost: watch::Sender::default(),
            taint: taint_wanted,
            evictions: evictions_wanted,
            events: event_queue,
        };
        tokio::spawn(follow("n".into(), flags, inputs, outputs));
        Self { found, inventory, skipped, taint, evictions, events, assignments, pods }
    }

    fn lose(&self, indices: &[u32]) {
        self.found
            .send_replace(indices.iter().map(|index| (gpu(*index).uuid, "Xid 79".to_owned())).collect());
        self.inventory.send_modify(|inventory| {
            for gpu in &mut inventory.gpus {
                gpu.healthy = !indices.contains(&gpu.index);
            }
        });
    }
}

#[tokio::test(start_paused = true)]
async fn pods_of_the_lost_gpu_alone_are_evicted_when_the_grace_period_has_ended() {
    let mut node = Node::with(&[EVICT]);
    let began = Instant::now();
    node.lose(&[1]);
    let eviction = node.evictions.recv().await.unwrap();
    assert_eq!(began.elapsed().as_secs(), 300);
    assert_eq!((eviction.pod.uid.as_str(), eviction.cause), ("pod-1", Cause::LostGpu));
    assert!(
        eviction.reason.contains(&gpu(1).uuid) && eviction.reason.contains("Xid 79"),
        "{}",
        eviction.reason
    );
    let event = node.events.recv().await.unwrap();
    assert_eq!(event.reason, Reason::GpuLost);
    assert!(event.note.contains(&gpu(1).uuid) && event.note.contains("are evicted"), "{}", event.note);
    assert!(!eviction.cause_ended.is_cancelled());
    // The eviction is refused until the GPU is back.
    node.lose(&[]);
    eviction.cause_ended.cancelled().await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(node.evictions.try_recv().is_err() && *node.taint.borrow() == WantedTaint::Absent);
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_gpu_with_a_device_taint_are_left_to_kubernetes() {
    let mut node = Node::with_taints(&[EVICT], true);
    node.lose(&[1]);
    assert_eq!(node.events.recv().await.unwrap().reason, Reason::GpuLost);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(node.evictions.try_recv().is_err());
    // A GPU that the driver does not list any more has no device.
    node.inventory.send_modify(|inventory| inventory.gpus.truncate(1));
    assert_eq!(node.evictions.recv().await.unwrap().pod.uid, "pod-1");
}

#[tokio::test(start_paused = true)]
async fn gpu_that_is_back_within_the_grace_period_has_no_consequence_and_a_new_loss_a_new_period() {
    let mut node = Node::with(&[EVICT, "--lost-gpu-grace-seconds=60"]);
    node.lose(&[1]);
    tokio::time::sleep(Duration::from_secs(59)).await;
    node.lose(&[]);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(node.evictions.try_recv().is_err() && node.events.try_recv().is_err());
    let began = Instant::now();
    node.lose(&[1]);
    assert_eq!(node.evictions.recv().await.unwrap().pod.uid, "pod-1");
    assert_eq!(began.elapsed().as_secs(), 60);
}

#[tokio::test(start_paused = true)]
async fn node_is_tainted_while_a_gpu_is_lost_and_only_without_a_healthy_one_unusable() {
    let mut node = Node::with(&["--lost-gpu-policy=taint"]);
    node.lose(&[1]);
    node.taint.wait_for(|taint| *taint == WantedTaint::Set(LostGpuTaint::PreferNoSchedule)).await.unwrap();
    node.lose(&[0, 1]);
    node.taint.wait_for(|taint| *taint == WantedTaint::Set(LostGpuTaint::NoSchedule)).await.unwrap();
    node.lose(&[]);
    node.taint.wait_for(|taint| *taint == WantedTaint::Absent).await.unwrap();
    assert!(node.evictions.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn report_publishes_the_loss_and_does_nothing_else() {
    let mut node = Node::with(&["--lost-gpu-policy=report"]);
    node.lose(&[0, 1]);
    for _ in 0..2 {
        let event = node.events.recv().await.unwrap();
        assert!(event.reason == Reason::GpuLost && event.note.contains("not evicted"), "{event:?}");
    }
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(node.evictions.try_recv().is_err() && *node.taint.borrow() == WantedTaint::Absent);
}

#[tokio::test(start_paused = true)]
async fn eviction_of_a_pod_that_is_gone_ends_by_itself_after_its_event() {
    let mut node = Node::with(&[EVICT, "--lost-gpu-grace-seconds=0"]);
    node.lose(&[0, 1]);
    let eviction = node.evictions.recv().await.unwrap();
    node.pods.send_replace(Some(Arc::default()));
    node.assignments.send_replace(Some(Arc::default()));
    // The eviction of the other pod, and no further one.
    assert!(node.evictions.recv().await.is_some());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!eviction.cause_ended.is_cancelled() && node.evictions.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn taint_of_the_agent_before_stays_until_the_grace_period_ends_or_no_gpu_is_lost() {
    let mut node = Node::with(&["--lost-gpu-policy=taint"]);
    node.assignments.send_replace(None);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(*node.taint.borrow(), WantedTaint::Keep, "the pods are not known yet");
    node.lose(&[1]);
    node.assignments.send_replace(Some(Arc::default()));
    tokio::time::sleep(Duration::from_secs(299)).await;
    assert_eq!(*node.taint.borrow(), WantedTaint::Keep);
    node.lose(&[]);
    node.taint.wait_for(|taint| *taint == WantedTaint::Absent).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn pods_of_an_absent_gpu_stay_while_a_gpu_that_answers_later_may_be_theirs() {
    let mut node = Node::with(&[EVICT]);
    let reason = crate::gpus::Fault::Failed("unknown error".into());
    node.skipped.send_replace(vec![Skipped { uuid: None, index: 1, reason }]);
    node.inventory.send_replace(NodeInventory::new(1, vec![gpu(0)]));
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(node.evictions.try_recv().is_err());
    node.skipped.send_replace(Vec::new());
    assert_eq!(node.evictions.recv().await.unwrap().pod.uid, "pod-1");
}
