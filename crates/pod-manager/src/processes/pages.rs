//! The two shared pages of a process, and what the manager last read from and wrote to them.

use super::busy_meter::BusyMeter;
use crate::latencies::{LatencyReport, NewReport};
use sluice_comm::page::grant::URGENT_NOW;
use sluice_comm::page::{
    FIRST_WITH_ACTIVITY, FIRST_WITH_HEARTBEAT, Flags, GrantView, ReportView, ReturnedGrant, UNLIMITED,
};
use sluice_core::channel_groups::Activity;
use sluice_core::deadlines::UrgentWork;
use sluice_core::processes::GrantPageMapping;
use sluice_sys::futex;
use sluice_sys::page::SharedPage;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;

/// The grant page, which the manager writes, and the report page, which the process writes.
#[derive(Debug)]
pub(crate) struct Pages {
    grant: SharedPage,
    report: SharedPage,
    pub(crate) grant_fd: OwnedFd,
    grant_inode: u64,
    pub(crate) report_fd: OwnedFd,
    /// The version that the process's hook understands.
    pub(crate) version: u32,
    /// GPU time of the process's work.
    busy: BusyMeter,
    /// GPU time of its hold kernels.
    holds: BusyMeter,
    /// Time for which its launches were postponed.
    postponed: BusyMeter,
    /// Latencies of its steps and requests.
    latencies: LatencyReport,
    /// How often its work had begun when that was last read.
    bursts_seen: u64,
    /// The count of returns on the page up to which they were dealt with, from the page or from frames.
    returns_seen: u64,
    /// The last return was read from the page, and its YIELD has not been read.
    is_yield_due: bool,
    /// The last return that was read from the page requested the next grant, whose QUOTA has not been read.
    pub(crate) requested_on_page: bool,
    /// The grant page shows the unlimited grant of a hardware-scheduled process.
    pub(crate) shows_hardware_grant: bool,
}

impl Pages {
    /// Creates both pages. The process cannot write the grant page, whatever it does with its descriptor.
    pub(crate) fn create(version: u32, flags: Flags, now: u64) -> io::Result<Self> {
        let (grant, writable) = SharedPage::create("sluice-grant")?;
        GrantView::new(grant.words()).init_as(version);
        GrantView::new(grant.words()).set_flags(flags);
        SharedPage::seal_future_write(&writable)?;
        let grant_fd = SharedPage::reopen_read_only(&writable)?;
        let grant_inode = File::from(grant_fd.try_clone()?).metadata()?.ino();
        let (report, report_fd) = SharedPage::create("sluice-report")?;
        ReportView::new(report.words()).init_as(version);
        let pages = Self {
            grant,
            report,
            grant_fd,
            grant_inode,
            report_fd,
            version,
            busy: BusyMeter::new(0, now),
            holds: BusyMeter::new(0, now),
            postponed: BusyMeter::new(0, now),
            latencies: LatencyReport::new(now),
            bursts_seen: 0,
            returns_seen: 0,
            is_yield_due: false,
            requested_on_page: false,
            shows_hardware_grant: false,
        };
        pages.beat(now);
        Ok(pages)
    }

    /// Shows the unlimited grant of a process that the GPU schedules: its page never decides when it runs.
    pub(crate) fn show_hardware_grant(&mut self) {
        self.shows_hardware_grant = true;
        let epoch = self.grant().epoch() + 1;
        self.grant().set_contended(false);
        self.grant().open(UNLIMITED, UNLIMITED, epoch);
    }

    /// Ends the grant.
    pub(crate) fn close(&mut self) {
        self.shows_hardware_grant = false;
        self.grant().close();
        self.set_urgent(UrgentWork::None);
    }

    pub(crate) fn grant(&self) -> GrantView<'_> {
        GrantView::new(self.grant.words())
    }

    /// Where the process says that it has mapped the grant page; `None` if it does not say.
    pub(crate) fn grant_mapping(&self) -> Option<GrantPageMapping> {
        let address = self.report().grant_address();
        (address != 0).then_some(GrantPageMapping { address, inode: self.grant_inode })
    }

    pub(crate) fn report(&self) -> ReportView<'_> {
        ReportView::new(self.report.words())
    }

    /// Writes the heartbeat, if the hook reads it.
    pub(crate) fn beat(&self, now: u64) {
        if self.version >= FIRST_WITH_HEARTBEAT {
            self.grant().set_heartbeat(now);
        }
    }

    /// Whether the hook reports its activity.
    pub(crate) fn reports_activity(&self) -> bool {
        self.version >= FIRST_WITH_ACTIVITY
    }

    /// The activity that the process reports. One whose hook does not report it counts as busy.
    pub(crate) fn activity(&self) -> Activity {
        if !self.reports_activity() {
            return Activity::UNKNOWN;
        }
        let (busy, since_ns) = self.report().activity();
        Activity { busy, since_ns }
    }

    /// Since when all work of the process only waits, by its report.
    pub(crate) fn waits_since(&self) -> Option<u64> {
        self.report().waits_since_ns().filter(|_| self.reports_activity())
    }

    /// Since when the process has used the GPU, and for how long, nanoseconds, if its activity is this. A process of which all work waits
    /// uses nothing.
    pub(crate) fn read_busy(&mut self, activity: Activity, now: u64) -> (u64, u64) {
        let reported_ns = self.report().busy_ns();
        let busy = activity.busy && self.reports_activity() && self.waits_since().is_none();
        self.busy.read(reported_ns, busy.then_some(activity.since_ns), now)
    }

    /// Whether the process used the GPU at the last reading, as far as it had reported.
    pub(crate) fn was_busy(&self) -> bool {
        self.busy.ran()
    }

    /// Forgets what the process has used so far.
    pub(crate) fn restart_busy(&mut self, now: u64) {
        self.busy = BusyMeter::new(self.report().busy_ns(), now);
        let _earlier = self.read_bursts();
    }

    /// Since when hold kernels that have ended since the last call kept the GPU, and for how long, nanoseconds.
    pub(crate) fn read_holds(&mut self, now: u64) -> (u64, u64) {
        let reported_ns = self.report().hold_ns();
        self.holds.read(reported_ns, None, now)
    }

    /// Time for which launches were postponed since the last call, nanoseconds.
    pub(crate) fn read_postponed(&mut self, now: u64) -> u64 {
        let reported_ns = self.report().postponed_ns();
        self.postponed.read(reported_ns, None, now).1
    }

    /// What the process reports about its steps and requests since the last call.
    pub(crate) fn read_latencies(&mut self, now: u64) -> NewReport {
        self.latencies.read(ReportView::new(self.report.words()), now)
    }

    /// Shows the process how much movable memory it may have on the GPU.
    pub(crate) fn set_memory_room(&self, bytes: u64) {
        if self.grant().set_memory_room(bytes) {
            futex::wake_low(self.grant().memory_room_futex(), u32::MAX);
        }
    }

    /// Shows the process the work of clients with an earlier deadline.
    pub(crate) fn set_urgent(&self, urgent: UrgentWork) {
        let word = match urgent {
            UrgentWork::None => 0,
            UrgentWork::Now => URGENT_NOW,
            // A process can report any time as the expected one.
            UrgentWork::At(at) => at.max(URGENT_NOW + 1),
        };
        if self.grant().set_urgent(word) {
            futex::wake_low(self.grant().urgent_futex(), u32::MAX);
        }
    }

    /// How often work of the process has begun since the last call. A process can write any number.
    pub(crate) fn read_bursts(&mut self) -> u64 {
        // Each burst is two changes, of which the first begins it.
        let begun = self.report().activity_changes().div_ceil(2);
        begun.saturating_sub(std::mem::replace(&mut self.bursts_seen, begun))
    }

    /// A token channel begins: what the page reports of earlier returns does not concern its grants.
    pub(crate) fn restart_returns(&mut self) {
        self.returns_seen = self.report().returns();
        self.is_yield_due = false;
        self.requested_on_page = false;
    }

    /// A grant that the process has returned on its page, if its frame has not been read. A process can write anything there: a return
    /// counts once, and the frame that follows does not count.
    pub(crate) fn take_return(&mut self) -> Option<ReturnedGrant> {
        if self.is_yield_due || self.report().returns() <= self.returns_seen {
            return None;
        }
        self.returns_seen = self.returns_seen.saturating_add(1);
        self.is_yield_due = true;
        let returned = self.report().returned_grant();
        self.requested_on_page = returned.next_burst_ns.is_some();
        Some(returned)
    }

    /// Counts a YIELD frame. `false` if its return was read from the page.
    pub(crate) fn count_yield(&mut self) -> bool {
        if std::mem::take(&mut self.is_yield_due) {
            return false;
        }
        self.returns_seen = self.returns_seen.saturating_add(1);
        true
    }
}
