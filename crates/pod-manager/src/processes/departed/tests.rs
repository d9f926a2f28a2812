use super::*;
use crate::io::test_io;
use std::os::fd::OwnedFd;

const KEY: Option<ProcessKey> = Some((10, 1));

fn pidfd() -> OwnedFd {
    sluice_sys::pidfd::open(std::process::id().cast_signed()).unwrap()
}

/// Each connection has another id and a pidfd of its own.
fn connect(departed: &mut Departed, id: u64, io: &Io) -> (ProcessId, OwnedFd) {
    let (id, pidfd) = (ProcessId(id), pidfd());
    departed.returned(id, KEY, io);
    (id, pidfd)
}

#[test]
fn process_that_reconnects_and_keeps_groups_costs_one_descriptor() {
    let (io, mut departed) = (test_io(), Departed::default());
    let mut ids = Vec::new();
    for number in 0..10 {
        let (id, pidfd) = connect(&mut departed, number, &io);
        assert_eq!(departed.descriptors(), 0, "the connection's own pidfd reports the end");
        departed.add(id, KEY, pidfd, true, &io);
        assert_eq!(departed.descriptors(), 1);
        ids.push(id);
    }
    assert_eq!(departed.take(ids[9], &io), ids, "the end concerns all of its departures");
    assert_eq!(departed.descriptors(), 0);
}

#[test]
fn end_of_a_process_that_reconnects_and_departs_without_groups_is_still_reported_for_its_earlier_groups() {
    let (io, mut departed) = (test_io(), Departed::default());
    let (first, first_pidfd) = connect(&mut departed, 1, &io);
    departed.add(first, KEY, first_pidfd, true, &io);
    let (second, second_pidfd) = connect(&mut departed, 2, &io);
    departed.add(second, KEY, second_pidfd, false, &io);
    assert_eq!(departed.descriptors(), 1);
    assert_eq!(departed.take(second, &io), [first]);
}

#[test]
fn departed_process_costs_nothing_once_its_groups_are_gone() {
    let (io, mut departed) = (test_io(), Departed::default());
    let (first, first_pidfd) = connect(&mut departed, 1, &io);
    departed.add(first, KEY, first_pidfd, true, &io);
    departed.forget(first, &io);
    assert_eq!(departed.descriptors(), 0);
    let (second, second_pidfd) = connect(&mut departed, 2, &io);
    departed.add(second, KEY, second_pidfd, false, &io);
    assert_eq!(departed.descriptors(), 0);
}
