//! Waiting on shared words. The tests order threads by the words and the kernel's count of waiters, never by sleeping.

use sluice_sys::futex::{Wake, wait_low, wake_low};
use sluice_sys::page::{Access, SharedPage};
use std::os::fd::AsFd;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;

/// Wakes until `count` waiters have been woken, including waiters that arrive later.
fn wake_all_of(count: u32, wake: impl Fn(u32) -> u32) {
    let mut left = count;
    while left > 0 {
        left -= wake(left);
        thread::yield_now();
    }
}

#[test]
fn changed_word_is_not_waited_for() {
    assert_eq!(wait_low(&AtomicU64::new(1), 0, None), Wake::Changed);
    assert_eq!(wait_low(&AtomicU64::new(1 << 32), 1, None), Wake::Changed);
}

#[test]
fn wait_ends_after_its_timeout() {
    assert_eq!(wait_low(&AtomicU64::new(0), 0, Some(Duration::ZERO)), Wake::TimedOut);
    assert_eq!(wait_low(&AtomicU64::new(0), 0, Some(Duration::from_micros(1))), Wake::TimedOut);
}

#[test]
fn wake_without_waiters_wakes_none() {
    assert_eq!(wake_low(&AtomicU64::new(0), 5), 0);
}

#[test]
fn wake_reaches_exactly_the_given_number_of_waiters() {
    let word = AtomicU64::new(0);
    thread::scope(|scope| {
        let waiters: Vec<_> = (0..3).map(|_| scope.spawn(|| wait_low(&word, 0, None))).collect();
        for _ in 0..3 {
            let mut woken = 0;
            while woken == 0 {
                woken = wake_low(&word, 1);
                thread::yield_now();
            }
            assert_eq!(woken, 1);
        }
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), Wake::Woken);
        }
    });
    assert_eq!(wake_low(&word, u32::MAX), 0);
}

#[test]
fn only_the_low_half_of_a_word_is_compared() {
    let word = AtomicU64::new(0xdead_beef_0000_0005);
    assert_eq!(wait_low(&word, 5, Some(Duration::ZERO)), Wake::TimedOut);
    assert_eq!(wait_low(&word, 0xdead_beef, Some(Duration::ZERO)), Wake::Changed);
}

#[test]
fn reader_of_a_sealed_page_is_woken_through_another_mapping() {
    let (ours, fd) = SharedPage::create("page").unwrap();
    SharedPage::seal_future_write(&fd).unwrap();
    let reader = SharedPage::reopen_read_only(&fd).unwrap();
    let theirs = SharedPage::map(reader.as_fd(), Access::ReadOnly).unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| wait_low(&theirs.words()[16], 0, None));
        wake_all_of(1, |count| wake_low(&ours.words()[16], count));
        assert_eq!(waiter.join().unwrap(), Wake::Woken);
        ours.words()[16].store(1, SeqCst);
        assert_eq!(wait_low(&theirs.words()[16], 0, None), Wake::Changed);
        // In the other direction, waking needs no write access either.
        let waiter = scope.spawn(|| wait_low(&ours.words()[17], 0, None));
        wake_all_of(1, |count| wake_low(&theirs.words()[17], count));
        assert_eq!(waiter.join().unwrap(), Wake::Woken);
    });
}
