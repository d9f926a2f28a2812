//! The two pages in loom's model: every interleaving and every value that a weak memory order allows. Needs its own
//! binary, because the whole crate is built with `--cfg loom`.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p sluice-comm --test loom_pages --release`
#![cfg(loom)]
#![allow(clippy::unwrap_used, reason = "a helper that panics fails its test")]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use loom::thread;
use sluice_comm::page::GrantView;
use std::array;

/// A page that both sides of a test own.
struct Page([AtomicU64; 512]);

impl Page {
    fn new() -> Arc<Self> {
        Arc::new(Self(array::from_fn(|_| AtomicU64::new(0))))
    }

    fn grant(&self) -> GrantView<'_> {
        GrantView::new(&self.0)
    }
}

/// Runs the manager's side in another thread and the client's side in this one.
fn model(manager: fn(GrantView<'_>), client: fn(GrantView<'_>)) {
    loom::model(move || {
        let page = Page::new();
        let theirs = Arc::clone(&page);
        let manager = thread::spawn(move || manager(theirs.grant()));
        client(page.grant());
        manager.join().unwrap();
    });
}

/// Opens a grant whose deadlines contain its epoch.
fn open(page: GrantView<'_>, epoch: u64) {
    page.open(1000 + epoch, 2000 + epoch, epoch);
}

#[test]
fn client_that_sees_a_deadline_sees_the_epoch_and_contenders_of_its_grant_or_a_later_one() {
    model(
        |page| {
            for epoch in 1..=2 {
                page.set_contenders(epoch);
                open(page, epoch);
            }
        },
        |page| {
            let deadline = page.deadline_tsc();
            if deadline != 0 {
                let granted = deadline - 1000;
                assert!(page.epoch() >= granted);
                assert!(page.deadline_ns() >= 2000 + granted);
                assert!(page.contenders() >= granted);
            }
        },
    );
}

#[test]
fn client_that_sees_the_deadline_in_ns_sees_the_same() {
    model(
        |page| {
            for epoch in 1..=2 {
                page.set_contenders(epoch);
                open(page, epoch);
            }
        },
        |page| {
            let deadline = page.deadline_ns();
            if deadline != 0 {
                let granted = deadline - 2000;
                assert!(page.epoch() >= granted);
                assert!(page.contenders() >= granted);
            }
        },
    );
}

#[test]
fn client_that_sees_a_grant_opened_under_contention_sees_the_contention() {
    model(
        |page| {
            open(page, 1);
            page.set_contended(true);
            open(page, 2);
        },
        |page| {
            if page.deadline_tsc() == 1002 {
                assert!(page.contended());
            }
        },
    );
}

#[test]
fn client_that_sees_a_grant_sees_the_heartbeat_of_its_round_or_a_later_one() {
    model(
        |page| {
            for epoch in 1..=2 {
                page.set_heartbeat(3000 + epoch);
                open(page, epoch);
            }
        },
        |page| {
            let deadline = page.deadline_tsc();
            if deadline != 0 {
                assert!(page.heartbeat_ns() >= 3000 + (deadline - 1000));
            }
        },
    );
}

/// Checks what a client reads while a grant of epoch 1 is replaced by `after`.
fn replaced(write: fn(GrantView<'_>), after: (u64, u64, u64), reads: usize) {
    loom::model(move || {
        let page = Page::new();
        open(page.grant(), 1);
        let theirs = Arc::clone(&page);
        let manager = thread::spawn(move || write(theirs.grant()));
        let mut replaced = false;
        for grant in (0..reads).filter_map(|_| page.grant().try_grant()) {
            let seen = (grant.deadline_tsc, grant.deadline_ns, grant.epoch);
            assert!(seen == after || (!replaced && seen == (1001, 2001, 1)), "found {seen:?}");
            replaced = seen == after;
        }
        manager.join().unwrap();
        assert!(page.grant().try_grant().is_some());
    });
}

#[test]
fn read_grant_is_never_a_mix_of_two() {
    replaced(|page| open(page, 2), (1002, 2002, 2), 1);
}

#[test]
fn grant_read_while_it_is_closed_is_open_or_closed_as_a_whole() {
    replaced(|page| page.close(), (0, 0, 1), 1);
}

#[test]
fn replaced_grant_does_not_reappear() {
    replaced(|page| open(page, 2), (1002, 2002, 2), 2);
}

#[test]
fn client_notified_after_the_close_finds_the_gate_closed() {
    loom::model(|| {
        let page = Page::new();
        let notified = Arc::new(AtomicBool::new(false));
        let (theirs, notify) = (Arc::clone(&page), Arc::clone(&notified));
        let manager = thread::spawn(move || {
            open(theirs.grant(), 1);
            theirs.grant().close();
            notify.store(true, Ordering::Release);
        });
        if notified.load(Ordering::Acquire) {
            assert_eq!((page.grant().deadline_tsc(), page.grant().deadline_ns()), (0, 0));
            assert_eq!(page.grant().try_grant().map(|grant| grant.deadline_tsc), Some(0));
        }
        manager.join().unwrap();
        assert_eq!(page.grant().epoch(), 1);
    });
}

#[test]
fn reopened_gate_is_never_taken_for_the_old_grant() {
    model(
        |page| {
            open(page, 1);
            page.close();
            open(page, 2);
        },
        |page| {
            if page.epoch() == 2 {
                // The manager writes the new epoch first, so the deadline may still be missing or the old one. An epoch
                // read after the new deadline belongs to the new grant.
                let deadline = page.deadline_tsc();
                assert!([0, 1001, 1002].contains(&deadline));
            }
            if page.deadline_tsc() == 1002 {
                assert_eq!((page.epoch(), page.deadline_ns()), (2, 2002));
            }
        },
    );
}
