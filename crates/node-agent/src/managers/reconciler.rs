//! Keeps the manager of one GPU running, and its set of clients up to date.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use sluice_placement::inventory::NodeInventory;
use sluice_proto::control::{Client, SetClientsRequest};
use sluice_rate_limiter::Backoff;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::control_client::{self, ControlError};
use super::escrow::Escrow;
use super::process::Overcommit;
use super::supervisor::Settings;
use super::{ManagerState, ManagerStatuses, process};
use crate::pods::AssignmentsWatch;
use crate::self_test::SelfTestState;

/// Delays before restarts. After a process ran well, the next restart has the shortest delay again.
const RESTART_FIRST: Duration = Duration::from_millis(100);
const RESTART_MOST: Duration = Duration::from_secs(30);
const RAN_WELL: Duration = Duration::from_secs(10);
/// Delays between pushes that fail. A manager opens its socket within milliseconds of its start.
const PUSH_FIRST: Duration = Duration::from_millis(10);
const PUSH_MOST: Duration = Duration::from_secs(5);
/// How long a manager may take to answer a call.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// Interval at which a manager with current clients is checked.
const CHECK_EVERY: Duration = Duration::from_secs(10);
/// A manager that has not answered for this long is killed and restarted.
const UNRESPONSIVE_AFTER: Duration = Duration::from_secs(30);

/// Identity of this run of the agent. By it a manager accepts a new agent's generations, although they start again at
/// 1.
///
/// # Errors
/// The kernel provides no random identity.
pub fn instance_id() -> std::io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/uuid")?.trim().to_owned())
}

pub(crate) struct ManagerReconciler {
    pub(crate) gpu: String,
    pub(crate) settings: Settings,
    pub(crate) statuses: ManagerStatuses,
    pub(crate) assignments: AssignmentsWatch,
    /// The node's GPUs. A manager is sent their number when it starts.
    pub(crate) inventory: watch::Receiver<NodeInventory>,
    /// Generation of the last push, across all processes of this manager.
    pub(crate) generation: u64,
    pub(crate) self_test: SelfTestState,
}

/// Why the supervision of a manager process ended.
enum RunEnd {
    Ended(std::io::Result<std::process::ExitStatus>),
    Unresponsive,
    Stopped,
}

impl ManagerReconciler {
    /// Runs until `stop`; the manager has ended when this returns.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut backoff = Backoff::new(RESTART_FIRST, RESTART_MOST);
        loop {
            tokio::select! {
                () = self.test_gpu() => {}
                () = stop.cancelled() => break,
            }
            let since = Instant::now();
            if matches!(self.run_process(&stop).await, RunEnd::Stopped) {
                break;
            }
            if since.elapsed() >= RAN_WELL {
                backoff.succeeded();
            }
            let delay = backoff.next_delay();
            self.statuses.update(&self.gpu, |status| {
                status.state = ManagerState::BackingOff;
                status.pid = None;
                status.generation = None;
            });
            info!(gpu = self.gpu, delay_ms = delay.as_millis(), "the pod-manager is restarted after a delay");
            tokio::select! {
                () = tokio::time::sleep(delay) => {}
                () = stop.cancelled() => break,
            }
            self.statuses.update(&self.gpu, |status| {
                status.state = ManagerState::Starting;
                status.restarts += 1;
            });
        }
        self.statuses.remove(&self.gpu);
    }

    /// Runs the GPU's self-test if it is wanted, its result is unknown, and the GPU is healthy.
    async fn test_gpu(&mut self) {
        let healthy = self.inventory.borrow().gpu(&self.gpu).is_some_and(|gpu| gpu.healthy);
        self.self_test.run_if_unknown(self.settings.tester.as_ref(), &self.gpu, healthy).await;
        let outcome = self.self_test.outcome();
        self.statuses.update(&self.gpu, |status| status.self_test = outcome.clone());
    }

    async fn run_process(&mut self, stop: &CancellationToken) -> RunEnd {
        let (node_gpus, overcommit) = {
            let inventory = self.inventory.borrow();
            (inventory.gpus.len(), inventory.gpu(&self.gpu).and_then(Overcommit::of))
        };
        let (escrow, socket) = self.start_escrow();
        let mut child = match self.settings.command.start(
            &self.gpu,
            node_gpus,
            overcommit,
            socket,
            self.self_test.result_file(),
        ) {
            Ok(child) => child,
            Err(why) => {
                warn!(gpu = self.gpu, %why, program = %self.settings.command.program.display(), "cannot start the pod-manager");
                return RunEnd::Ended(Err(why));
            }
        };
        let pid = child.id();
        self.statuses.update(&self.gpu, |status| status.pid = pid);
        info!(gpu = self.gpu, pid, "pod-manager started");
        let socket = self.settings.command.control(&self.gpu);
        let memory_reports = self.settings.memory.clone().send_all(self.gpu.clone(), socket);
        let end = tokio::select! {
            ended = child.wait() => RunEnd::Ended(ended),
            () = memory_reports => RunEnd::Unresponsive,
            () = self.push_clients() => RunEnd::Unresponsive,
            () = stop.cancelled() => RunEnd::Stopped,
        };
        match &end {
            RunEnd::Ended(Ok(status)) => warn!(gpu = self.gpu, pid, %status, "the pod-manager ended"),
            RunEnd::Ended(Err(why)) => {
                warn!(gpu = self.gpu, pid, %why, "the pod-manager cannot be waited for")
            }
            RunEnd::Unresponsive => {
                warn!(gpu = self.gpu, pid, "the pod-manager runs but does not answer; killing it");
                if let Err(why) = child.kill().await {
                    warn!(gpu = self.gpu, pid, %why, "cannot kill the pod-manager");
                }
            }
            RunEnd::Stopped => {
                if let Err(why) = process::end(&self.gpu, &mut child).await {
                    warn!(gpu = self.gpu, pid, %why, "cannot end the pod-manager");
                }
            }
        }
        // Before the next manager makes control requests of its own.
        if let Some(escrow) = escrow {
            escrow.wait_until_released(&self.gpu).await;
        }
        end
    }

    /// Starts the escrow of the next manager; also returns the manager's end of its socket.
    fn start_escrow(&self) -> (Option<Escrow>, Option<OwnedFd>) {
        match Escrow::start(&self.gpu, self.settings.command.simulated) {
            Ok((escrow, socket)) => (Some(escrow), Some(socket)),
            Err(why) => {
                warn!(gpu = self.gpu, %why, "no descriptor escrow for this pod-manager; only the hooks re-enable their channel groups");
                (None, None)
            }
        }
    }

    /// Sends the manager its clients now and at each change. Returns only if the manager has not answered for too
    /// long.
    async fn push_clients(&mut self) {
        let socket = self.settings.command.control(&self.gpu);
        let mut sent: Option<Vec<Client>> = None;
        let mut answered_at = Instant::now();
        let mut backoff = Backoff::new(PUSH_FIRST, PUSH_MOST);
        loop {
            let wanted = self.desired_clients();
            let outcome = match wanted {
                Some(clients) if sent.as_ref() != Some(&clients) => {
                    let outcome = self.push(&socket, clients.clone()).await;
                    if outcome.is_ok() {
                        sent = Some(clients);
                    }
                    outcome
                }
                // Nothing to send: only check that it still answers.
                _ => control_client::snapshot(&socket, ANSWER_WITHIN).await.map(drop),
            };
            let pause = match outcome {
                Ok(()) => {
                    answered_at = Instant::now();
                    backoff.succeeded();
                    CHECK_EVERY
                }
                Err(why) => {
                    if matches!(why, ControlError::Refused(_) | ControlError::LocalResources { .. }) {
                        answered_at = Instant::now();
                    }
                    if answered_at.elapsed() >= UNRESPONSIVE_AFTER {
                        return;
                    }
                    backoff.next_delay()
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                // Without a sender no change can come, but the manager must still be checked.
                Ok(()) = self.assignments.changed() => {}
            }
        }
    }

    /// The clients that the manager should have; `None` while they are unknown.
    fn desired_clients(&mut self) -> Option<Vec<Client>> {
        let assignments = self.assignments.borrow_and_update();
        assignments.as_ref().map(|now| now.sets.get(&self.gpu).cloned().unwrap_or_default())
    }

    async fn push(&mut self, socket: &Path, clients: Vec<Client>) -> Result<(), ControlError> {
        // A new number for each attempt: the manager may have applied one whose answer was lost.
        self.generation += 1;
        let (generation, count) = (self.generation, clients.len());
        let agent_instance = self.settings.instance.clone();
        let request = SetClientsRequest { generation, agent_instance, clients };
        let outcome = control_client::set_clients(socket, request, ANSWER_WITHIN).await;
        match &outcome {
            Ok(in_force) => {
                info!(gpu = self.gpu, generation, clients = count, "the pod-manager accepted its clients");
                self.statuses.update(&self.gpu, |status| {
                    status.state = ManagerState::Serving;
                    status.generation = Some(*in_force);
                });
            }
            Err(why @ ControlError::Refused(_)) => {
                warn!(gpu = self.gpu, generation, clients = count, %why, "the pod-manager refused its clients");
                self.statuses.update(&self.gpu, |status| status.state = ManagerState::Outdated);
            }
            // A process that was just started does not listen yet. That is no fault.
            Err(why) => tracing::debug!(gpu = self.gpu, generation, %why, "clients not sent yet"),
        }
        outcome.map(drop)
    }
}
