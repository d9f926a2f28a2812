//! Keeps the manager of one GPU alive, and in possession of its clients.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use sluice_placement::inventory::NodeInventory;
use sluice_proto::control::{Client, SetClientsRequest};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::control::{self, ControlError};
use super::custody::Custody;
use super::supervisor::Settings;
use super::verdict::Verdict;
use super::{Backoff, Board, ClientSetsWatch, State, child};

/// Tells this start of the agent from any other, so that a manager does not hold a new agent to an old one's generations.
///
/// # Errors
/// If the kernel gives no random identity.
pub fn instance_id() -> std::io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/uuid")?.trim().to_owned())
}

/// One GPU's manager.
pub(crate) struct Keeper {
    pub(crate) gpu: String,
    pub(crate) settings: Settings,
    pub(crate) board: Board,
    pub(crate) sets: ClientSetsWatch,
    /// The node's GPUs. A manager is told how many they are when it is started.
    pub(crate) inventory: watch::Receiver<NodeInventory>,
    /// Of the last push, over all processes of this manager.
    pub(crate) generation: u64,
    /// Of the GPU's self-test.
    pub(crate) verdict: Verdict,
}

/// Why a running manager is no longer looked after.
enum Turn {
    Ended(std::io::Result<std::process::ExitStatus>),
    Unresponsive,
    Stopped,
}

impl Keeper {
    /// Runs until `stop`; the manager has ended when this returns.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut backoff = Backoff::new(self.settings.restart_first, self.settings.restart_most);
        loop {
            tokio::select! {
                () = self.try_gpu() => {}
                () = stop.cancelled() => break,
            }
            let since = Instant::now();
            if self.one_life(&stop).await.is_stopped() {
                break;
            }
            if since.elapsed() >= self.settings.ran_well {
                backoff.reset();
            }
            let delay = backoff.delay();
            self.board.update(&self.gpu, |status| {
                status.state = State::BackingOff;
                status.pid = None;
                status.generation = None;
            });
            info!(
                gpu = self.gpu,
                delay_ms = delay.as_millis(),
                "the pod-manager is started again after a pause"
            );
            tokio::select! {
                () = tokio::time::sleep(delay) => {}
                () = stop.cancelled() => break,
            }
            self.board.update(&self.gpu, |status| {
                status.state = State::Starting;
                status.restarts += 1;
            });
        }
        self.board.remove(&self.gpu);
    }

    /// Has the GPU tried if that is wanted, not known yet, and it is in order.
    async fn try_gpu(&mut self) {
        let healthy = self.inventory.borrow().gpu(&self.gpu).is_some_and(|gpu| gpu.healthy);
        self.verdict.learn(self.settings.tester.as_ref(), &self.gpu, healthy).await;
        let outcome = self.verdict.outcome();
        self.board.update(&self.gpu, |status| status.self_test = outcome.clone());
    }

    /// From the start of a process to its end.
    async fn one_life(&mut self, stop: &CancellationToken) -> Turn {
        let node_gpus = self.inventory.borrow().gpus.len();
        let (custody, socket) = self.custody();
        let mut process = match self.settings.launch.start(&self.gpu, node_gpus, socket, self.verdict.file())
        {
            Ok(process) => process,
            Err(why) => {
                warn!(gpu = self.gpu, %why, program = %self.settings.launch.program.display(), "cannot start the pod-manager");
                return Turn::Ended(Err(why));
            }
        };
        let pid = process.id();
        self.board.update(&self.gpu, |status| status.pid = pid);
        info!(gpu = self.gpu, pid, "pod-manager started");
        let turn = tokio::select! {
            ended = process.wait() => Turn::Ended(ended),
            () = self.keep_told() => Turn::Unresponsive,
            () = stop.cancelled() => Turn::Stopped,
        };
        match &turn {
            Turn::Ended(Ok(status)) => warn!(gpu = self.gpu, pid, %status, "the pod-manager ended"),
            Turn::Ended(Err(why)) => warn!(gpu = self.gpu, pid, %why, "the pod-manager cannot be waited for"),
            Turn::Unresponsive => {
                warn!(gpu = self.gpu, pid, "the pod-manager runs but does not answer; it is killed");
                if let Err(why) = process.kill().await {
                    warn!(gpu = self.gpu, pid, %why, "cannot kill it");
                }
            }
            Turn::Stopped => {
                if let Err(why) = child::end(&self.gpu, &mut process).await {
                    warn!(gpu = self.gpu, pid, %why, "cannot end the pod-manager");
                }
            }
        }
        // Before another manager makes controls of its own.
        if let Some(custody) = custody {
            custody.settled(&self.gpu).await;
        }
        turn
    }

    /// Somebody who starts again whom the next manager leaves stopped, and the manager's end of the socket to him.
    fn custody(&self) -> (Option<Custody>, Option<OwnedFd>) {
        match Custody::start(&self.gpu, self.settings.launch.simulated) {
            Ok((custody, socket)) => (Some(custody), Some(socket)),
            Err(why) => {
                warn!(gpu = self.gpu, %why, "whom the pod-manager leaves stopped has to help himself");
                (None, None)
            }
        }
    }

    /// Gives the manager its clients now and at each change. Returns only if it has not answered for too long.
    async fn keep_told(&mut self) {
        let socket = self.settings.launch.control(&self.gpu);
        let mut told: Option<Vec<Client>> = None;
        let mut heard = Instant::now();
        let mut backoff = Backoff::new(self.settings.push_first, self.settings.push_most);
        loop {
            let wanted = self.wanted();
            let outcome = match wanted {
                Some(clients) if told.as_ref() != Some(&clients) => {
                    let outcome = self.push(&socket, clients.clone()).await;
                    if outcome.is_ok() {
                        told = Some(clients);
                    }
                    outcome
                }
                // Nothing to tell: hear whether it still answers.
                _ => control::snapshot(&socket, self.settings.answer_within).await.map(drop),
            };
            let pause = match outcome {
                Ok(()) => {
                    heard = Instant::now();
                    backoff.reset();
                    self.settings.look_every
                }
                Err(why) => {
                    if matches!(why, ControlError::Refused(_) | ControlError::Ours { .. }) {
                        heard = Instant::now();
                    }
                    if heard.elapsed() >= self.settings.unresponsive_after {
                        return;
                    }
                    backoff.delay()
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                // Without a sender there is nothing new to come, but the manager must still be looked after.
                Ok(()) = self.sets.changed() => {}
            }
        }
    }

    /// The clients that the manager is to have; `None` while nobody knows.
    fn wanted(&mut self) -> Option<Vec<Client>> {
        let sets = self.sets.borrow_and_update();
        sets.as_ref().map(|sets| sets.get(&self.gpu).cloned().unwrap_or_default())
    }

    async fn push(&mut self, socket: &Path, clients: Vec<Client>) -> Result<(), ControlError> {
        // A new number for each attempt: one that was lost on the way back may have been taken.
        self.generation += 1;
        let (generation, count) = (self.generation, clients.len());
        let agent_instance = self.settings.instance.clone();
        let request = SetClientsRequest { generation, agent_instance, clients };
        let outcome = control::set_clients(socket, request, self.settings.answer_within).await;
        match &outcome {
            Ok(in_force) => {
                info!(gpu = self.gpu, generation, clients = count, "the pod-manager has its clients");
                self.board.update(&self.gpu, |status| {
                    status.state = State::Serving;
                    status.generation = Some(*in_force);
                });
            }
            Err(why @ ControlError::Refused(_)) => {
                warn!(gpu = self.gpu, generation, clients = count, %why, "the pod-manager does not take its clients");
                self.board.update(&self.gpu, |status| status.state = State::Outdated);
            }
            // A process that has just been started is not there yet: no news.
            Err(why) => tracing::debug!(gpu = self.gpu, generation, %why, "clients not handed over yet"),
        }
        outcome.map(drop)
    }
}

impl Turn {
    const fn is_stopped(&self) -> bool {
        matches!(self, Self::Stopped)
    }
}

/// Shorter than a human notices: a manager opens its socket within milliseconds of its start.
pub(crate) const PUSH_FIRST: Duration = Duration::from_millis(10);
