use super::*;
use std::fs::File;
use std::os::unix::net::UnixStream;

/// The descriptors of this process from `from` on.
fn listed(from: RawFd, most: usize) -> (Vec<(RawFd, Link)>, Listed) {
    let pid = i32::try_from(std::process::id()).unwrap();
    let mut found = Vec::new();
    let end =
        DescriptorFolder::open(pid).unwrap().list(from, most, |number, link| found.push((number, link)));
    (found, end.unwrap())
}

#[test]
fn kinds_of_descriptors_are_found() {
    let (null, (socket, _other)) = (File::open("/dev/null").unwrap(), UnixStream::pair().unwrap());
    let file = File::open("/proc/self/exe").unwrap();
    let (found, end) = listed(0, usize::MAX);
    let link = |fd: RawFd| found.iter().find(|(number, _)| *number == fd).map(|(_, link)| *link);
    assert_eq!(link(null.as_raw_fd()), Some(Link::Character { major: 1, minor: 3 }));
    assert_eq!(link(socket.as_raw_fd()), Some(Link::Socket));
    assert_eq!(link(file.as_raw_fd()), Some(Link::Other));
    assert_eq!(end, Listed::Completely);
}

#[test]
fn listing_goes_on_where_the_last_one_ended() {
    let files: Vec<File> = (0..600).map(|_| File::open("/dev/null").unwrap()).collect();
    let (mut from, mut numbers) = (0, Vec::new());
    loop {
        let (found, end) = listed(from, 250);
        numbers.extend(found.iter().map(|(number, _)| *number));
        match end {
            Listed::Until(next) => from = next,
            Listed::Completely => break,
        }
        assert_eq!(found.len(), 250);
    }
    assert!(numbers.is_sorted_by(|one, next| one < next), "no number comes twice");
    assert!(files.iter().all(|file| numbers.contains(&file.as_raw_fd())));
}

#[test]
fn process_that_does_not_exist_has_no_folder() {
    assert!(DescriptorFolder::open(i32::MAX).is_err());
}
