//! Where programs without the hook are looked for, what a process announces has to be its own: their groups are known by handles that
//! anybody can name.

use super::DataPlane;
use super::announcement::{Announcement, PutOff, Until, handles_of};
use crate::adopt::{Claim, Obstacle, Proof, Why};
use crate::definition::Who;
use sluice_core::ProcessId;
use tracing::warn;

impl DataPlane {
    /// Whether an announcement is looked at from outside before it counts. What the process has already was.
    pub(super) fn has_to_be_proven(&self, id: ProcessId, announcement: &Announcement) -> bool {
        let is_new = |context| self.helm.unchanged(id, context).is_none();
        self.adoption.looks() && self.pod_of(id).is_some() && announcement.contexts.iter().any(is_new)
    }

    /// Puts an announcement off until it is proven.
    pub(super) fn have_proven(&mut self, id: ProcessId, announcement: Announcement) {
        match self.claim(id, &announcement) {
            Ok(claim) => {
                self.take(id, Announcement::nothing(&self.closer));
                let serial = self.adoption.prove(id, claim);
                self.helm.put_off.insert(id, PutOff { announcement, until: Until::Proven(serial) });
            }
            Err(why) => self.refuse_claim(id, announcement, &why),
        }
    }

    fn claim(&self, id: ProcessId, announcement: &Announcement) -> Result<Claim, String> {
        let process = self.processes.get(&id).ok_or("there is no such process")?;
        let key = process.key.ok_or("it cannot be seen from here")?;
        let pidfd = process.pidfd.as_ref().ok_or("it cannot be seen from here")?;
        let pod = self.pod_of(id).cloned().unwrap_or_default();
        let whose = (key, pod, std::os::fd::AsFd::as_fd(pidfd));
        let claim = Claim::new(whose, &announcement.contexts, &announcement.descriptors, &self.closer);
        claim.map_err(|why| why.to_string())
    }

    /// Whether a process has what it has announced.
    pub(super) fn proven(&mut self, proof: Proof) {
        let Proof { process: id, serial, holds } = proof;
        // It has announced something else since, or has gone.
        if self.helm.put_off.get(&id).is_none_or(|put_off| put_off.until != Until::Proven(serial)) {
            return;
        }
        let Some(PutOff { announcement, .. }) = self.helm.put_off.remove(&id) else { return };
        match holds {
            Ok(true) => self.take(id, announcement),
            Ok(false) => self.refuse_claim(id, announcement, "they are not its own"),
            // Who cannot be looked into is believed what does nobody any harm.
            Err(Obstacle { why: Why::NotPermitted, .. }) if !self.is_adopted(id, &announcement) => {
                self.take(id, announcement);
            }
            Err(obstacle) => self.refuse_claim(id, announcement, &obstacle.text),
        }
    }

    /// Whether any of these groups is an adopted process's.
    fn is_adopted(&self, id: ProcessId, announcement: &Announcement) -> bool {
        let adopted = |owner| self.processes.get(&owner).is_some_and(|process| process.adopted);
        let announced = |handles| announcement.contexts.iter().any(|context| handles_of(context) == handles);
        let others = self.helm.groups.values().filter(|owned| owned.process != id);
        others.filter(|owned| adopted(owned.process)).any(|owned| announced(handles_of(&owned.context)))
    }

    fn refuse_claim(&mut self, id: ProcessId, announcement: Announcement, why: &str) {
        self.meters.steering.announcements_refused.inc();
        let peer = self.processes.get(&id).map_or("", |process| &process.label);
        if self.throttle.pass("claim", self.clock.now_ns()).is_some() {
            warn!(
                peer,
                "announces contexts that cannot be shown to be its own, and takes turns by token: {why}"
            );
        }
        self.take(id, announcement.without_contexts());
    }

    /// The pod that a process is in.
    fn pod_of(&self, id: ProcessId) -> Option<&String> {
        let client = self.clients.get(self.processes.get(&id)?.client)?;
        match &client.definition.who {
            Who::Pod { uid, .. } => Some(uid),
            Who::Named(_) => None,
        }
    }
}
