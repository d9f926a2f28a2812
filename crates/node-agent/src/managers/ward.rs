//! What a manager has deposited: ways to the driver, the channel groups behind them, and whose they are.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use sluice_comm::attach::ContextHandles;
use sluice_comm::custody::{Deposit, LINE_DESCRIPTORS};
use sluice_core::steering::DEFAULT_US;
use sluice_nvrm::Controls;

/// Lines kept of one manager; each costs two of the agent's descriptors. Processes beyond have their own hooks only.
const MOST_LINES: usize = 1024;

/// A way to the driver. It is closed when its process has ended: a descriptor that somebody holds keeps the GPU memory of
/// a process that is no more.
struct Line {
    controls: Controls,
    process: OwnedFd,
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
}

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
    pub(super) fn new(simulated: bool) -> Self {
        Self { simulated, lines: HashMap::new(), groups: HashMap::new() }
    }

    /// Takes a packet and what came beside it.
    ///
    /// # Errors
    /// Why it is not kept. Descriptors that are left over are closed here: they are duplicates.
    pub(super) fn take(&mut self, packet: &[u8], descriptors: Vec<OwnedFd>) -> Result<(), String> {
        match Deposit::decode(packet).map_err(|why| why.to_string())? {
            Deposit::Line(line) => {
                let found = descriptors.len();
                let [controls, process] =
                    <[OwnedFd; LINE_DESCRIPTORS]>::try_from(descriptors).map_err(|_| {
                        format!("a line came with {found} descriptors, expected {LINE_DESCRIPTORS}")
                    })?;
                if self.lines.len() >= MOST_LINES {
                    return Err(format!("{MOST_LINES} ways to the driver are kept already"));
                }
                let controls = Controls::over(controls, self.simulated).map_err(|why| why.to_string())?;
                self.lines.insert(line, Line { controls, process });
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

    /// The processes of the lines.
    pub(super) fn processes(&self) -> impl Iterator<Item = (u64, BorrowedFd<'_>)> {
        self.lines.iter().map(|(number, line)| (*number, line.process.as_fd()))
    }

    /// Lets go of a line and of the groups behind it.
    pub(super) fn close(&mut self, line: u64) {
        self.groups.retain(|_, group| group.line != line);
        self.lines.remove(&line);
    }

    /// Gives all groups the driver's own slice, then lets them run: two that run with tiny slices keep each other from
    /// working. Makes no control after `until`.
    pub(super) fn restore(&self, until: Instant) -> Restored {
        let mut free: Vec<(&Controls, &ContextHandles)> = self
            .groups
            .values()
            .filter_map(|group| Some((&self.lines.get(&group.line)?.controls, &group.handles)))
            .collect();
        let all = free.len();
        free.retain(|(controls, group)| {
            Instant::now() < until
                && controls.set_timeslice(group.client, group.channel_group, DEFAULT_US).is_ok()
        });
        free.retain(|(controls, group)| {
            Instant::now() < until && controls.enable(group.client, group.subdevice, &group.channels).is_ok()
        });
        Restored { free: free.len(), not: all - free.len() }
    }
}
