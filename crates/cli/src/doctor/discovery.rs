//! Whether the channel groups of a program are found without its announcement.

use sluice_comm::attach::ContextHandles;
use sluice_nvrm::discovery::{DiscoveredProcess, newest_client};

use super::finding::{CheckStatus, Finding};
use super::next_steps::{REPORT_IT, TRACE};

/// Compares the channel groups found in the program with `known`, its announced ones.
pub(super) fn examine(pid: i32, simulated: bool, mut known: Vec<ContextHandles>) -> Finding {
    let newest = if simulated { None } else { newest_client().ok() };
    let found = match DiscoveredProcess::find(pid, simulated, newest) {
        Ok(tenant) => tenant.groups().cloned().collect(),
        Err(why) => {
            return Finding::of("outside", CheckStatus::Degraded, why.to_string(), TRACE);
        }
    };
    let comparable = |groups: &mut Vec<ContextHandles>| {
        for group in groups.iter_mut() {
            group.descriptor = 0;
            group.channels.sort_unstable();
        }
        groups.sort_by_key(|group| (group.client, group.channel_group));
    };
    let mut found: Vec<ContextHandles> = found;
    comparable(&mut found);
    comparable(&mut known);
    if found == known {
        return Finding::ok(
            "outside",
            "the channel groups of a program are found without its help and equal those that it announces",
        );
    }
    let of = |groups: &[ContextHandles]| {
        let each = groups.iter().map(|group| {
            format!("{:#x}/{:#x} with {} channels", group.client, group.channel_group, group.channels.len())
        });
        each.collect::<Vec<_>>().join(", ")
    };
    let observed = format!("found {}; announced were {}", of(&found), of(&known));
    Finding::of("outside", CheckStatus::Degraded, observed, REPORT_IT)
}
