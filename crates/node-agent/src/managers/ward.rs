//! What a manager has deposited: ways to the driver, the channel groups behind them, and whose they are.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use sluice_comm::attach::ContextHandles;
use sluice_comm::custody::{Deposit, LINE_DESCRIPTORS};
use sluice_core::steering::{Known, Op, Release};
use sluice_nvrm::Controls;

use super::closer::Closer;
use super::owner::{self, Owner};

/// How much is kept of one manager. Processes beyond have their own hooks only.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    /// Lines; each costs two of the agent's descriptors.
    lines: usize,
    /// Lines of one pod: as many as the groups that a manager keeps of one, twice, since new ones come before old ones go.
    of_one: usize,
    /// Things that wait to be closed.
    to_close: usize,
}

impl Default for Room {
    fn default() -> Self {
        Self { lines: 1024, of_one: 128, to_close: 1024 }
    }
}

/// A way to the driver. It is closed when its process has ended: a descriptor that somebody holds keeps the GPU memory of
/// a process that is no more.
struct Line {
    controls: Controls,
    process: OwnedFd,
    owner: Owner,
}

struct Group {
    line: u64,
    handles: ContextHandles,
}

/// All that one manager has deposited.
pub(super) struct Ward {
    simulated: bool,
    lines: HashMap<u64, Line>,
    groups: HashMap<u64, Group>,
    closer: Closer,
    room: Room,
    owner_of: OwnerOf,
}

/// Says whose a process is; `None` if it has ended.
type OwnerOf = fn(BorrowedFd<'_>) -> Option<Owner>;

/// What became of the groups of a manager that is no more.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Restored {
    /// Groups that run with the driver's own slice.
    pub(super) free: usize,
    /// Groups that the driver did not let go of, or not in time.
    pub(super) not: usize,
}

impl Ward {
    /// Nothing is kept yet. A simulator's sockets are taken for ways to a driver only where `simulated`.
    pub(super) fn new(simulated: bool, closer: Closer) -> Self {
        let (room, owner_of) = (Room::default(), owner::of);
        Self { simulated, lines: HashMap::new(), groups: HashMap::new(), closer, room, owner_of }
    }

    /// Takes a packet and what came beside it.
    ///
    /// # Errors
    /// Why it is not kept. Descriptors that are left over are let go of.
    pub(super) fn take(&mut self, packet: &[u8], mut descriptors: Vec<OwnedFd>) -> Result<(), String> {
        let taken = self.sort(packet, &mut descriptors);
        if !descriptors.is_empty() {
            self.closer.close(descriptors);
        }
        taken
    }

    /// What is not taken stays among the descriptors.
    fn sort(&mut self, packet: &[u8], descriptors: &mut Vec<OwnedFd>) -> Result<(), String> {
        match Deposit::decode(packet).map_err(|why| why.to_string())? {
            Deposit::Line(line) => {
                let [_, process] = descriptors.as_slice() else {
                    let found = descriptors.len();
                    return Err(format!("a line came with {found} descriptors, expected {LINE_DESCRIPTORS}"));
                };
                // Nothing is left to help of a process that has ended.
                let Some(owner) = (self.owner_of)(process.as_fd()) else { return Ok(()) };
                self.close(line);
                self.make_room(&owner)?;
                let (controls, process) = (descriptors.swap_remove(0), descriptors.swap_remove(0));
                match Controls::over(controls, self.simulated) {
                    Ok(controls) => drop(self.lines.insert(line, Line { controls, process, owner })),
                    Err(refused) => {
                        let why = refused.to_string();
                        descriptors.extend([refused.fd, process]);
                        return Err(why);
                    }
                }
            }
            Deposit::Group { group, line, handles } => {
                if self.lines.contains_key(&line) {
                    self.groups.insert(group, Group { line, handles });
                }
            }
            Deposit::Forget(group) => drop(self.groups.remove(&group)),
            Deposit::Close(line) => self.close(line),
        }
        Ok(())
    }

    /// Lets one more line of this owner in. Where there is no room, who has most gives one up for who has less.
    fn make_room(&mut self, owner: &Owner) -> Result<(), String> {
        let to_close = self.closer.waiting();
        if to_close >= self.room.to_close {
            return Err(format!("{to_close} older ones are still being closed"));
        }
        let mut kept: HashMap<&Owner, usize> = HashMap::new();
        for line in self.lines.values() {
            *kept.entry(&line.owner).or_default() += 1;
        }
        let own = kept.get(owner).copied().unwrap_or(0);
        if own >= self.room.of_one {
            return Err(format!("{own} ways to the driver of {owner:?} are kept already"));
        }
        if self.lines.len() < self.room.lines {
            return Ok(());
        }
        let richest = kept.into_iter().max_by_key(|(_, lines)| *lines).filter(|(_, most)| *most > own + 1);
        let Some((richest, _)) = richest else {
            return Err(format!("{} ways to the driver are kept already", self.lines.len()));
        };
        let its = self.lines.iter().filter(|(_, line)| line.owner == *richest).map(|(number, _)| *number);
        if let Some(newest) = its.max() {
            self.close(newest);
        }
        Ok(())
    }

    /// The processes of the lines.
    pub(super) fn processes(&self) -> impl Iterator<Item = (u64, BorrowedFd<'_>)> {
        self.lines.iter().map(|(number, line)| (*number, line.process.as_fd()))
    }

    /// Lets go of a line and of the groups behind it.
    pub(super) fn close(&mut self, line: u64) {
        if let Some(gone) = self.lines.remove(&line) {
            self.groups.retain(|_, group| group.line != line);
            self.closer.close(gone);
        }
    }

    /// Gives all groups the driver's own slice and lets them run, in the order of [`Release`]. Makes no control after `until`.
    pub(super) fn restore(&self, until: Instant) -> Restored {
        let in_time = || Instant::now() < until;
        let mut all = Vec::new();
        for group in self.groups.values() {
            let Some(line) = self.lines.get(&group.line) else { continue };
            let (controls, handles) = (&line.controls, &group.handles);
            let slice = in_time().then(|| controls.timeslice(handles.client, handles.channel_group));
            if !matches!(&slice, Some(Err(why)) if why.is_gone()) {
                let slice_us = slice.and_then(Result::ok);
                all.push(((controls, handles), Known { enabled: None, slice_us }));
            }
        }
        let count = all.len();
        let mut release = Release::of(all);
        while in_time()
            && let Some(((controls, group), op)) = release.begin()
        {
            let made = match op {
                Op::SetSlice(us) => controls.set_timeslice(group.client, group.channel_group, us),
                Op::Start => controls.enable(group.client, group.subdevice, &group.channels),
                Op::Stop => controls.disable(group.client, group.subdevice, &group.channels),
            };
            release.done(made.is_ok());
        }
        let free = release.free().count();
        Restored { free, not: count - free }
    }
}

#[cfg(test)]
#[path = "ward_tests.rs"]
mod tests;
