//! The bytes that travel beside a frame, behind a descriptor: a sealed memfd, or one message in a socket.
//!
//! A process may have a limit of the size of files (RLIMIT_FSIZE), which holds for memfds too: a write, ftruncate or fallocate beyond it
//! raises SIGXFSZ, which ends most programs. No such limit holds for sockets.

use crate::memfd;
use std::io::{self, Error, ErrorKind};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;

/// Whether this process may make a file of so many bytes.
pub fn may_write(bytes: u64) -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is writable.
    let asked = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    asked == 0 && (limit.rlim_cur == libc::RLIM_INFINITY || limit.rlim_cur >= bytes)
}

/// A descriptor of these bytes: a sealed memfd, or a message if this process may not write so much to a file.
/// Errors: those of [`memfd::sealed`], or of the socket.
pub fn pack(name: &str, bytes: &[u8]) -> io::Result<OwnedFd> {
    if may_write(bytes.len() as u64) { memfd::sealed(name, bytes) } else { message(bytes) }
}

/// A socket with one message, which no process can add to.
fn message(bytes: &[u8]) -> io::Result<OwnedFd> {
    let (sender, receiver) = UnixDatagram::pair()?;
    sender.set_nonblocking(true)?;
    sender.send(bytes)?;
    Ok(receiver.into())
}

/// The bytes of a descriptor that [`pack`] has made, `max` at most. Never waits. A message can be read once.
/// Errors: InvalidData if there are more, or if they may still change; EAGAIN if the socket has no message.
pub fn read(fd: BorrowedFd<'_>, max: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0u8; max];
    // With MSG_TRUNC the result is the length of the whole message.
    let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
    // SAFETY: the buffer is writable for its length.
    let got = unsafe { libc::recv(fd.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), flags) };
    match usize::try_from(got) {
        Ok(len) if len <= max => {
            bytes.truncate(len);
            Ok(bytes)
        }
        Ok(len) => {
            let what = format!("message has {len} bytes, expected at most {max}");
            Err(Error::new(ErrorKind::InvalidData, what))
        }
        Err(_) => match Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ENOTSOCK) => memfd::read_sealed(fd, max),
            error => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn message_reads_back_and_nothing_waits_behind_it() {
        for bytes in [&b"hello"[..], &[7; 10_000]] {
            let fd = message(bytes).unwrap();
            assert_eq!(read(fd.as_fd(), 10_000).unwrap(), bytes);
            assert!(read(fd.as_fd(), 10_000).is_err(), "the sender is gone and the message is taken");
        }
        let error = read(message(b"hello").unwrap().as_fd(), 4).unwrap_err();
        assert_eq!(error.to_string(), "message has 5 bytes, expected at most 4");
    }

    #[test]
    fn sealed_memfd_reads_back() {
        assert_eq!(read(pack("payload", b"hello").unwrap().as_fd(), 5).unwrap(), b"hello");
    }
}
