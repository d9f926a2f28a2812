use super::*;
use std::fs::File;
use std::os::fd::AsFd;

#[test]
fn copies_are_the_same_open_file_and_two_openings_are_not() {
    let [one, other] = [(); 2].map(|()| File::open("/dev/null").unwrap());
    let copy = one.try_clone().unwrap();
    let us = i32::try_from(std::process::id()).unwrap();
    let is_same = |file: &File| is_same_file(one.as_fd(), us, file.as_raw_fd());
    assert_eq!((is_same(&one), is_same(&copy), is_same(&other)), (true, true, false));
    assert!(!is_same_file(one.as_fd(), us, 1 << 20));
    assert!(!is_same_file(one.as_fd(), us, -1));
}
