//! A process as the manager sees it: its client, its connections, its two pages, what it is still to be answered.

use crate::metrics::Level;
use crate::rings::Rings;
use sluice_comm::page::{Flags, GrantView, ReportView, report};
use sluice_core::ClientId;
use sluice_core::gates::{Foresight, Witness};
use sluice_sys::futex;
use sluice_sys::page::SharedPage;
use std::io;
use std::os::fd::OwnedFd;

/// The most QUOTA requests of one process that may be open at once.
pub(crate) const MAX_PENDING: usize = 16;

/// A process, or a connection of the old protocol, which is one by itself.
#[derive(Debug)]
pub(crate) struct Process {
    /// It runs without the hook, and its groups were found from outside. It has neither connections nor pages.
    pub(crate) adopted: bool,
    pub(crate) client: ClientId,
    /// For the log.
    pub(crate) label: String,
    /// Its number, if the kernel tells it.
    pub(crate) pid: Option<i32>,
    /// The container that it is in, where its cgroup says so.
    pub(crate) container: Option<String>,
    /// Pid and start; `None` if its connections cannot be told to belong together.
    pub(crate) key: Option<(i32, u64)>,
    /// Readable when it ends.
    pub(crate) pidfd: Option<OwnedFd>,
    /// The connection that carries tokens; for a peer of the old protocol the only one.
    pub(crate) token: Option<u64>,
    pub(crate) memory: Option<u64>,
    /// QUOTA requests not answered yet.
    pub(crate) pending: Vec<i32>,
    /// Only attached processes have pages.
    pub(crate) pages: Option<Pages>,
    /// It writes here when it goes from idle to busy, if its page says so. Never read: the process can make reading wait.
    pub(crate) doorbell: Option<OwnedFd>,
    /// Its channel groups are stopped and started from here, so its page holds a standing grant.
    pub(crate) steered: bool,
    /// It was seen to go on while its gates were closed: what it says of them is not believed any more.
    pub(crate) ignores_gates: bool,
    pub(crate) witness: Witness,
    /// What it has announced of its own work, if it is latency-critical.
    pub(crate) foresight: Foresight,
    /// When the request was expected that its page announced last, as far as it was read.
    pub(crate) announced_ns: u64,
    /// When that was read.
    pub(crate) announced_read: u64,
    /// Since when its page asks for the doorbell, if it does.
    pub(crate) armed: Option<u64>,
    /// How often it has rung.
    pub(crate) rings: Rings,
}

impl Process {
    /// Of which nothing is known but whose it is.
    pub(crate) fn new(client: ClientId, label: String, container: Option<String>) -> Self {
        Self {
            adopted: false,
            client,
            label,
            pid: None,
            container,
            key: None,
            pidfd: None,
            token: None,
            memory: None,
            pending: Vec::new(),
            pages: None,
            doorbell: None,
            steered: false,
            ignores_gates: false,
            witness: Witness::default(),
            foresight: Foresight::default(),
            announced_ns: 0,
            announced_read: 0,
            armed: None,
            rings: Rings::default(),
        }
    }

    pub(crate) fn connections(&self) -> impl Iterator<Item = u64> + use<> {
        [self.token, self.memory].into_iter().flatten()
    }
}

impl Process {
    /// What is in force for it, which it is not if it ignores its gates; `None` without pages or control.
    pub(crate) fn level(&self, is_controlled: bool) -> Option<Level> {
        if self.adopted && is_controlled {
            return Some(Level::Turn);
        }
        let gates = self.pages.as_ref()?.report().gates();
        Some(match gates {
            _ if is_controlled => Level::Turn,
            _ if self.ignores_gates => Level::Token,
            report::GATES_DEVICE => Level::Device,
            report::GATES_HOST => Level::Host,
            _ => Level::Token,
        })
    }

    /// Asks on its page for the doorbell, from this time on, or for it no more.
    pub(crate) fn set_armed(&mut self, since: Option<u64>) {
        self.armed = since;
        if let Some(pages) = &self.pages {
            pages.grant().set_armed(since.is_some());
        }
    }

    /// Nothing is answered any more, and it has no grant.
    pub(crate) fn close_token_channel(&mut self) {
        self.pending.clear();
        self.steered = false;
        self.set_armed(None);
        if let Some(pages) = &self.pages {
            pages.grant().close();
            pages.set_gate(false, false);
        }
    }
}

/// The two pages of a process and the descriptors that it gets.
#[derive(Debug)]
pub(crate) struct Pages {
    grant: SharedPage,
    report: SharedPage,
    pub(crate) grant_fd: OwnedFd,
    pub(crate) report_fd: OwnedFd,
    /// The version that its hook understands.
    pub(crate) version: u32,
    /// Reading of `busy_ns` when it was last charged, and when that was: for standing grants.
    pub(crate) busy_seen: (u64, u64),
    /// Reading of `hold_ns` when it was last counted, and when that was.
    pub(crate) holds_seen: (u64, u64),
}

impl Pages {
    /// Makes both pages; the process cannot write the grant page, whatever it does with its descriptor.
    pub(crate) fn create(version: u32, flags: Flags, now: u64) -> io::Result<Self> {
        let (grant, writable) = SharedPage::create("sluice-grant")?;
        GrantView::new(grant.words()).init_as(version);
        GrantView::new(grant.words()).set_flags(flags);
        SharedPage::seal_future_write(&writable)?;
        let grant_fd = SharedPage::reopen_read_only(&writable)?;
        let (report, report_fd) = SharedPage::create("sluice-report")?;
        ReportView::new(report.words()).init_as(version);
        Ok(Self { grant, report, grant_fd, report_fd, version, busy_seen: (0, now), holds_seen: (0, now) })
    }

    /// Says whether the process is to put gates in front of its work, and whether they are closed.
    pub(crate) fn set_gate(&self, wanted: bool, closed: bool) {
        if self.grant().set_gate(wanted, closed) {
            futex::wake_low(self.grant().gate_futex(), u32::MAX);
        }
    }

    pub(crate) fn grant(&self) -> GrantView<'_> {
        GrantView::new(self.grant.words())
    }

    pub(crate) fn report(&self) -> ReportView<'_> {
        ReportView::new(self.report.words())
    }
}
