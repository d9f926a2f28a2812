//! The thread that makes the controls: they take their time, and nobody else waits for them.
//!
//! It owns the ways to the driver and closes them. One order is out at a time: the data plane sends the next one when it
//! has heard of the last.

use super::{ChannelControl, ControlFailure, Custody, Spare};
use crate::closer::Closer;
use crate::control::{Control, Remote};
use sluice_comm::attach::ContextHandles;
use sluice_core::steering::{DEFAULT_US, GroupId, Known, Op, Release, TINY_US};
use std::collections::HashMap;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// One way to the driver, for all groups behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Line(pub(crate) u64);

/// What the thread is to do.
pub(crate) enum Order {
    /// Keep a way to the driver, for the groups that follow, and deposit a spare one.
    Open(Line, Box<dyn ChannelControl>, Option<Spare>),
    /// A group behind it. One that is known already is reached this way from now on.
    Add(GroupId, Line, ContextHandles),
    /// No more groups follow: closes the way unless there is one behind it.
    Close(Line),
    /// Make a control and report.
    Make(sluice_core::steering::Control),
    /// A group is not controlled any more; with the last one behind it the way is closed.
    Forget(GroupId),
    /// Leave every group as the driver made it, as far as time allows, say so and end.
    Restore(Duration, Sender<()>),
}

/// What became of a control.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) control: sluice_core::steering::Control,
    pub(crate) result: Result<(), ControlFailure>,
    pub(crate) took: Duration,
}

/// The sending end.
#[derive(Debug)]
pub(crate) struct Executor {
    orders: Sender<Order>,
    deposits: bool,
}

impl Executor {
    /// Starts the thread, which reports to `remote`. No slices are set unless there are `slices`.
    pub(crate) fn start(
        remote: Remote,
        closer: Closer,
        custody: Option<Custody>,
        slices: bool,
    ) -> io::Result<Self> {
        let (sender, orders) = channel();
        let deposits = custody.is_some();
        let work = Work { lines: HashMap::new(), groups: HashMap::new(), remote, closer, custody, slices };
        std::thread::Builder::new().name("sluice-controls".into()).spawn(move || work.serve(&orders))?;
        Ok(Self { orders: sender, deposits })
    }

    /// Whether spare ways to the driver are wanted.
    pub(crate) fn deposits(&self) -> bool {
        self.deposits
    }

    pub(crate) fn order(&self, order: Order) {
        // The thread ends no earlier than this.
        let _ = self.orders.send(order);
    }

    /// Frees every group. `false` if that took longer than `patience`: the thread may wait for the driver for ever.
    pub(crate) fn restore(self, patience: Duration) -> bool {
        let (done, restored) = channel();
        self.order(Order::Restore(patience, done));
        restored.recv_timeout(patience) != Err(RecvTimeoutError::Timeout)
    }
}

/// A group, the way to it, and what our controls have made of it.
struct Reached {
    line: Line,
    handles: ContextHandles,
    known: Known,
}

impl Reached {
    /// A control of it has ended. One that failed may have had its effect.
    fn made(&mut self, op: Op, succeeded: bool) {
        let Known { enabled, slice_us } = &mut self.known;
        let harmless = |us: u64| us >= TINY_US;
        match op {
            Op::SetSlice(us) if succeeded => *slice_us = Some(us),
            Op::SetSlice(us) => *slice_us = slice_us.filter(|before| harmless(*before) && harmless(us)),
            Op::Stop | Op::Start => *enabled = succeeded.then_some(op == Op::Start),
        }
    }
}

struct Work {
    lines: HashMap<Line, Box<dyn ChannelControl>>,
    groups: HashMap<GroupId, Reached>,
    remote: Remote,
    /// Closing the last descriptor of a driver's client can take long.
    closer: Closer,
    /// `None`: nobody would do anything with duplicates.
    custody: Option<Custody>,
    /// Slices are set.
    slices: bool,
}

impl Work {
    fn serve(mut self, orders: &Receiver<Order>) {
        for order in orders {
            self.deposit(Custody::offer);
            match order {
                Order::Open(line, control, spare) => {
                    if let Some(spare) = spare {
                        self.deposit(|custody| custody.line(line, spare));
                    }
                    self.lines.insert(line, control);
                }
                Order::Add(group, line, handles) => {
                    // Who is held by the driver's lock has nothing to deposit.
                    if !handles.channels.is_empty() {
                        self.deposit(|custody| custody.group(group, line, &handles));
                    }
                    // Where slices are not set nobody has one to be feared.
                    let slice_us = (!self.slices).then_some(DEFAULT_US);
                    let known = Known { enabled: None, slice_us };
                    if let Some(before) = self.groups.insert(group, Reached { line, handles, known }) {
                        self.close_if_unused(before.line);
                    }
                }
                Order::Close(line) => self.close_if_unused(line),
                Order::Make(control) => {
                    let begun = Instant::now();
                    let result = self.make(control.group, control.op);
                    self.remote.send(Control::Controlled(Report { control, result, took: begun.elapsed() }));
                }
                Order::Forget(group) => self.forget(group),
                Order::Restore(patience, done) => {
                    self.restore(patience);
                    // Who asked may have lost patience.
                    let _ = done.send(());
                    return;
                }
            }
        }
    }

    /// Tells the supervisor, if there is one; what comes back is closed elsewhere.
    fn deposit(&mut self, tell: impl FnOnce(&mut Custody) -> Vec<Spare>) {
        let spares = self.custody.as_mut().map(tell).unwrap_or_default();
        if !spares.is_empty() {
            self.closer.close(spares);
        }
    }

    fn make(&mut self, group: GroupId, op: Op) -> Result<(), ControlFailure> {
        let reached = self.groups.get_mut(&group).ok_or(ControlFailure::Gone)?;
        let control = self.lines.get_mut(&reached.line).ok_or(ControlFailure::Gone)?;
        let made = match op {
            Op::SetSlice(us) => control.set_slice(&reached.handles, us),
            Op::Stop => control.stop(&reached.handles),
            Op::Start => control.start(&reached.handles),
        };
        reached.made(op, made.is_ok());
        made
    }

    fn forget(&mut self, group: GroupId) {
        if let Some(Reached { line, .. }) = self.groups.remove(&group) {
            self.deposit(|custody| custody.forget(group));
            self.close_if_unused(line);
        }
    }

    fn close_if_unused(&mut self, line: Line) {
        if !self.groups.values().any(|reached| reached.line == line) {
            self.deposit(|custody| custody.close(line));
            self.closer.close(self.lines.remove(&line));
        }
    }

    /// Sets free whom it can. Who is not free by then is set free by its own process, or by the supervisor.
    fn restore(&mut self, patience: Duration) {
        let until = Instant::now() + patience;
        let mut release = Release::of(self.groups.iter().map(|(group, reached)| (*group, reached.known)));
        while Instant::now() < until
            && let Some((group, op)) = release.begin()
        {
            release.done(self.make(group, op).is_ok());
        }
        for group in release.free() {
            self.forget(group);
        }
    }
}
