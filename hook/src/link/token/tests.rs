use std::cell::Cell;

use sluice_comm::{Name, SILENCE_NS};

use sluice_hook_core::deadline_polling::{AROUND_NS, Step};
use sluice_hook_core::hold_kernel::{HoldKernels, Settings};
use sluice_hook_core::platform::TokenLink;
use sluice_sys::clock::monotonic_ns;
use sluice_sys::page::SharedPage;

use super::super::answer_wait::Wait;
use super::attachment::keep_mapped;
use super::grant_wait::GrantWait;
use super::*;

fn page() -> &'static Words {
    keep_mapped(SharedPage::anonymous().expect("a page"))
}

fn connection_with(page: &'static Words) -> TokenConnection {
    polling_connection(page, 0)
}

fn polling_connection(page: &'static Words, polling_ns: u64) -> TokenConnection {
    let identity = ClientIdentity { name: Name::new("a").expect("a name"), ordinal: 0, uuid: [0; 16] };
    let address = Address::Unix("unused".into());
    let memory = MemoryAccount::new(MemoryConnection::new(address.clone(), identity.clone()), false);
    let connection = TokenConnection::new(address, identity, Box::leak(Box::new(memory)), polling_ns);
    connection.grant.store(std::ptr::from_ref(page).cast_mut(), SeqCst);
    connection.attached.store(true, SeqCst);
    connection
}

#[test]
fn abandoned_hold_kernels_report_no_lead() {
    let (connection, report) = (connection_with(page()), page());
    connection.report.set(report);
    connection.report_lead(1_000_000);
    crate::hold_kernel::abandon(&HoldKernels::new(Settings::default()), &connection);
    assert_eq!(ReportView::new(report).lead_ns(), 0);
}

#[test]
fn contenders_that_a_silent_manager_wrote_do_not_count() {
    let words = page();
    let connection = connection_with(words);
    let page = GrantView::new(words);
    page.init();
    page.set_latency_critical(true);
    page.set_contenders(2);
    assert_eq!(connection.critical_contenders(), Some(2), "a manager without a heartbeat is never silent");
    let now = monotonic_ns();
    page.set_heartbeat(now);
    assert_eq!(connection.critical_contenders(), Some(2));
    page.set_heartbeat(now - SILENCE_NS);
    assert_eq!(connection.critical_contenders(), None);
    page.set_contenders(0);
    assert_eq!(connection.critical_contenders(), Some(0));
}

#[test]
fn thread_that_waits_for_a_grant_polls_around_the_time_on_its_page() {
    const MS: u64 = 1_000_000;
    let words = page();
    let connection = polling_connection(words, AROUND_NS);
    let (begun, due) = (1_000 * MS, 1_050 * MS);
    assert_eq!(
        connection.step_of_wait(begun, begun),
        Step::SleepUntil(begun + 2 * MS),
        "the time is not known yet"
    );
    GrantView::new(words).set_hand_off(due);
    assert!(
        matches!(connection.step_of_wait(begun, begun + 2 * MS), Step::SleepUntil(at) if at < due - AROUND_NS)
    );
    assert_eq!(connection.step_of_wait(begun, due - AROUND_NS / 2), Step::Poll);
    assert_eq!(connection.step_of_wait(begun, due + AROUND_NS / 2), Step::Poll);
    // The holder's work runs on. Another client may hold the next grant, whose end comes to the same page.
    assert_eq!(connection.step_of_wait(begun, due + MS), Step::SleepUntil(begun + 64 * MS));
    GrantView::new(words).set_hand_off(due + 100 * MS);
    assert_eq!(connection.step_of_wait(begun, due + 100 * MS), Step::Poll);
}

#[test]
fn thread_that_waits_for_a_grant_sleeps_where_there_are_few_processors() {
    let words = page();
    let connection = connection_with(words);
    GrantView::new(words).set_hand_off(1_000_000_000);
    assert_eq!(connection.step_of_wait(0, 1_000_000_000), Step::Sleep);
    assert_eq!(connection.step_of_wait(0, 2_000_000_000), Step::Sleep);
}

#[test]
fn thread_that_polls_takes_a_new_grant_from_its_page() {
    let words = page();
    let connection = connection_with(words);
    let grant = GrantView::new(words);
    grant.open(1, 1_000, 7);
    // The last grant, which the manager has not closed yet.
    connection.epoch_before.store(grant.epoch(), Relaxed);
    let wait = GrantWait { connection: &connection, begun_ns: 0, prepare: &|| (), polls: Cell::new(false) };
    assert!(!wait.has_come());
    grant.close();
    assert!(!wait.has_come());
    grant.open(2, 2_000, 8);
    assert!(wait.has_come());
}
