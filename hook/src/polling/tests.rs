use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use super::*;

/// Runs in a child, because the limit holds for a whole process.
#[test]
fn wait_takes_its_time_in_a_process_that_may_open_no_descriptors() {
    let (ours, _theirs) = UnixStream::pair().expect("a connection");
    let limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the child makes only system calls, and ends without running anything of the parent.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: the limit is readable.
        let lowered = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } == 0;
        let begun = Instant::now();
        let ended = has_ended_within(ours.as_raw_fd(), 50);
        let has_waited = begun.elapsed() >= Duration::from_millis(50);
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(!lowered || ended || !has_waited)) };
    }
    let mut status = -1;
    // SAFETY: `status` is writable.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "it returned early");
}
