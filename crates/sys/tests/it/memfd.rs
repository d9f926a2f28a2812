//! Sealed messages: they cannot change, and nothing else is read as one.

use sluice_sys::memfd;
use sluice_sys::page::SharedPage;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::AsFd;

#[test]
fn sealed_message_reads_back_any_number_of_times() {
    for message in [&b"hello"[..], &[], &[7; 10_000]] {
        let fd = memfd::sealed("message", message).unwrap();
        for _ in 0..2 {
            assert_eq!(memfd::read_sealed(fd.as_fd(), 10_000).unwrap(), message);
        }
    }
}

#[test]
fn sealed_message_cannot_be_changed() {
    let mut file = File::from(memfd::sealed("message", b"hello").unwrap());
    assert_eq!(file.write(b"x").unwrap_err().kind(), ErrorKind::PermissionDenied);
    assert_eq!(file.set_len(0).unwrap_err().kind(), ErrorKind::PermissionDenied);
}

#[test]
fn message_longer_than_the_maximum_is_refused() {
    let fd = memfd::sealed("message", b"hello").unwrap();
    let error = memfd::read_sealed(fd.as_fd(), 4).unwrap_err();
    assert_eq!(error.to_string(), "memfd has 5 bytes, expected at most 4");
}

#[test]
fn file_that_may_still_change_is_not_read() {
    let (_page, fd) = SharedPage::create("page").unwrap();
    let error = memfd::read_sealed(fd.as_fd(), 4096).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    let ordinary = File::open(std::env::current_exe().unwrap()).unwrap();
    assert!(memfd::read_sealed(ordinary.as_fd(), usize::MAX).is_err());
}

#[test]
fn name_with_a_nul_is_refused() {
    assert_eq!(memfd::sealed("a\0b", b"").unwrap_err().kind(), ErrorKind::InvalidInput);
}
