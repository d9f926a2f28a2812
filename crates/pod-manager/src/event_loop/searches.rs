//! The results of searches become events of processes.

use super::EventLoop;
use crate::announcement::Descriptors;
use crate::processes::{Endpoint, Event};
use crate::unhooked::is_named;
use crate::unhooked::scanning::{Candidate, ControlDescriptor, DriverLocks, Obstacle, ScanResult};
use sluice_comm::attach::ContextHandles;
use sluice_core::ProcessKey;
use sluice_core::processes::{Announcement, Inspected};

impl EventLoop {
    /// Applies the result of a search.
    pub(super) fn search_ended(&mut self, result: ScanResult) {
        self.unhooked.search_ended(self.io.now());
        // Loading may have ended since the last search. What follows from this one is decided by what is so now.
        self.processes.locks_ready = self.unhooked.locks.as_ref().is_some_and(DriverLocks::are_ready);
        if let Some(candidates) = &result.candidates {
            self.processes.candidates_listed(candidates);
        }
        for key in result.other_page {
            let pages = self.processes.get_by_key(key).and_then(|process| process.endpoint.pages.as_ref());
            if let Some(page) = pages.and_then(|pages| pages.grant_mapping()) {
                self.apply(Event::MapsOtherPage(key, page));
            }
        }
        for (candidate, result) in result.attached {
            let found = self.announcement_of(result).map(|announcement| announcement.contexts);
            self.load_locks_for(found.as_ref().err());
            let (key, has_unannounced) = (candidate.key, self.has_unannounced(candidate.key));
            self.apply(Event::InspectedAttached { key, found, has_unannounced });
        }
        for (candidate, result) in result.inspected {
            self.inspected(candidate, result);
        }
    }

    fn inspected(&mut self, candidate: Candidate, result: Result<Vec<ControlDescriptor>, Obstacle>) {
        let found = self.announcement_of(result);
        self.load_locks_for(found.as_ref().err());
        let Candidate { key, command, pod, pidfd, .. } = candidate;
        let known = self.processes.get_by_key(key).map(|process| process.client);
        let named = known.filter(|client| is_named(*client, &self.clients));
        let Some(client) = self.clients.find_by_pod(&pod.uid).or(named) else { return };
        let label = format!("pid {} ({command:?}), without the hook", key.0);
        let endpoint = Endpoint::new(label, pod.container, Some(pidfd));
        let has_unannounced = self.has_unannounced(key);
        let inspected = Inspected { key, client, command, found, endpoint, has_unannounced };
        self.apply(Event::Inspected(inspected));
    }

    /// Has the driver's lock loaded if a process cannot be controlled otherwise. Loading initialises each GPU, so it waits for the need.
    fn load_locks_for(&mut self, obstacle: Option<&Obstacle>) {
        if obstacle.is_some_and(|obstacle| obstacle.kind.can_be_locked()) {
            self.load_locks();
        }
    }

    /// Has the driver's lock loaded unless that has begun, and notes whether it can be used.
    pub(super) fn load_locks(&mut self) {
        self.processes.locks_ready = self.unhooked.locks.as_ref().is_some_and(DriverLocks::load);
    }

    /// Whether the hook of a process reports that it has groups which are not announced.
    fn has_unannounced(&self, key: ProcessKey) -> bool {
        self.processes.get_by_key(key).is_some_and(|process| process.endpoint.has_unannounced_groups())
    }

    /// What a search has found, in the form of an announcement.
    fn announcement_of(
        &self,
        found: Result<Vec<ControlDescriptor>, Obstacle>,
    ) -> Result<Announcement<Descriptors>, Obstacle> {
        let (mut contexts, mut descriptors) = (Vec::new(), Vec::new());
        for (index, found) in (0..).zip(found?) {
            let named = |context| ContextHandles { descriptor: index, ..context };
            contexts.extend(found.contexts.into_iter().map(named));
            descriptors.push(found.descriptor);
        }
        Ok(Announcement { contexts, descriptors: Descriptors::new(descriptors, &self.io.closer) })
    }
}
