//! The stream of a process on the GPU: commands in order.

use super::programs::Signal;
use std::collections::VecDeque;

#[derive(Clone, Copy, Debug)]
pub(super) enum Command {
    /// A kernel that still has to run for this long, once there is the signal that it polls for.
    Kernel { left_ns: u64, polls: Option<Signal> },
    /// It waits for a value in memory. `is_found`: by its rules, the hook can tell it from a running kernel.
    Wait { signal: Signal, is_found: bool },
    /// It writes that the kernel of an item has run.
    Signal(usize),
}

/// How many times the kernel of each item of a client has run.
#[derive(Clone, Debug)]
pub(super) struct Signals(Vec<u64>);

impl Signals {
    pub(super) fn none(items: usize) -> Self {
        Self(vec![0; items])
    }

    pub(super) fn has(&self, signal: Signal) -> bool {
        self.0[signal.item] >= signal.times
    }
}

/// What the command at the head of a stream does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Head {
    Nothing,
    /// A kernel that runs.
    Runs,
    /// A kernel that polls a value in memory.
    Polls,
    /// A command that waits. `is_found`: the hook can tell it from a running kernel.
    Waits {
        is_found: bool,
    },
}

#[derive(Clone, Debug, Default)]
pub(super) struct Stream {
    commands: VecDeque<Command>,
    /// Commands submitted so far, and those of them up to the last kernel.
    pub(super) submitted: u64,
    pub(super) submitted_to_kernel: u64,
}

impl Stream {
    pub(super) fn submit(&mut self, command: Command) {
        self.submitted += 1;
        if matches!(command, Command::Kernel { .. }) {
            self.submitted_to_kernel = self.submitted;
        }
        self.commands.push_back(command);
    }

    /// Commands that have ended.
    pub(super) fn ended(&self) -> u64 {
        self.submitted - self.commands.len() as u64
    }

    pub(super) fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    pub(super) fn has_kernel(&self) -> bool {
        self.ended() < self.submitted_to_kernel
    }

    pub(super) fn head(&self, signals: &Signals) -> Head {
        match self.commands.front() {
            None | Some(Command::Signal(_)) => Head::Nothing,
            Some(Command::Kernel { polls, .. }) => {
                if polls.is_none_or(|signal| signals.has(signal)) {
                    Head::Runs
                } else {
                    Head::Polls
                }
            }
            // The hook does not find it once a kernel is behind it.
            Some(Command::Wait { is_found, .. }) => Head::Waits { is_found: *is_found && !self.has_kernel() },
        }
    }

    /// How long the kernel at the head still has to run.
    pub(super) fn left_ns(&self, signals: &Signals) -> Option<u64> {
        match self.commands.front() {
            Some(Command::Kernel { left_ns, .. }) if self.head(signals) == Head::Runs => Some(*left_ns),
            _ => None,
        }
    }

    /// The kernel at the head has run for `ns`.
    pub(super) fn run(&mut self, ns: u64) {
        if let Some(Command::Kernel { left_ns, .. }) = self.commands.front_mut() {
            *left_ns = left_ns.saturating_sub(ns);
        }
    }

    /// Ends all commands at the head that can end now. Returns whether there was one.
    pub(super) fn end_commands(&mut self, signals: &mut Signals) -> bool {
        let before = self.commands.len();
        while let Some(command) = self.commands.front() {
            match command {
                Command::Kernel { left_ns: 0, .. } => {}
                Command::Wait { signal, .. } if signals.has(*signal) => {}
                Command::Signal(item) => signals.0[*item] += 1,
                Command::Kernel { .. } | Command::Wait { .. } => break,
            }
            self.commands.pop_front();
        }
        self.commands.len() < before
    }
}
