//! What a manager has deposited: copies of control descriptors, the channel groups behind them, and their owners.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use sluice_comm::attach::ContextHandles;
use sluice_comm::escrow::{DESCRIPTORS_PER_MESSAGE, EscrowMessage};
use sluice_core::channel_groups::{ControlOp, KnownSetting, ReleaseSequence};
use sluice_nvrm::Controls;

use super::BackgroundCloser;
use super::owner::{self, Owner};

/// Limits on what is kept for one manager. Processes beyond them rely on their own hooks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Capacity {
    /// Control descriptors; each takes two of the agent's descriptors.
    descriptors: usize,
    /// Control descriptors of one owner: twice the groups that a manager controls of one pod, because new ones arrive
    /// before old ones are closed.
    per_owner: usize,
    /// Values that are being closed.
    being_closed: usize,
}

impl Default for Capacity {
    fn default() -> Self {
        Self { descriptors: 1024, per_owner: 128, being_closed: 1024 }
    }
}

/// A copy of a control descriptor. It is closed when its process has ended, because an open copy keeps the GPU memory
/// of an ended process allocated.
struct EscrowedDescriptor {
    controls: Controls,
    process: OwnedFd,
    owner: Owner,
}

struct EscrowedGroup {
    descriptor: u64,
    handles: ContextHandles,
}

/// All deposits of one manager.
pub(super) struct EscrowStore {
    simulated: bool,
    descriptors: HashMap<u64, EscrowedDescriptor>,
    groups: HashMap<u64, EscrowedGroup>,
    closer: BackgroundCloser,
    capacity: Capacity,
    owner_of: OwnerOf,
}

/// Finds the owner of a process; `None` if the process has ended.
type OwnerOf = fn(BorrowedFd<'_>) -> Option<Owner>;

/// What became of the channel groups of an ended manager.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReleaseCounts {
    /// Groups that are enabled and have the driver's default time slice.
    pub(super) released: usize,
    /// Groups that the driver refused to change, or not in time.
    pub(super) failed: usize,
}

impl EscrowStore {
    /// An empty store. Sockets of a simulator are accepted as control descriptors only if `simulated`.
    pub(super) fn new(simulated: bool, closer: BackgroundCloser) -> Self {
        let (capacity, owner_of) = (Capacity::default(), owner::of);
        Self { simulated, descriptors: HashMap::new(), groups: HashMap::new(), closer, capacity, owner_of }
    }

    /// Applies a message and takes its descriptors.
    ///
    /// # Errors
    /// Why the deposit is refused. Descriptors that are not kept are closed.
    pub(super) fn accept(&mut self, packet: &[u8], mut descriptors: Vec<OwnedFd>) -> Result<(), String> {
        let outcome = self.apply(packet, &mut descriptors);
        if !descriptors.is_empty() {
            self.closer.close(descriptors);
        }
        outcome
    }

    /// Descriptors that are not kept remain in `descriptors`.
    fn apply(&mut self, packet: &[u8], descriptors: &mut Vec<OwnedFd>) -> Result<(), String> {
        match EscrowMessage::decode(packet).map_err(|why| why.to_string())? {
            EscrowMessage::Descriptor(line) => {
                let [_, process] = descriptors.as_slice() else {
                    let found = descriptors.len();
                    return Err(format!(
                        "a control descriptor came with {found} descriptors, expected {DESCRIPTORS_PER_MESSAGE}"
                    ));
                };
                // A process that has ended needs no help.
                let Some(owner) = (self.owner_of)(process.as_fd()) else { return Ok(()) };
                self.close(line);
                self.make_space(&owner)?;
                let (controls, process) = (descriptors.swap_remove(0), descriptors.swap_remove(0));
                match Controls::from_descriptor(controls, self.simulated) {
                    Ok(controls) => {
                        drop(self.descriptors.insert(line, EscrowedDescriptor { controls, process, owner }))
                    }
                    Err(refused) => {
                        let why = refused.to_string();
                        descriptors.extend([refused.fd, process]);
                        return Err(why);
                    }
                }
            }
            EscrowMessage::Group { group, descriptor: line, handles } => {
                if self.descriptors.contains_key(&line) {
                    self.groups.insert(group, EscrowedGroup { descriptor: line, handles });
                }
            }
            EscrowMessage::Forget(group) => drop(self.groups.remove(&group)),
            EscrowMessage::Close(line) => self.close(line),
        }
        Ok(())
    }

    /// Makes space for one more descriptor of this owner. If the store is full, the owner with the most descriptors
    /// loses its newest one, provided that the new owner has fewer.
    fn make_space(&mut self, owner: &Owner) -> Result<(), String> {
        let being_closed = self.closer.pending();
        if being_closed >= self.capacity.being_closed {
            return Err(format!("{being_closed} older descriptors are still being closed"));
        }
        let mut counts: HashMap<&Owner, usize> = HashMap::new();
        for descriptor in self.descriptors.values() {
            *counts.entry(&descriptor.owner).or_default() += 1;
        }
        let own = counts.get(owner).copied().unwrap_or(0);
        if own >= self.capacity.per_owner {
            return Err(format!("{own} control descriptors of {owner:?} are held already"));
        }
        if self.descriptors.len() < self.capacity.descriptors {
            return Ok(());
        }
        let largest = counts.into_iter().max_by_key(|(_, count)| *count).filter(|(_, most)| *most > own + 1);
        let Some((largest, _)) = largest else {
            return Err(format!("{} control descriptors are held already", self.descriptors.len()));
        };
        let candidates = self
            .descriptors
            .iter()
            .filter(|(_, descriptor)| descriptor.owner == *largest)
            .map(|(number, _)| *number);
        if let Some(newest) = candidates.max() {
            self.close(newest);
        }
        Ok(())
    }

    pub(super) fn processes(&self) -> impl Iterator<Item = (u64, BorrowedFd<'_>)> {
        self.descriptors.iter().map(|(number, descriptor)| (*number, descriptor.process.as_fd()))
    }

    /// Closes a descriptor and drops the groups behind it.
    pub(super) fn close(&mut self, descriptor: u64) {
        if let Some(gone) = self.descriptors.remove(&descriptor) {
            self.groups.retain(|_, group| group.descriptor != descriptor);
            self.closer.close(gone);
        }
    }

    /// Gives every group the driver's default time slice and enables it, in the order of [`ReleaseSequence`]. Starts no
    /// control after `until`.
    pub(super) fn release_all(&self, until: Instant) -> ReleaseCounts {
        let in_time = || Instant::now() < until;
        let mut all = Vec::new();
        for group in self.groups.values() {
            let Some(descriptor) = self.descriptors.get(&group.descriptor) else { continue };
            let (controls, handles) = (&descriptor.controls, &group.handles);
            let slice = in_time().then(|| controls.timeslice(handles.client, handles.channel_group));
            if !matches!(&slice, Some(Err(why)) if why.is_gone()) {
                let slice_us = slice.and_then(Result::ok);
                all.push(((controls, handles), KnownSetting { enabled: None, slice_us }));
            }
        }
        let count = all.len();
        let mut release = ReleaseSequence::new(all);
        while in_time()
            && let Some(((controls, group), op)) = release.begin()
        {
            let outcome = match op {
                ControlOp::SetSlice(us) => controls.set_timeslice(group.client, group.channel_group, us),
                ControlOp::Enable => controls.enable(group.client, group.subdevice, &group.channels),
                ControlOp::Disable => controls.disable(group.client, group.subdevice, &group.channels),
            };
            release.done(outcome.is_ok());
        }
        let released = release.free().count();
        ReleaseCounts { released, failed: count - released }
    }
}

#[cfg(test)]
mod tests;
