//! Faults of the manager's adapter. Each one violates one property, which proves that the property can fail.

use super::{Model, Setup, properties};
use stateright::{Checker, HasDiscoveries, Model as _};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Bug {
    None,
    /// The executor controls groups on that the table has forgotten.
    DropsForget,
    /// The threads of a stopped process are not released.
    KeepsThreadsStopped,
    /// The groups of stopped processes are not disabled.
    LeavesStoppedEnabled,
    /// Each announcement counts as proven.
    ProvesEverything,
    /// The table is not told that a connection has closed.
    LosesChannelClosed,
    /// The table is not told that a process has ended.
    ReportsNoEnd,
    /// The ends of processes are not watched, so that their groups cannot be kept.
    WatchesNoProcess,
    /// A client is forgotten after each stop.
    ForgetsStops,
    /// Of a search, only what was found in attached processes counts.
    InspectsAttachedOnly,
    /// What a process announces that is scheduled from outside is not reported.
    LosesLaterAnnouncements,
}

fn assert_violated(setup: Setup, events: u8, bug: Bug, property: &'static str) {
    let model = Model { setup, bug, events };
    let found = HasDiscoveries::AnyOf([property].into());
    let checker = model.checker().finish_when(found).spawn_bfs().join();
    assert!(checker.discovery(property).is_some(), "{bug:?} does not violate: {property}");
}

#[test]
fn executor_has_unknown_groups_where_it_is_not_told_to_forget_them() {
    assert_violated(Setup::Strangers, 3, Bug::DropsForget, properties::SAME_GROUPS);
}

#[test]
fn process_is_lost_where_its_threads_stay_stopped() {
    assert_violated(Setup::Strangers, 3, Bug::KeepsThreadsStopped, properties::CONTROLLED);
}

#[test]
fn stopped_process_runs_where_its_groups_are_not_disabled() {
    assert_violated(Setup::Strangers, 3, Bug::LeavesStoppedEnabled, properties::STOPPED);
}

#[test]
fn process_has_foreign_groups_where_every_announcement_counts_as_proven() {
    assert_violated(Setup::Strangers, 3, Bug::ProvesEverything, properties::OWNED);
}

#[test]
fn detached_process_counts_as_attached_where_closed_connections_are_not_reported() {
    assert_violated(Setup::Strangers, 3, Bug::LosesChannelClosed, properties::CONNECTED);
}

#[test]
fn ended_process_is_kept_where_its_end_is_not_reported() {
    assert_violated(Setup::Strangers, 3, Bug::ReportsNoEnd, properties::FORGOTTEN);
}

#[test]
fn process_gains_by_a_reconnect_where_no_end_is_watched() {
    assert_violated(Setup::Strangers, 4, Bug::WatchesNoProcess, properties::OUTSIDE);
}

#[test]
fn process_without_the_hook_escapes_by_its_channel_for_memory_where_no_end_is_watched() {
    assert_violated(Setup::Strangers, 3, Bug::WatchesNoProcess, properties::KEPT);
}

#[test]
fn second_stop_is_short_where_clients_are_forgotten() {
    assert_violated(Setup::Siblings, 3, Bug::ForgetsStops, properties::DOUBLED);
}

#[test]
fn process_without_the_hook_is_lost_where_attached_ones_alone_are_inspected() {
    assert_violated(Setup::Strangers, 3, Bug::InspectsAttachedOnly, properties::CONTROLLED);
}

#[test]
fn process_stays_outside_where_its_later_announcements_are_lost() {
    assert_violated(Setup::Strangers, 3, Bug::LosesLaterAnnouncements, properties::ACCEPTED);
}
