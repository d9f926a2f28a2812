//! The counters of this process.

use sluice_hook_core::outcome::{Bypass, Counters};

use crate::leaked::Leaked;
use crate::report_page::ReportPage;

pub(crate) static COUNTERS: Counters = Counters::zero();

/// The report page of the only device; none before the process is known to see one device and has launched on it.
static ONLY_REPORT: Leaked<ReportPage> = Leaked::none();

/// From here on bypassed calls are also counted on this page: that of the only device.
pub(crate) fn count_bypasses_on(report: &'static ReportPage) {
    ONLY_REPORT.share(report);
}

/// Counts a bypassed call, in this process and on the report page.
#[cold]
pub(crate) fn count_bypass(reason: Bypass) {
    COUNTERS.bypass(reason);
    if reason != Bypass::Forked
        && let Some(report) = ONLY_REPORT.get().and_then(ReportPage::view)
    {
        report.count_bypass(reason.index());
    }
}
