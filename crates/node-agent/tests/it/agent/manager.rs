//! The control API of a pod-manager that accepts everything, and that a test can make hang or refuse.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use sluice_proto::control::pod_manager_server::{PodManager, PodManagerServer};
use sluice_proto::control::{
    Client, ClientUsage, Controls, EventLoop, EventLoopBucket, ExceededLimit, Latencies, LatencyBucket,
    LatencyQuantile, NextReadingRequest, NextReadingResponse, Preemptions, Process, ReportMemoryRequest,
    ReportMemoryResponse, SetClientsRequest, SetClientsResponse, SnapshotRequest, SnapshotResponse, Steering,
    Violation, ViolationsRequest, ViolationsResponse,
};
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Behaviour {
    Normal,
    Hangs,
    Refuses,
}

/// Every request that it received.
pub type Received = Vec<SetClientsRequest>;

#[derive(Clone)]
pub struct Manager {
    gpu: String,
    received: Arc<watch::Sender<Received>>,
    /// The last reading of memory, and the answer to each.
    reading: Arc<watch::Sender<ReportMemoryRequest>>,
    exceeded: Arc<watch::Sender<Vec<ExceededLimit>>>,
    /// Questions for the next reading so far, and how many of them may be answered.
    asked: Arc<watch::Sender<usize>>,
    wanted: Arc<watch::Sender<usize>>,
    behaviour: Arc<AtomicU8>,
    violations: Arc<watch::Sender<Vec<Violation>>>,
    /// The memory of suspended clients still leaves, so they get grants.
    memory_leaves: Arc<AtomicBool>,
    /// Snapshots so far.
    snapshots: Arc<watch::Sender<usize>>,
}

impl Manager {
    /// Serves this control socket as long as the test runs.
    pub fn start(control: &Path, gpu: &str) -> Self {
        let manager = Self {
            gpu: gpu.to_owned(),
            received: Arc::new(watch::Sender::default()),
            reading: Arc::new(watch::Sender::default()),
            exceeded: Arc::new(watch::Sender::default()),
            asked: Arc::new(watch::Sender::default()),
            wanted: Arc::new(watch::Sender::default()),
            behaviour: Arc::default(),
            violations: Arc::new(watch::Sender::default()),
            memory_leaves: Arc::default(),
            snapshots: Arc::new(watch::Sender::default()),
        };
        let listener = UnixListener::bind(control).unwrap();
        let service = PodManagerServer::new(manager.clone());
        let server = tonic::transport::Server::builder().add_service(service);
        tokio::spawn(server.serve_with_incoming(UnixListenerStream::new(listener)));
        manager
    }

    pub fn received(&self) -> watch::Receiver<Received> {
        self.received.subscribe()
    }

    /// Answers one more question for the next reading. Returns once the agent asks again.
    pub async fn want_reading(&self) {
        let mut asked = self.asked.subscribe();
        let number = *asked.wait_for(|asked| *asked > 0).await.unwrap();
        self.wanted.send_replace(number);
        let _ = asked.wait_for(|asked| *asked > number).await.unwrap();
    }

    /// The last reading of the memory of processes.
    pub fn reading(&self) -> watch::Receiver<ReportMemoryRequest> {
        self.reading.subscribe()
    }

    /// From now on readings exceed these limits.
    pub fn set_exceeded(&self, exceeded: Vec<ExceededLimit>) {
        self.exceeded.send_replace(exceeded);
    }

    pub fn set_behaviour(&self, behaviour: Behaviour) {
        self.behaviour.store(behaviour as u8, Ordering::SeqCst);
    }

    /// Suspended clients get grants from now on, or none.
    pub fn set_memory_leaves(&self, leaves: bool) {
        self.memory_leaves.store(leaves, Ordering::SeqCst);
    }

    /// Waits for this many further snapshots.
    pub async fn snapshots(&self, count: usize) {
        let mut seen = self.snapshots.subscribe();
        let before = *seen.borrow();
        let _ = seen.wait_for(|seen| *seen >= before + count).await.unwrap();
    }

    /// Counts a violation.
    pub fn find_violation(&self, violation: Violation) {
        self.violations.send_modify(|violations| violations.push(violation));
    }

    async fn behave(&self) -> Result<(), Status> {
        match self.behaviour.load(Ordering::SeqCst) {
            behaviour if behaviour == Behaviour::Hangs as u8 => std::future::pending().await,
            behaviour if behaviour == Behaviour::Refuses as u8 => {
                Err(Status::invalid_argument("I do not want to"))
            }
            _ => Ok(()),
        }
    }
}

#[tonic::async_trait]
impl PodManager for Manager {
    async fn set_clients(
        &self,
        request: Request<SetClientsRequest>,
    ) -> Result<Response<SetClientsResponse>, Status> {
        self.behave().await?;
        let request = request.into_inner();
        let generation = request.generation;
        self.received.send_modify(|received| received.push(request));
        Ok(Response::new(SetClientsResponse { generation }))
    }

    async fn violations(
        &self,
        request: Request<ViolationsRequest>,
    ) -> Result<Response<ViolationsResponse>, Status> {
        let after = usize::try_from(request.into_inner().after).unwrap();
        let mut known = self.violations.subscribe();
        let known = known.wait_for(|violations| violations.len() > after).await.unwrap();
        let (last, violations) = (known.len() as u64, known[after..].to_vec());
        Ok(Response::new(ViolationsResponse { last, violations }))
    }

    async fn report_memory(
        &self,
        request: Request<ReportMemoryRequest>,
    ) -> Result<Response<ReportMemoryResponse>, Status> {
        self.behave().await?;
        self.reading.send_replace(request.into_inner());
        Ok(Response::new(ReportMemoryResponse { exceeded: self.exceeded.borrow().clone() }))
    }

    async fn next_reading(
        &self,
        _: Request<NextReadingRequest>,
    ) -> Result<Response<NextReadingResponse>, Status> {
        let mut number = 0;
        self.asked.send_modify(|asked| {
            *asked += 1;
            number = *asked;
        });
        let _ = self.wanted.subscribe().wait_for(|wanted| *wanted >= number).await.unwrap();
        Ok(Response::new(NextReadingResponse { wanted: true }))
    }

    async fn snapshot(&self, _: Request<SnapshotRequest>) -> Result<Response<SnapshotResponse>, Status> {
        self.behave().await?;
        let received = self.received.borrow();
        let last = received.last().cloned().unwrap_or_default();
        let withholds = !self.memory_leaves.load(Ordering::SeqCst);
        let clients = last.clients.into_iter().map(|client| usage(client, withholds)).collect();
        self.snapshots.send_modify(|snapshots| *snapshots += 1);
        let (gpu_uuid, generation, agent_instance) = (self.gpu.clone(), last.generation, last.agent_instance);
        let refused = [("unknown_pod".to_owned(), 3)].into();
        Ok(Response::new(SnapshotResponse {
            gpu_uuid,
            generation,
            clients,
            agent_instance,
            refused,
            held: 0,
            steering: Some(steering()),
            event_loop: Some(EventLoop {
                buckets: vec![EventLoopBucket { seconds: 0.001, rounds: 34 }],
                rounds: 35,
                seconds: 0.5,
            }),
            log_lines_dropped: 36,
            idle_energy_joules: 39.5,
            memory_readings: [("complete".to_owned(), 37)].into(),
            policy_reloads: [("refused".to_owned(), 38)].into(),
        }))
    }
}

/// Counts that differ from each other, so that a mix-up shows.
fn steering() -> Steering {
    let made = |control: &str, outcome: &str, count| Controls {
        control: control.to_owned(),
        outcome: outcome.to_owned(),
        count,
    };
    Steering {
        turns: 21,
        hand_overs_forced: 22,
        given_up: 23,
        descriptors_refused: 24,
        controls: vec![made("stop", "done", 25), made("stop", "failed", 26)],
        announcements_refused: 29,
        preemptions: vec![Preemptions { level: "turn".to_owned(), outcome: "timeout".to_owned(), count: 31 }],
        preemption_times: [("turn".to_owned(), latencies(46, 0.125))].into(),
        hand_off_times: [("token".to_owned(), latencies(48, 0.5))].into(),
        levels: [("turn".to_owned(), 27), ("token".to_owned(), 28)].into(),
    }
}

/// Usage with values that differ from each other.
fn usage(client: Client, withholds: bool) -> ClientUsage {
    ClientUsage {
        grants_withheld: client.suspended && withholds,
        client: Some(client),
        processes: vec![Process { pid: 7, container_id: "cafe".into(), memory_used_bytes: 11 }],
        gpu_time_ns: 2_500_000_000,
        share_ppm: 250_000,
        memory_used_bytes: 12,
        memory_peak_bytes: 13,
        memory_denied: 14,
        memory_resident_bytes: 46,
        memory_swapped_bytes: 47,
        memory_moved_bytes: 48,
        memory_waited_seconds: 49.5,
        grants: 15,
        wait_ns: 500_000_000,
        delayed_ns: 750_000_000,
        hold_and_wait_ns: 625_000_000,
        bypassed: [("graph".to_owned(), 16)].into(),
        left_out: false,
        adopted_processes: 32,
        unsteered_processes: [("not_permitted".to_owned(), 33)].into(),
        violations: [("time_slice".to_owned(), 37)].into(),
        energy_joules: 40.5,
        memory_overhead_bytes: 38,
        stopped_processes: 39,
        steps: Some(latencies(40, 0.25)),
        requests: Some(latencies(42, 0.75)),
        slo_violations: 44,
        unobserved_steps: 45,
    }
}

/// Latencies of which so many were at most 1 ms, and one was longer.
fn latencies(short: u64, seconds: f64) -> Latencies {
    Latencies {
        buckets: vec![LatencyBucket { seconds: 0.001, count: short }],
        count: short + 1,
        seconds,
        quantiles: vec![LatencyQuantile { quantile: "0.99".to_owned(), seconds: seconds / 2.0 }],
    }
}
