//! Faults of the manager's adapter. Each one violates one property, which proves that the property can fail.

use super::{Model, Setup, properties};
use stateright::{Checker, HasDiscoveries, Model as _};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Bug {
    None,
    /// The groups of a process are not disabled when its quantum ends.
    DropsDisable,
    /// A grant opens the pages of all processes that wait.
    OpensAllPages,
    /// A grant of the latency-critical process is not written to its page.
    LosesGrant,
    /// The scheduler is not told that a control failed.
    ReportsFailureAsSuccess,
    /// A reload gives each client the specification of another one.
    MixesSpecifications,
    /// The node agent does not know one of the groups.
    ForgetsGroupAtCrash,
    /// The scheduler is not told that the work of a process waits.
    HidesWaits,
}

fn assert_violated(setup: Setup, bug: Bug, property: &'static str) {
    let model = Model { bug, ..Model::new(setup) };
    let found = HasDiscoveries::AnyOf([property].into());
    let checker = model.checker().finish_when(found).spawn_bfs().join();
    assert!(checker.discovery(property).is_some(), "{bug:?} does not violate: {property}");
}

#[test]
fn client_waits_too_long_where_groups_are_not_disabled() {
    assert_violated(Setup::Hardware, Bug::DropsDisable, properties::SERVED);
}

#[test]
fn two_clients_run_where_a_grant_opens_all_pages() {
    assert_violated(Setup::Mixed, Bug::OpensAllPages, properties::ONE_CLIENT);
}

#[test]
fn latency_critical_process_waits_where_its_grant_is_lost() {
    assert_violated(Setup::Critical, Bug::LosesGrant, properties::CRITICAL_RUNS);
}

#[test]
fn several_tiny_slices_run_where_failures_are_not_reported() {
    assert_violated(Setup::Critical, Bug::ReportsFailureAsSuccess, properties::SAFE_SLICES);
}

#[test]
fn lag_grows_where_a_reload_mixes_the_specifications() {
    assert_violated(Setup::Hardware, Bug::MixesSpecifications, properties::BOUNDED_LAG);
}

#[test]
fn process_stays_stopped_where_the_node_agent_forgets_a_group() {
    assert_violated(Setup::Hardware, Bug::ForgetsGroupAtCrash, properties::CRASH_SURVIVED);
}

#[test]
fn gpu_is_unused_where_waits_are_not_reported() {
    assert_violated(Setup::Waiting, Bug::HidesWaits, properties::USED);
}
