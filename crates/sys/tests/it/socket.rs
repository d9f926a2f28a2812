//! Descriptors that travel with bytes, and the credentials of the peer.

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use sluice_sys::socket::{
    MAX_FDS, connect_within, peer_credentials, peer_pidfd, recv, recv_with_fds, send_with_fds,
};
use sluice_sys::{memfd, pidfd};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn pair() -> (UnixStream, UnixStream) {
    UnixStream::pair().unwrap()
}

/// Sends bytes with `count` pipe ends. The returned ends report when all copies are closed.
fn send_pipes(sock: &UnixStream, count: usize) -> Vec<std::io::PipeReader> {
    let (readers, writers): (Vec<_>, Vec<_>) = (0..count).map(|_| std::io::pipe().unwrap()).unzip();
    let fds: Vec<_> = writers.iter().map(AsFd::as_fd).collect();
    assert_eq!(send_with_fds(sock.as_fd(), b"pipes", &fds).unwrap(), 5);
    readers
}

fn is_readable(fd: BorrowedFd<'_>) -> bool {
    poll(&mut [PollFd::new(fd, PollFlags::POLLIN)], PollTimeout::ZERO).unwrap() == 1
}

#[test]
fn descriptors_arrive_with_the_bytes_in_order_and_close_on_exec() {
    let (a, b) = pair();
    let messages = [&b"one"[..], b"two"].map(|text| memfd::sealed("message", text).unwrap());
    let sent = send_with_fds(a.as_fd(), &[9; 80], &[messages[0].as_fd(), messages[1].as_fd()]);
    assert_eq!(sent.unwrap(), 80);
    let mut buf = [0; 80];
    let (read, fds) = recv_with_fds(b.as_fd(), &mut buf).unwrap();
    assert_eq!((read, buf), (80, [9; 80]));
    let texts: Vec<_> = fds.iter().map(|fd| memfd::read_sealed(fd.as_fd(), 9).unwrap()).collect();
    assert_eq!(texts, [b"one", b"two"]);
    for fd in fds {
        let flags = FdFlag::from_bits_retain(fcntl(&fd, FcntlArg::F_GETFD).unwrap());
        assert!(flags.contains(FdFlag::FD_CLOEXEC));
    }
}

#[test]
fn bytes_without_descriptors_arrive_alone() {
    let (a, b) = pair();
    assert_eq!(send_with_fds(a.as_fd(), b"plain", &[]).unwrap(), 5);
    let mut buf = [0; 80];
    let (read, fds) = recv_with_fds(b.as_fd(), &mut buf).unwrap();
    assert_eq!((&buf[..read], fds.len()), (&b"plain"[..], 0));
}

#[test]
fn descriptors_belong_to_the_frame_that_is_being_read() {
    let (mut a, b) = pair();
    a.write_all(&[1; 80]).unwrap();
    let message = memfd::sealed("message", b"second").unwrap();
    send_with_fds(a.as_fd(), &[2; 80], &[message.as_fd()]).unwrap();
    a.write_all(&[3; 80]).unwrap();
    let came: Vec<_> = (0..3)
        .map(|_| {
            let mut buf = [0; 80];
            let (read, fds) = recv_with_fds(b.as_fd(), &mut buf).unwrap();
            (read, buf[0], fds.len())
        })
        .collect();
    assert_eq!(came, [(80, 1, 0), (80, 2, 1), (80, 3, 0)]);
}

#[test]
fn largest_number_of_descriptors_is_sent_and_one_more_is_refused() {
    let (a, b) = pair();
    let readers = send_pipes(&a, MAX_FDS);
    let received = recv(b.as_fd(), &mut [0; 80]).unwrap();
    assert_eq!((received.fds.len(), readers.len(), received.lacks_fds), (MAX_FDS, MAX_FDS, false));
    let too_many = vec![a.as_fd(); MAX_FDS + 1];
    let error = send_with_fds(a.as_fd(), b"x", &too_many).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}

#[test]
fn receiver_owns_all_received_descriptors() {
    use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
    use std::os::fd::AsRawFd;
    let (a, b) = pair();
    // Copies of one descriptor, so that the test needs few of its own where the limit is low.
    let (reader, writer) = std::io::pipe().unwrap();
    let raw = [writer.as_raw_fd(); 253];
    let bytes = [std::io::IoSlice::new(b"flood")];
    let rights = [ControlMessage::ScmRights(&raw)];
    sendmsg::<()>(a.as_raw_fd(), &bytes, &rights, MsgFlags::empty(), None).unwrap();
    drop(writer);
    let (read, kept) = recv_with_fds(b.as_fd(), &mut [0; 80]).unwrap();
    assert_eq!((read, kept.len()), (5, 253));
    // A pipe without a writer is at its end: no copy is left.
    assert!(!is_readable(reader.as_fd()));
    drop(kept);
    assert!(is_readable(reader.as_fd()));
}

/// This test binary as a child that runs one test of this module. That test does nothing in the parent.
fn as_child(test: &str, value: &std::ffi::OsStr) -> Command {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child
        .args(["--exact", &format!("socket::{test}")])
        .env("SLUICE_SYS_CHILD", value)
        .stdin(Stdio::piped())
        .stdout(Stdio::null());
    child
}

#[test]
fn receiver_at_its_limit_learns_that_descriptors_were_dropped() {
    let status = as_child("child_receives_at_its_limit", "".as_ref()).status().unwrap();
    assert!(status.success(), "{status}");
}

/// Lowers the limit of descriptors, which concerns the whole process.
#[test]
fn child_receives_at_its_limit() {
    if std::env::var_os("SLUICE_SYS_CHILD").is_some() {
        use nix::sys::resource::{Resource, getrlimit, setrlimit};
        use std::os::fd::AsRawFd;
        let (a, b) = pair();
        let _readers = send_pipes(&a, 2);
        let _more = send_pipes(&a, 2);
        a.shutdown(std::net::Shutdown::Write).unwrap();
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        // The limit is on numbers: the next free one is the last that this process may have.
        let next = b.try_clone().unwrap().as_raw_fd();
        setrlimit(Resource::RLIMIT_NOFILE, u64::try_from(next).unwrap() + 1, hard).unwrap();
        let first = recv(b.as_fd(), &mut [0; 80]).unwrap();
        let none = recv(b.as_fd(), &mut [0; 80]).unwrap();
        assert_eq!((first.len, first.fds.len(), first.lacks_fds), (5, 1, true));
        assert_eq!((none.len, none.fds.len(), none.lacks_fds), (5, 0, true));
        let end = recv(b.as_fd(), &mut [0; 80]).unwrap();
        assert_eq!((end.len, end.lacks_fds), (0, false));
    }
}

#[test]
fn sending_to_a_closed_peer_is_an_error_and_not_a_signal() {
    let status = as_child("child_sends_to_a_closed_peer", "".as_ref()).status().unwrap();
    assert!(status.success(), "{status}");
}

#[test]
fn child_sends_to_a_closed_peer() {
    if std::env::var_os("SLUICE_SYS_CHILD").is_some() {
        use nix::sys::signal::{SigHandler, Signal, signal};
        // SAFETY: the default action runs no code of ours. Rust's runtime ignores the signal; C programs do not.
        unsafe { signal(Signal::SIGPIPE, SigHandler::SigDfl) }.unwrap();
        let (a, b) = pair();
        drop(b);
        assert_eq!(send_with_fds(a.as_fd(), b"x", &[]).unwrap_err().kind(), ErrorKind::BrokenPipe);
        assert_eq!(recv_with_fds(a.as_fd(), &mut [0; 80]).unwrap().0, 0);
    }
}

#[test]
fn socket_without_data_would_block() {
    let (a, _b) = pair();
    a.set_nonblocking(true).unwrap();
    assert_eq!(recv_with_fds(a.as_fd(), &mut [0; 80]).unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn peer_of_a_pair_is_this_process() {
    let (a, _b) = pair();
    let peer = peer_credentials(a.as_fd()).unwrap();
    assert_eq!(peer.pid.unsigned_abs(), std::process::id());
    assert_eq!((peer.uid, peer.gid), (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw()));
}

#[test]
fn other_descriptors_have_no_peer_process() {
    let file = std::fs::File::open("/dev/null").unwrap();
    assert!(peer_credentials(file.as_fd()).is_err());
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    assert!(peer_pidfd(stream.as_fd()).is_err());
}

#[test]
fn peer_pidfd_outlives_its_socket_and_reports_the_end_of_the_process() {
    let dir = std::env::temp_dir().join(format!("sluice-sys-peer-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join("socket");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let mut child =
        as_child("child_connects_and_waits_for_the_end_of_input", path.as_os_str()).spawn().unwrap();
    let (stream, _) = listener.accept().unwrap();
    let pidfd = peer_pidfd(stream.as_fd()).unwrap();
    assert_eq!(peer_credentials(stream.as_fd()).unwrap().pid.unsigned_abs(), child.id());
    drop(stream);
    assert!(!is_readable(pidfd.as_fd()), "the process still lives");
    drop(child.stdin.take());
    assert_eq!(poll(&mut [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE), Ok(1));
    child.wait().unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn child_connects_and_waits_for_the_end_of_input() {
    if let Some(path) = std::env::var_os("SLUICE_SYS_CHILD") {
        let _stream = UnixStream::connect(path).unwrap();
        std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    }
}

#[test]
fn pidfd_becomes_readable_when_its_process_ends() {
    let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let fd: OwnedFd = pidfd::open(child.id().cast_signed()).unwrap();
    assert!(!is_readable(fd.as_fd()));
    drop(child.stdin.take());
    assert_eq!(poll(&mut [PollFd::new(fd.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE), Ok(1));
    child.wait().unwrap();
    let gone = pidfd::open(child.id().cast_signed()).unwrap_err();
    assert_eq!(gone.raw_os_error(), Some(nix::libc::ESRCH));
    assert_eq!(pidfd::open(-1).unwrap_err().raw_os_error(), Some(nix::libc::EINVAL));
}

#[test]
fn connecting_to_a_listener_that_accepts_nothing_ends_after_the_limit() {
    let path = std::env::temp_dir().join(format!("sluice-backlog-{}.sock", std::process::id()));
    let listener = UnixListener::bind(&path).unwrap();
    // One connection beyond the backlog waits.
    nix::sys::socket::listen(&listener, nix::sys::socket::Backlog::new(0).unwrap()).unwrap();
    let limit = Duration::from_millis(50);
    let first = connect_within(&path, limit).unwrap();
    let begun = Instant::now();
    let error = connect_within(&path, limit).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    assert!(begun.elapsed() >= limit);
    let (mut accepted, _) = listener.accept().unwrap();
    let mut connected = UnixStream::from(connect_within(&path, limit).unwrap());
    connected.write_all(b"x").unwrap();
    drop(connected);
    drop(first);
    assert_eq!(accepted.read(&mut [0]).unwrap(), 0, "of the first connection, which is closed");
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn path_that_fits_no_address_is_refused() {
    let long = "x".repeat(108);
    let error = connect_within(Path::new(&long), Duration::from_millis(1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}

#[test]
fn signals_do_not_prolong_the_wait_for_a_listener_that_accepts_nothing() {
    use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
    use std::os::unix::thread::JoinHandleExt;

    extern "C" fn ignore(_: i32) {}
    let action = SigAction::new(SigHandler::Handler(ignore), SaFlags::empty(), SigSet::empty());
    // SAFETY: the handler does nothing.
    unsafe { sigaction(Signal::SIGUSR1, &action) }.unwrap();
    let path = std::env::temp_dir().join(format!("sluice-signals-{}.sock", std::process::id()));
    let listener = UnixListener::bind(&path).unwrap();
    nix::sys::socket::listen(&listener, nix::sys::socket::Backlog::new(0).unwrap()).unwrap();
    let limit = Duration::from_millis(200);
    let _first = connect_within(&path, limit).unwrap();
    let waiting = std::thread::spawn({
        let path = path.clone();
        move || {
            let begun = Instant::now();
            (connect_within(&path, limit).unwrap_err().kind(), begun.elapsed())
        }
    });
    let begun = Instant::now();
    while !waiting.is_finished() && begun.elapsed() < 5 * limit {
        // SAFETY: the thread is not joined yet.
        assert_eq!(unsafe { nix::libc::pthread_kill(waiting.as_pthread_t(), nix::libc::SIGUSR1) }, 0);
        std::thread::sleep(Duration::from_millis(20));
    }
    let (kind, waited) = waiting.join().unwrap();
    assert_eq!(kind, ErrorKind::WouldBlock);
    assert!(limit <= waited && waited < 4 * limit, "it waited {waited:?}");
    std::fs::remove_file(&path).unwrap();
}
