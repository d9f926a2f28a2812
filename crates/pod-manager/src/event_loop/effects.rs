//! Applies events to the table of processes, and carries out what follows from them.

use super::EventLoop;
use crate::announcement::Descriptors;
use crate::channel_groups::{ControlFailure, ControlReport, ControlRequest, Opened};
use crate::grants::{Answer, UNLIMITED_MS, answer_all};
use crate::metrics::SwitchLevel;
use crate::party::Party;
use crate::processes::{Effect, Event, enforcement_level, label};
use crate::stopped_threads::StoppedThreads;
use crate::unhooked::scanning::{NotChecked, OwnershipCheck};
use sluice_core::ProcessId;
use sluice_core::channel_groups::{ControlOp, ControlOutcome};
use sluice_core::processes::{Announcement, Note, Origin, Violation};
use tracing::{debug, info, warn};

impl EventLoop {
    /// Applies an event to the table of processes, and carries out its effects in their order.
    pub(super) fn apply(&mut self, event: Event) {
        let now = self.io.now();
        for effect in self.processes.apply(event, &mut self.grants.ledger, now) {
            self.carry_out(effect);
        }
    }

    /// Applies what is due to the table of processes: one process at a time, as what follows for one changes what there is for the next.
    pub(super) fn apply_due(&mut self) {
        self.apply(Event::TimePassed);
        for id in self.processes.due(self.io.now()) {
            self.apply(Event::Due(id));
        }
        self.apply(Event::DueEnded);
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Open(id, origin, announcement) => self.open_descriptors(id, origin, announcement),
            Effect::Prove(id, serial, announcement) => {
                if let Err(why) = self.request_proof(id, serial, &announcement) {
                    let is_lack_of_room = matches!(why, NotChecked::Manager(_));
                    self.apply(Event::NotChecked { id, serial, why: why.to_string(), is_lack_of_room });
                }
            }
            Effect::Control(group, descriptor, context) => {
                self.group_controls.request(ControlRequest::Add(group, descriptor, context));
            }
            Effect::Seal(descriptor) => self.group_controls.request(ControlRequest::Close(descriptor)),
            Effect::Forget(group) => self.group_controls.request(ControlRequest::Forget(group)),
            Effect::SchedulingChanged(id) => self.show_scheduling(id),
            Effect::Added(id) => self.unhooked_added(id),
            Effect::TokenChannelClosed(id) => {
                if let Some(process) = self.processes.get_mut(id) {
                    process.endpoint.close_token_channel();
                }
            }
            Effect::Kept(id) => {
                if let Some(process) = self.processes.get_mut(id) {
                    process.endpoint.ignore_wakeups(&self.io);
                }
                self.retire_pages(id);
            }
            Effect::Close(connection) => self.drop_connection(connection),
            Effect::Disconnected(id) => self.forget_process(id, "disconnected"),
            Effect::DepartureSettled(id) => self.settle_departure(id),
            Effect::LoadLocks => self.load_locks(),
            Effect::Search => self.unhooked.request_search(self.io.now()),
            Effect::StopThreads(id) => self.stop_threads(id),
            Effect::ReleaseThreads(id) => {
                if let Some(process) = self.processes.get_mut(id) {
                    process.endpoint.stopped_threads = None;
                }
            }
            Effect::Violation(violation) => self.record_violations([violation]),
            Effect::Report(id, note) => self.note(id, note),
            Effect::NotScheduled { client, pid, command, obstacle } => {
                if self.io.may_log("unscheduled", Party::Client(client)).is_some() {
                    let (client, reason) = (self.clients.name(client), obstacle.kind.label());
                    warn!(
                        client,
                        pid,
                        command,
                        reason,
                        "process runs without the hook and is not scheduled: {obstacle}"
                    );
                }
            }
        }
    }

    pub(super) fn record_violations(&mut self, violations: impl IntoIterator<Item = Violation>) {
        for violation in violations {
            self.violations.record(violation, &mut self.clients, &mut self.io);
        }
    }

    /// Opens the control descriptors of an announcement, or the driver's lock in their place.
    fn open_descriptors(&mut self, id: ProcessId, origin: Origin, announcement: Announcement<Descriptors>) {
        let process = self.processes.get(id);
        let pidfd = process.and_then(|process| process.endpoint.pidfd.as_ref());
        let opened = if let Origin::Lock { .. } = origin {
            let pidfd = pidfd.and_then(|pidfd| pidfd.try_clone().ok());
            let pid = process.and_then(|process| process.pid);
            let lock = self.unhooked.locks.as_ref().and_then(|locks| Some(locks.control_of(pid?, pidfd?)));
            let failure = lock.is_none().then(|| "the process is not visible from here".to_owned());
            let descriptors = lock.map(|lock| Some(self.group_controls.add(lock, None)));
            Opened { contexts: announcement.contexts, descriptors: Vec::from_iter(descriptors), failure }
        } else {
            self.group_controls.open(announcement, pidfd)
        };
        let Opened { contexts, descriptors, failure } = opened;
        debug!(process = ?id, groups = contexts.len(), ?origin, "control descriptors opened");
        self.apply(Event::Opened { id, origin, contexts, descriptors, failure });
    }

    fn request_proof(
        &self,
        id: ProcessId,
        serial: u64,
        announcement: &Announcement<Descriptors>,
    ) -> Result<(), NotChecked> {
        let missing = NotChecked::Announcement;
        let process = self.processes.get(id).ok_or(missing("there is no such process"))?;
        let visible = process.key.zip(process.endpoint.pidfd.as_ref());
        let (key, pidfd) = visible.ok_or(missing("the process is not visible from here"))?;
        let client = self.clients.get(process.client);
        let pod = client.and_then(|client| client.definition.key.pod_uid()).unwrap_or_default().to_owned();
        let check = OwnershipCheck::of(announcement, key, pod, pidfd, &self.io.closer)?;
        self.unhooked.check_ownership(id, serial, check, self.io.now());
        Ok(())
    }

    /// A process without the hook is in the table.
    fn unhooked_added(&mut self, id: ProcessId) {
        let client = self.clients.name_or_removed(self.processes.client_of(id));
        info!(client, peer = label(&self.processes, id), "process without the hook is scheduled");
        self.process_added(id);
    }

    fn stop_threads(&mut self, id: ProcessId) {
        let Some(process) = self.processes.get_mut(id) else { return };
        let begun = match process.pid.zip(process.endpoint.pidfd.as_ref()) {
            Some((pid, pidfd)) => pidfd
                .try_clone()
                .and_then(|pidfd| StoppedThreads::begin(id, pid, pidfd, self.stops.clone()))
                .map_err(|why| why.to_string()),
            None => Err("the process is not visible from here".to_owned()),
        };
        match begun {
            Ok(threads) => process.endpoint.stopped_threads = Some(threads),
            Err(why) => self.apply(Event::ThreadsStopped(id, Err(why))),
        }
    }

    /// Logs and counts something about a process.
    fn note(&mut self, id: ProcessId, note: Note) {
        let metrics = &self.io.metrics.channel_groups;
        let kind = match note {
            Note::TooManyAnnounced | Note::NoRoom => {
                metrics.announcements_refused.inc();
                "announcement"
            }
            Note::NotProven(_) => {
                metrics.announcements_refused.inc();
                "claim"
            }
            Note::BadDescriptor(_) => {
                metrics.descriptors_refused.inc();
                "descriptor"
            }
            Note::Outside(_) => "unannounced",
            Note::NotInspected(_) => "not_inspected",
            Note::Locked(_) => "locked",
            Note::ThreadsRun(_) | Note::StopEnded => "stop",
            Note::ProbationBegan => {
                metrics.given_up.inc();
                "probation"
            }
            Note::ProbationEnded => "probation",
        };
        let client = self.processes.client_of(id);
        let Some(dropped) = self.io.may_log(kind, client.into()) else { return };
        let (client, peer) = (self.clients.name_or_removed(client), label(&self.processes, id));
        match note {
            Note::Outside(_) | Note::StopEnded | Note::ProbationEnded => {
                info!(client, peer, dropped, "{note}")
            }
            Note::NotInspected(ref obstacle) | Note::Locked(ref obstacle) => {
                warn!(client, peer, reason = obstacle.kind.label(), dropped, "{note}");
            }
            _ => warn!(client, peer, dropped, "{note}"),
        }
    }

    /// A control has ended.
    pub(super) fn control_ended(&mut self, report: &ControlReport) {
        let ControlReport { control, result, took } = report;
        let outcome = match result {
            Ok(()) => ControlOutcome::Done,
            Err(ControlFailure::Gone) => ControlOutcome::Gone,
            Err(ControlFailure::Failed(..)) => ControlOutcome::Failed,
        };
        self.io.metrics.channel_groups.in_flight.set(0);
        self.io.metrics.channel_groups.count(control.op, outcome, *took);
        let times = &self.io.metrics.switch_times;
        match (control.op, outcome) {
            (ControlOp::Disable, _) => {
                self.io.metrics.preemptions.count_hardware(result.into());
                if outcome == ControlOutcome::Done {
                    times.preempted(SwitchLevel::Hardware, *took);
                }
            }
            (ControlOp::Enable, ControlOutcome::Done) => {
                times.hand_off_ends(self.io.now());
            }
            _ => {}
        }
        let client = self.processes.owner(control.group).and_then(|owner| self.processes.client_of(owner));
        self.trace_control(*control, outcome, *took, client);
        if let Err(ControlFailure::Failed(_, why)) = result
            && self.io.may_log("control", client.into()).is_some()
        {
            let client = self.clients.name_or_removed(client);
            warn!(client, op = ?control.op, "control failed: {why}");
        }
        self.apply(Event::ControlEnded(outcome));
    }

    /// Requests the next control, if there is one to make and none is in flight.
    pub(super) fn begin_control(&mut self) {
        let (scheduler, metrics) = (&mut self.processes.scheduler, &self.io.metrics.channel_groups);
        let forced = scheduler.forced_hand_offs();
        let now = self.io.now();
        if let Some(control) = scheduler.begin_control(now) {
            debug!(?control, "control requested");
            metrics.in_flight.set(1);
            if let Some(recording) = self.io.trace.recording() {
                recording.control_requested(now);
            }
            if control.op == ControlOp::Disable {
                self.io.metrics.switch_times.hand_off_begins(now);
            }
            self.group_controls.request(ControlRequest::Make(control));
        } else if metrics.in_flight.get() == 0 {
            self.io.metrics.switch_times.no_hand_off();
        }
        metrics.forced.inc_by(scheduler.forced_hand_offs() - forced);
    }

    /// Brings a process's page in line with how it is scheduled: a hardware-scheduled process holds an unlimited grant and never asks
    /// for one.
    fn show_scheduling(&mut self, id: ProcessId) {
        let is_hardware_scheduled = self.processes.is_hardware_scheduled(id);
        let Some(process) = self.processes.get_mut(id) else { return };
        let pages = process.endpoint.pages.as_mut();
        let shows_hardware_grant = pages.as_ref().is_some_and(|pages| pages.shows_hardware_grant);
        if shows_hardware_grant == is_hardware_scheduled {
            return;
        }
        if is_hardware_scheduled {
            if let Some(pages) = pages {
                pages.show_hardware_grant();
            }
            let answers = answer_all(id, UNLIMITED_MS, &mut self.processes);
            return self.send(answers);
        }
        process.endpoint.request_wakeups(None);
        if let Some(pages) = &mut process.endpoint.pages {
            pages.shows_hardware_grant = false;
            pages.grant().close();
        }
    }

    /// Sends answers; closes the connections on which that fails.
    pub(super) fn send(&mut self, answers: Vec<Answer>) {
        for Answer { connection, request, body } in answers {
            if let Err(reason) = self.connections.answer(connection, request, body) {
                self.close(connection, &reason);
            }
        }
    }

    /// Updates the gauges, which are about to be read.
    pub(super) fn refresh_gauges(&mut self) {
        let Self { clients, processes, grants, io, .. } = self;
        let now = io.now();
        grants.refresh_shares(clients, processes, &mut io.trace, now);
        clients.refresh_latencies(processes, &mut io.trace, now);
        clients.refresh_gauges(processes);
        let metrics = &io.metrics.channel_groups;
        let gauge = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        metrics.announcements_waiting.set(gauge(processes.postponed_announcements()));
        metrics.on_probation.set(gauge(processes.scheduler.on_probation()));
        metrics.default_slices.set(i64::from(processes.scheduler.default_slices()));
        metrics.set_levels(processes.iter().filter_map(|(id, _)| enforcement_level(processes, id)));
    }
}
