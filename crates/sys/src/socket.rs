//! Unix sockets: descriptors that travel with bytes, and the credentials of the peer.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// The most descriptors that travel with one message.
pub const MAX_FDS: usize = 9;

/// Linux 6.5; not in every libc's headers.
const SO_PEERPIDFD: i32 = 77;

/// Credentials of the peer when it connected, or made the socket pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerCredentials {
    /// Process id in our namespace; 0 if the process has none there.
    pub pid: i32,
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
}

/// Credentials of the process that connected, as the kernel recorded them.
/// Errors: the error of getsockopt: ENOTSOCK, or ENOTCONN-like refusals for a descriptor that is not a connected unix
/// socket.
pub fn peer_credentials(sock: BorrowedFd<'_>) -> io::Result<PeerCredentials> {
    let found: libc::ucred = option(sock, libc::SO_PEERCRED)?;
    Ok(PeerCredentials { pid: found.pid, uid: found.uid, gid: found.gid })
}

/// A descriptor of the process that connected, closed on exec, readable when the process ends.
///
/// Kernels before 6.5 do not provide one. There it is opened by process id, which another process may have by then. The
/// caller must compare `/proc` with the credentials *after* this call.
/// Errors: the error of getsockopt or pidfd_open; ESRCH if the process is gone.
pub fn peer_pidfd(sock: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    match option::<i32>(sock, SO_PEERPIDFD) {
        // SAFETY: the kernel has just made this descriptor for us; no other code owns it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        Ok(_) => Err(io::ErrorKind::InvalidData.into()),
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
            crate::pidfd::open(peer_credentials(sock)?.pid)
        }
        Err(error) => Err(error),
    }
}

/// Connects to a unix socket. `limit` also bounds each later wait for room to send: a listener that accepts no connections, or
/// a peer that reads nothing, does not keep the caller waiting.
/// Errors: of socket, setsockopt or connect; `WouldBlock` after the limit.
pub fn connect_within(path: &Path, limit: Duration) -> io::Result<OwnedFd> {
    // SAFETY: no pointers; the descriptor is new and owned by nothing else.
    let socket = match unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) } {
        -1 => return Err(io::Error::last_os_error()),
        // SAFETY: as above.
        fd => unsafe { OwnedFd::from_raw_fd(fd) },
    };
    set_send_limit(&socket, limit)?;
    // SAFETY: zeroes are a valid address.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::sa_family_t::try_from(libc::AF_UNIX).unwrap_or(0);
    let bytes = path.as_os_str().as_bytes();
    // The last byte stays the NUL.
    if bytes.len() >= address.sun_path.len() || bytes.contains(&0) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (slot, byte) in address.sun_path.iter_mut().zip(bytes) {
        *slot = libc::c_char::from_ne_bytes([*byte]);
    }
    let length = libc::socklen_t::try_from(size_of_val(&address)).unwrap_or(0);
    let begun = Instant::now();
    loop {
        // SAFETY: `address` is readable for `length` bytes.
        if unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length) } == 0 {
            set_send_limit(&socket, limit)?;
            return Ok(socket);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
        // The next call waits for as long as the limit of the socket states.
        match limit.checked_sub(begun.elapsed()) {
            Some(left) if left.as_micros() > 0 => set_send_limit(&socket, left)?,
            _ => return Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

/// Limits each wait for room to send, and for a connection, to `limit` in whole microseconds. 0 means no limit.
fn set_send_limit(socket: &OwnedFd, limit: Duration) -> io::Result<()> {
    let time = libc::timeval {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_usec: i64::from(limit.subsec_micros()),
    };
    let length = libc::socklen_t::try_from(size_of_val(&time)).unwrap_or(0);
    // SAFETY: `time` is readable for `length` bytes.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_SNDTIMEO,
            (&raw const time).cast(),
            length,
        )
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A socket option of a type for which every bit pattern is valid.
pub(crate) fn option<T: Copy>(sock: BorrowedFd<'_>, name: i32) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut len = libc::socklen_t::try_from(size_of::<T>()).unwrap_or(0);
    // SAFETY: `value` is writable for `len` bytes and `len` for one integer; the kernel writes no more than `len`.
    let done = unsafe {
        libc::getsockopt(sock.as_raw_fd(), libc::SOL_SOCKET, name, value.as_mut_ptr().cast(), &raw mut len)
    };
    match done {
        // SAFETY: zeroed, then partly overwritten, and only used with structs of integers.
        0 => Ok(unsafe { value.assume_init() }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The kernel's limit of descriptors in one message (SCM_MAX_FD). With room for all of them, the kernel never closes
/// surplus ones during the call: such a close can block for as long as the sender wants.
const KERNEL_MAX_FDS: u32 = 253;

/// Room for one control message with [`KERNEL_MAX_FDS`] descriptors, aligned as its header requires.
#[repr(C)]
union Control {
    header: libc::cmsghdr,
    room: [u8; CONTROL_LEN],
}

/// Bytes of descriptors in a full message.
const FDS_LEN: u32 = 36;
const _: () = assert!(FDS_LEN as usize == MAX_FDS * size_of::<i32>());

// SAFETY: CMSG_SPACE is arithmetic on its argument.
const CONTROL_LEN: usize = unsafe { libc::CMSG_SPACE(KERNEL_MAX_FDS * 4) } as usize;

/// Sends bytes and, with the first byte, descriptors. Returns the number of bytes sent. A closed peer is an error, not a
/// SIGPIPE. Without bytes no descriptor is sent.
/// Errors: InvalidInput for more than [`MAX_FDS`] descriptors; otherwise sendmsg's error, never Interrupted.
pub fn send_with_fds(sock: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
    send(sock, bytes, fds, libc::MSG_NOSIGNAL)
}

/// As [`send_with_fds`], but never waits for room, even on a blocking socket.
/// Errors: WouldBlock if there is no room; otherwise as [`send_with_fds`].
pub fn try_send_with_fds(sock: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
    send(sock, bytes, fds, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT)
}

fn send(sock: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>], flags: i32) -> io::Result<usize> {
    let len = match u32::try_from(size_of_val(fds)) {
        Ok(len @ 0..=FDS_LEN) => len,
        _ => return Err(io::ErrorKind::InvalidInput.into()),
    };
    let mut control = Control { room: [0; CONTROL_LEN] };
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut message = message(&mut part, &mut control);
    if len == 0 {
        message.msg_control = std::ptr::null_mut();
        message.msg_controllen = 0;
    } else {
        // SAFETY: arithmetic on the argument.
        message.msg_controllen = unsafe { libc::CMSG_SPACE(len) } as _;
        // SAFETY: `control` is large enough for a header and MAX_FDS descriptors, aligned for a header, and
        // `msg_controllen` lies within it; so CMSG_FIRSTHDR returns its start, which is not null, and CMSG_DATA a
        // place behind the header with room for `fds.len()` integers. Unaligned writes need no alignment.
        unsafe {
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(len) as _;
            let data = libc::CMSG_DATA(header).cast::<i32>();
            for (index, fd) in fds.iter().enumerate() {
                data.add(index).write_unaligned(fd.as_raw_fd());
            }
        }
    }
    retry(|| {
        // SAFETY: `message` points at `part` and `control`, which live until the call is over; `part` describes
        // `bytes`, which sendmsg only reads.
        unsafe { libc::sendmsg(sock.as_raw_fd(), &raw const message, flags) }
    })
}

/// What one receive has taken from a socket.
#[derive(Debug)]
pub struct Received {
    /// Bytes in the buffer. 0 means that the peer has left (or that the buffer is empty).
    pub len: usize,
    /// Descriptors that came with them, closed on exec.
    pub fds: Vec<OwnedFd>,
    /// The kernel dropped descriptors. With room for all of them, this process could not have them: its limit is reached.
    pub lacks_fds: bool,
}

/// As [`recv`], for a caller that treats dropped descriptors as descriptors that were not sent.
/// Errors: as [`recv`].
pub fn recv_with_fds(sock: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    recv(sock, buf).map(|received| (received.len, received.fds))
}

/// Receives bytes and all descriptors that came with them; the sender may have sent more than [`MAX_FDS`], and closing
/// them may take long.
/// Errors: the error of recvmsg, never Interrupted; WouldBlock also when a receive timeout is up.
pub fn recv(sock: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<Received> {
    let mut control = Control { room: [0; CONTROL_LEN] };
    let mut part = libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() };
    let mut message = message(&mut part, &mut control);
    let len = retry(|| {
        // SAFETY: `message` points at `part` and `control`, which live until the call is over; `part` describes
        // `buf`, which is ours to write, and `msg_controllen` does not exceed `control`.
        unsafe { libc::recvmsg(sock.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) }
    })?;
    let mut fds = Vec::new();
    // SAFETY: after a successful recvmsg the kernel has set `msg_controllen` to what it wrote into `control`, so
    // CMSG_FIRSTHDR and CMSG_NXTHDR walk whole headers within it and end with null.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    while !header.is_null() {
        // SAFETY: not null, so a whole header within `control` that the kernel has filled in.
        let (level, kind, len) = unsafe { ((*header).cmsg_level, (*header).cmsg_type, (*header).cmsg_len) };
        if level == libc::SOL_SOCKET && kind == libc::SCM_RIGHTS {
            // SAFETY: arithmetic on the argument.
            let prefix = unsafe { libc::CMSG_LEN(0) } as usize;
            for index in 0..len.saturating_sub(prefix) / size_of::<i32>() {
                // SAFETY: `cmsg_len` counts the header and the descriptors that the kernel wrote behind it, so `index`
                // is one of them. Each is a descriptor made for us by this call; it is taken over exactly once.
                let fd = unsafe {
                    OwnedFd::from_raw_fd(libc::CMSG_DATA(header).cast::<i32>().add(index).read_unaligned())
                };
                fds.push(fd);
            }
        }
        // SAFETY: `header` is one of `message`'s, as CMSG_NXTHDR wants.
        header = unsafe { libc::CMSG_NXTHDR(&raw const message, header) };
    }
    Ok(Received { len, fds, lacks_fds: message.msg_flags & libc::MSG_CTRUNC != 0 })
}

/// A message of one part with room for control data.
fn message(part: &mut libc::iovec, control: &mut Control) -> libc::msghdr {
    // SAFETY: a msghdr is pointers and integers, for which zeroes are valid.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = part;
    message.msg_iovlen = 1;
    message.msg_control = std::ptr::from_mut(control).cast();
    message.msg_controllen = CONTROL_LEN as _;
    message
}

/// Repeats a call that a signal interrupted.
fn retry(mut call: impl FnMut() -> isize) -> io::Result<usize> {
    loop {
        if let Ok(done) = usize::try_from(call()) {
            return Ok(done);
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINTR) {
            return Err(error);
        }
    }
}
