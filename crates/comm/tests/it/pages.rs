//! The layout of the two pages, word by word: the two sides may be of different builds.

use sluice_comm::page::{Flags, Grant, GrantView, MovableMemory, PageError, ReportView};
use std::array;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

const MS: u64 = 1_000_000;

type Words = [AtomicU64; 512];

fn words() -> Words {
    array::from_fn(|_| AtomicU64::new(0))
}

/// The words that are not zero, in order.
fn used(words: &Words) -> Vec<(usize, u64)> {
    words.iter().map(|word| word.load(Relaxed)).enumerate().filter(|(_, value)| *value != 0).collect()
}

#[test]
fn grant_page_has_the_layout_of_version_3() {
    let words = words();
    let page = GrantView::new(&words);
    page.init();
    page.set_flags(Flags { fail_closed: true, tsc_valid: false });
    page.open(111, 222, 7);
    page.set_contended(true);
    page.set_wakeup_requested(true);
    page.set_contenders(3);
    assert!(page.set_urgent(444) && !page.set_urgent(444));
    page.set_lead_ns(555);
    page.set_second_group(true);
    assert!(page.set_memory_room(5 << 20) && !page.set_memory_room(5 << 20));
    page.set_heartbeat(333);
    let magic = u64::from_le_bytes(*b"SLUICEGR");
    let cold = [(0, magic), (1, 3), (2, 1)];
    let open = [(16, 111), (17, 222), (18, 7), (19, 2)];
    let rest = [(32, 1), (33, 1), (34, 3), (36, 444), (39, 555), (41, 1), (42, 6), (64, 333)];
    assert_eq!(used(&words), [&cold[..], &open, &rest].concat());
    page.set_flags(Flags { fail_closed: false, tsc_valid: true });
    assert_eq!(words[2].load(Relaxed), 2);
    page.set_latency_critical(true);
    assert_eq!((words[2].load(Relaxed), page.latency_critical(), page.tsc_valid()), (6, true, true));
    page.set_latency_critical(false);
    assert_eq!((words[2].load(Relaxed), page.latency_critical()), (2, false));
    page.set_suspended(true);
    assert_eq!((words[2].load(Relaxed), page.suspended()), (18, true));
    page.set_suspended(false);
    assert_eq!((words[2].load(Relaxed), page.suspended()), (2, false));
}

#[test]
fn room_for_memory_is_whole_mebibytes_and_differs_from_no_decision() {
    let words = words();
    let page = GrantView::new(&words);
    assert_eq!(page.memory_room(), None);
    page.set_memory_room(0);
    assert_eq!(page.memory_room(), Some(0));
    page.set_memory_room(u64::MAX);
    assert!(page.memory_room().is_some_and(|room| room > 1 << 60));
    page.set_memory_room((3 << 20) + 1);
    assert_eq!(page.memory_room(), Some(4 << 20));
}

#[test]
fn movable_memory_has_words_of_its_own() {
    let words = words();
    let page = ReportView::new(&words);
    let memory = MovableMemory { need: 9, resident: 8, waits: true, has_earlier_place: false, moves: false };
    assert!(page.report_movable_memory(memory) && !page.report_movable_memory(memory));
    assert_eq!(used(&words), [(101, 9), (102, 8), (103, 1)]);
    assert_eq!(page.movable_memory(), memory);
    // Programs that allocate and free without end do not wake the manager each time.
    let more = MovableMemory { need: 11, resident: 10, waits: false, has_earlier_place: true, moves: false };
    assert!(!page.report_movable_memory(more));
    assert!(page.report_movable_memory(MovableMemory { resident: 0, ..more }), "it has left");
    assert!(page.report_movable_memory(more), "it has returned");
    assert!(page.report_movable_memory(MovableMemory { waits: true, ..more }));
    assert!(page.report_movable_memory(MovableMemory { moves: true, ..more }), "a copy begins");
    assert_eq!((words[103].load(Relaxed), page.movable_memory().moves), (6, true));
    assert!(!page.report_movable_memory(more), "the copy has ended");
}

#[test]
fn report_page_has_the_layout_of_version_3() {
    let words = words();
    let page = ReportView::new(&words);
    page.init();
    page.set_activity(true, 7000);
    page.add_busy_ns(1000);
    page.count_bypass(0);
    page.count_bypass(31);
    page.expect(7600);
    page.set_service_ns(7700);
    page.set_postponed(true);
    page.add_postponed_ns(7800);
    page.set_grant_address(7850);
    page.report_unannounced(7900);
    page.report_lead(7950);
    page.report_contexts_at_once(Some(7960));
    let magic = u64::from_le_bytes(*b"SLUICERP");
    let head = [(0, magic), (1, 3), (17, 3), (18, 7000), (26, 7600), (27, 7700), (28, 1)];
    let rest = [(29, 7850), (30, 7900), (32, 1000), (35, 7800), (64, 1), (95, 1), (96, 7950), (97, 7960)];
    assert_eq!(used(&words), [&head[..], &rest].concat());
}

#[test]
fn groups_stay_reported_as_unannounced_until_their_last_change_is_announced() {
    let words = words();
    let page = ReportView::new(&words);
    page.report_unannounced(5);
    page.report_unannounced(4);
    page.report_announced(4);
    assert!(page.has_unannounced_groups(), "change 5 is not announced");
    page.report_announced(5);
    assert!(!page.has_unannounced_groups());
}

#[test]
fn client_reads_the_words_of_the_manager() {
    let words = words();
    let page = GrantView::new(&words);
    page.init();
    assert_eq!(page.check(), Ok(()));
    assert_eq!(page.grant(), Some(Grant { deadline_tsc: 0, deadline_ns: 0, epoch: 0 }));
    page.open(u64::MAX, u64::MAX, 1);
    assert_eq!((page.deadline_tsc(), page.deadline_ns(), page.epoch()), (u64::MAX, u64::MAX, 1));
    page.open(111, 222, 2);
    assert_eq!(page.grant(), Some(Grant { deadline_tsc: 111, deadline_ns: 222, epoch: 2 }));
    page.close();
    assert_eq!(page.grant(), Some(Grant { deadline_tsc: 0, deadline_ns: 0, epoch: 2 }));
    page.set_contended(true);
    assert!(page.contended());
    page.set_contended(false);
    assert!(!page.contended());
    page.set_hand_off(7_900);
    assert_eq!(page.hand_off_ns(), 7_900);
    page.set_contenders(1500);
    assert_eq!(page.contenders(), 1500);
    assert!(!page.default_slices(), "short slices unless the manager writes otherwise");
    page.set_default_slices(true);
    assert!(page.default_slices());
    for flags in [(true, false), (false, true), (true, true), (false, false)] {
        page.set_flags(Flags { fail_closed: flags.0, tsc_valid: flags.1 });
        assert_eq!((page.fail_closed(), page.tsc_valid()), flags);
    }
}

#[test]
fn manager_reads_the_reports_of_the_client() {
    let words = words();
    let page = ReportView::new(&words);
    page.init();
    assert_eq!(page.check(), Ok(()));
    page.count_bypass(4);
    page.count_bypass(4);
    page.count_bypass(32);
    assert_eq!((page.bypassed(4), page.bypassed(32), page.bypassed(5)), (2, 0, 0));
    assert!(!page.wants_default_slices(), "a hook that reports nothing wants short slices");
    page.report_slices(true, 4_000_000, 3_800_000);
    assert_eq!((page.wants_default_slices(), page.burst_medians_ns()), (true, (4_000_000, 3_800_000)));
    page.report_slices(false, 3_000_000, 3_800_000);
    assert!(!page.wants_default_slices());
}

#[test]
fn another_page_or_version_is_refused_with_the_words_found() {
    let words = words();
    let grant = GrantView::new(&words);
    let expected = u64::from_le_bytes(*b"SLUICEGR");
    assert_eq!(grant.check(), Err(PageError::Magic { page: "grant", found: 0, expected }));
    ReportView::new(&words).init();
    let found = u64::from_le_bytes(*b"SLUICERP");
    assert_eq!(grant.check(), Err(PageError::Magic { page: "grant", found, expected }));
    grant.init();
    words[1].store(4, Relaxed);
    let error = grant.check().unwrap_err();
    assert_eq!(error.to_string(), "grant page has layout version 4, expected 1 to 3");
    grant.init();
    assert!(ReportView::new(&words).check().is_err());
}

#[test]
fn pages_of_version_1_are_read_with_later_words_zero() {
    let (grant, report) = (words(), words());
    GrantView::new(&grant).init_as(1);
    ReportView::new(&report).init_as(1);
    assert_eq!((GrantView::new(&grant).check(), ReportView::new(&report).check()), (Ok(()), Ok(())));
    assert_eq!((grant[1].load(Relaxed), report[1].load(Relaxed)), (1, 1));
    assert!(!GrantView::new(&grant).wakeup_requested());
    assert_eq!(GrantView::new(&grant).contenders(), 0);
    assert!(!GrantView::new(&grant).default_slices() && !ReportView::new(&report).wants_default_slices());
    assert_eq!(ReportView::new(&report).activity(), (false, 0));
}

#[test]
fn pages_of_version_2_are_read_and_have_no_heartbeat() {
    let (grant, report) = (words(), words());
    GrantView::new(&grant).init_as(2);
    ReportView::new(&report).init_as(2);
    assert_eq!((GrantView::new(&grant).check(), ReportView::new(&report).check()), (Ok(()), Ok(())));
    assert_eq!(GrantView::new(&grant).presence_left_ns(u64::MAX), None, "never silent");
}

#[test]
fn manager_is_silent_200_ms_after_its_last_heartbeat() {
    let words = words();
    let page = GrantView::new(&words);
    page.init();
    assert_eq!(page.presence_left_ns(5000 * MS), None, "it has written no heartbeat yet");
    page.set_heartbeat(1000 * MS);
    let left = [999, 1000, 1150, 1200, 1201, 9000].map(|now_ms| page.presence_left_ns(now_ms * MS));
    assert_eq!(left, [201, 200, 50, 0, 0, 0].map(|ms| Some(ms * MS)));
}

#[test]
fn heartbeat_from_before_the_clock_was_set_back_counts_as_silence() {
    let words = words();
    let page = GrantView::new(&words);
    page.init();
    page.set_heartbeat(9000 * MS);
    assert_eq!(page.presence_left_ns(1000 * MS), Some(0));
    page.set_heartbeat(1000 * MS);
    assert_eq!(page.presence_left_ns(1000 * MS), Some(200 * MS), "the manager uses the same clock");
}

#[test]
fn activity_counts_its_changes_and_keeps_the_time_of_the_last() {
    let words = words();
    let page = ReportView::new(&words);
    page.init();
    page.set_activity(false, 1);
    assert_eq!(page.activity(), (false, 0), "the initial state is idle");
    page.set_activity(true, 2);
    page.set_activity(true, 3);
    assert_eq!(page.activity(), (true, 2));
    page.set_activity(false, 4);
    page.set_activity(true, 5);
    assert_eq!((page.activity(), words[17].load(Relaxed)), ((true, 5), 7), "three changes and busy");
}

#[test]
fn work_that_only_waits_is_reported_beside_the_activity() {
    let words = words();
    let page = ReportView::new(&words);
    page.init();
    page.set_activity(true, 2);
    assert_eq!(page.waits_since_ns(), None, "it may execute");
    page.set_waits(Some(7));
    assert_eq!((page.waits_since_ns(), page.activity(), words[31].load(Relaxed)), (Some(7), (true, 2), 7));
    page.set_waits(None);
    assert_eq!((page.waits_since_ns(), page.activity()), (None, (true, 2)));
}

#[test]
fn page_of_a_manager_that_died_while_writing_has_no_grant() {
    let words = words();
    let page = GrantView::new(&words);
    page.init();
    page.open(111, 222, 7);
    words[19].fetch_add(1, Relaxed);
    assert_eq!(page.grant(), None);
    page.open(333, 444, 8);
    assert_eq!(page.grant(), Some(Grant { deadline_tsc: 333, deadline_ns: 444, epoch: 8 }));
}

#[test]
fn read_grant_is_never_a_mix_of_two_while_the_manager_writes() {
    let words = words();
    let page = GrantView::new(&words);
    page.init();
    let last = if cfg!(miri) { 50 } else { 100_000 };
    thread::scope(|scope| {
        scope.spawn(|| {
            for epoch in 1..=last {
                page.open(1_000_000 + epoch, 2_000_000 + epoch, epoch);
                page.close();
            }
        });
        let mut seen = 0;
        while seen < last {
            // With one core the writer may not have run since the last read, and spinning would delay it.
            thread::yield_now();
            let Some(grant) = page.grant() else { continue };
            assert!(grant.epoch >= seen, "the epoch went back from {seen} to {}", grant.epoch);
            seen = grant.epoch;
            let open = (1_000_000 + seen, 2_000_000 + seen);
            let deadlines = (grant.deadline_tsc, grant.deadline_ns);
            assert!(deadlines == open || deadlines == (0, 0), "epoch {seen} with {deadlines:?}");
        }
    });
    assert_eq!(page.deadline_tsc(), 0);
}
