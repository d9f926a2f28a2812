use super::*;
use std::os::fd::AsFd;

#[test]
fn fallback_without_statx_reads_the_same() {
    let null = std::fs::File::open("/dev/null").unwrap();
    let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    for fd in [null.as_fd(), socket.as_fd()] {
        let (one, other) = (stat(fd).unwrap(), stat_without_statx(fd).unwrap());
        assert_eq!((one.mode & libc::S_IFMT, one.identity), (other.mode & libc::S_IFMT, other.identity));
        assert_eq!(one.device, other.device);
    }
}
