use super::*;
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::os::fd::AsFd;

#[test]
fn mark_is_visible_through_copies_of_a_file_only() {
    let make = || EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).unwrap();
    let (one, other) = (make(), make());
    let copy = one.as_fd().try_clone_to_owned().unwrap();
    assert!(mark(one.as_fd(), 3));
    assert!(has_mark(one.as_fd(), 3) && has_mark(copy.as_fd(), 3));
    assert!(!has_mark(one.as_fd(), 4));
    // Files without a mark have none of the numbers.
    let file = std::fs::File::open("/dev/null").unwrap();
    let unmarked = |number| !has_mark(other.as_fd(), number) && !has_mark(file.as_fd(), number);
    assert!((0..MARKS).all(unmarked));
    assert!(mark(other.as_fd(), 4));
    assert!(has_mark(other.as_fd(), 4) && !has_mark(one.as_fd(), 4));
    one.write(1).unwrap();
    assert_eq!(one.read().unwrap(), 1, "it rings as before");
}

#[test]
fn eventfds_are_told_apart_and_copies_of_one_are_not() {
    let make = || EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC).unwrap();
    let (one, other) = (make(), make());
    let copy = one.as_fd().try_clone_to_owned().unwrap();
    let kept = id(one.as_fd());
    assert!(kept.is_some());
    assert_eq!(id(copy.as_fd()), kept);
    assert_ne!(id(other.as_fd()), kept);
    assert_eq!(id(std::fs::File::open("/dev/null").unwrap().as_fd()), None);
}
