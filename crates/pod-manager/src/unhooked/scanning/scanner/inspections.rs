//! The inspections of one scan: which candidates have their turn, and the time between two of them.

use super::{ScanRequest, Scanner};
use crate::unhooked::scanning::turns::in_turn;
use crate::unhooked::scanning::{Candidate, ControlDescriptor, Inspection, ProcessKey, Walk};
use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

/// Time between two inspections: each query takes a lock of the driver, for which the controls and the programs wait.
const BETWEEN_INSPECTIONS: Duration = Duration::from_millis(10);
/// Time of one search for inspections. The others wait for the next search.
const INSPECTED_WITHIN: Duration = Duration::from_millis(100);
/// The look for a hook in a list of mappings counts as so many driver queries: about a millisecond.
const HOOK_QUERIES: u64 = 1 << 10;

impl Scanner {
    /// Inspects the candidates that are due or requested, one of each pod in turn. Candidates of a pod that has used up its queries wait for the
    /// next complete scan, and those for which no time is left for the next one.
    pub(super) fn inspect_due<'a>(
        &mut self,
        candidates: impl Iterator<Item = &'a Candidate>,
        request: &ScanRequest,
    ) -> HashMap<ProcessKey, Vec<ControlDescriptor>> {
        let now = request.now;
        let mut due = Vec::new();
        for candidate in candidates {
            let (key, is_attached) = (candidate.key, request.attached.contains(&candidate.key));
            let pod = candidate.pod.uid.as_str();
            let since = self.schedule.due_since((key, pod), &candidate.descriptors, is_attached, now);
            let since = since.or_else(|| self.requested.get(&key).copied());
            due.extend(since.map(|since| ((since, key), pod, candidate)));
        }
        let mut controllable = HashMap::new();
        let mut begun: Option<Instant> = None;
        for candidate in in_turn(due) {
            let is_requested = self.requested.contains_key(&candidate.key);
            let is_settled = self.schedule.is_settled(candidate.key) && !is_requested;
            let is_late = begun.is_some_and(|begun| begun.elapsed() >= INSPECTED_WITHIN);
            if is_late || is_settled && !self.settled.allows(&candidate.pod.uid, now) {
                // It stays due, or requested.
                continue;
            }
            self.requested.remove(&candidate.key);
            if !self.limits.allows(&candidate.pod.uid, now) {
                self.schedule.defer(candidate.key, now);
                continue;
            }
            if self.schedule.needs_hook(candidate.key) && self.has_hook(candidate, now) {
                self.schedule.wait_for_attach(candidate.key);
                continue;
            }
            if begun.is_some() {
                self.pause();
            }
            begun.get_or_insert_with(Instant::now);
            let is_attached = request.attached.contains(&candidate.key);
            let walk = if is_attached { Walk::Short } else { Walk::Complete };
            let descriptors = self.inspect(candidate, walk, is_settled, now);
            controllable.extend(descriptors.map(|descriptors| (candidate.key, descriptors)));
        }
        controllable
    }

    /// Whether a process has mapped a hook, so that it may attach by itself.
    fn has_hook(&mut self, candidate: &Candidate, now: u64) -> bool {
        self.limits.charge(&candidate.pod.uid, HOOK_QUERIES, now);
        self.discovery.maps_hook(candidate.key)
    }

    fn inspect(
        &mut self,
        candidate: &Candidate,
        walk: Walk,
        is_settled: bool,
        now: u64,
    ) -> Option<Vec<ControlDescriptor>> {
        let Inspection { result, queries } = self.discovery.inspect(candidate, walk);
        if is_settled {
            let cost = u64::from(queries) * u64::from(self.discovery.query_us());
            self.settled.charge(&candidate.pod.uid, cost, now);
        }
        self.limits.charge(&candidate.pod.uid, queries.into(), now);
        // The copies of an ended process's descriptors may be the last ones, and keep its memory.
        if sluice_sys::pidfd::has_ended(candidate.pidfd.as_fd()) {
            return None;
        }
        let (descriptors, obstacle) = match result {
            Ok(descriptors) => (Some(descriptors), None),
            Err(obstacle) => (None, Some(obstacle)),
        };
        let groups = descriptors.iter().flatten().flat_map(ControlDescriptor::handles).collect();
        self.schedule.record(candidate.key, groups, obstacle, now);
        descriptors
    }

    /// Waits until the next inspection may begin. Ownership checks that were requested meanwhile are made: a process that waits for its check
    /// is scheduled by token.
    fn pause(&mut self) {
        let end = Instant::now() + BETWEEN_INSPECTIONS;
        while let Some(left) = end.checked_duration_since(Instant::now()) {
            match self.tasks.recv_timeout(left) {
                Ok(task) => {
                    self.accept(task);
                    self.check_ownership();
                }
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(left),
            }
        }
    }
}
