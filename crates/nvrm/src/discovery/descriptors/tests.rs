use super::*;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

fn listed(simulated: bool, from: RawFd, most: usize) -> DescriptorPart {
    driver_descriptors_from(i32::try_from(std::process::id()).unwrap(), simulated, from, most).unwrap()
}

#[test]
fn only_the_control_device_and_a_simulators_sockets_may_lead_to_the_driver() {
    let (null, (socket, _other)) = (File::open("/dev/null").unwrap(), UnixStream::pair().unwrap());
    let file = File::open("/proc/self/exe").unwrap();
    let (real, simulated) = (listed(false, 0, usize::MAX), listed(true, 0, usize::MAX));
    let is_listed = |part: &DescriptorPart, fd: RawFd| part.driver.contains(&fd);
    assert!(is_listed(&simulated, socket.as_raw_fd()) && !is_listed(&real, socket.as_raw_fd()));
    for other in [null.as_raw_fd(), file.as_raw_fd()] {
        assert!(!is_listed(&simulated, other) && !is_listed(&real, other));
    }
    assert_eq!(simulated.next, None);
}

#[test]
fn listing_goes_on_where_the_last_one_ended() {
    let sockets: Vec<_> = (0..300).map(|_| UnixStream::pair().unwrap()).collect();
    let (mut from, mut numbers) = (0, Vec::new());
    loop {
        let part = listed(true, from, 250);
        numbers.extend(part.driver);
        let Some(next) = part.next else { break };
        assert_eq!(part.listed, 250);
        from = next;
    }
    assert!(numbers.is_sorted_by(|one, next| one < next), "no number comes twice");
    let mut ends = sockets.iter().flat_map(|(one, other)| [one.as_raw_fd(), other.as_raw_fd()]);
    assert!(ends.all(|fd| numbers.contains(&fd)));
}

#[test]
fn process_that_does_not_exist_has_no_folder() {
    assert!(driver_descriptors_from(i32::MAX, true, 0, 1).is_err());
}
