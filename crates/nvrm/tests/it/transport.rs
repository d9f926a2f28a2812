//! Which descriptors are accepted as transports, and escapes over the simulator's socket.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::thread::{self, JoinHandle};

use sluice_nvrm::abi::ControlBlock;
use sluice_nvrm::transport::{open_transport, wire};
use sluice_nvrm::{ControlError, Controls, NvStatus};
use sluice_sys::socket::{recv_with_fds, send_with_fds, try_send_with_fds};

/// A pair of packet sockets.
fn packets() -> (OwnedFd, OwnedFd) {
    let mut fds = [0; 2];
    // SAFETY: room for two descriptors, which are then owned once each.
    unsafe {
        assert_eq!(
            libc::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0, fds.as_mut_ptr()),
            0
        );
        (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1]))
    }
}

/// A daemon that answers `count` requests. `answer` returns the errno and may change the request's bytes.
fn daemon(
    socket: OwnedFd,
    count: usize,
    answer: impl Fn(u32, &mut [u8], &mut [u8]) -> i32 + Send + 'static,
) -> JoinHandle<()> {
    thread::spawn(move || {
        for _ in 0..count {
            let mut packet = vec![0; wire::MAX_REQUEST];
            let (len, fds) = recv_with_fds(socket.as_fd(), &mut packet).unwrap();
            let request = wire::decode_request(&packet[..len]).unwrap();
            let (mut block, mut params) = (request.block.to_vec(), request.params.to_vec());
            let errno = answer(request.nr, &mut block, &mut params);
            let [to] = fds.as_slice() else { panic!("{} descriptors", fds.len()) };
            send_with_fds(to.as_fd(), &wire::encode_answer(errno, &block, &params), &[]).unwrap();
        }
    })
}

fn refused(fd: OwnedFd, simulated: bool) -> String {
    let refused = open_transport(fd, simulated).unwrap_err();
    assert!(sluice_sys::file_kind::of(refused.fd.as_fd()).is_ok(), "the refused descriptor is returned open");
    refused.to_string()
}

#[test]
fn only_the_control_device_and_if_simulated_a_packet_socket_are_accepted() {
    let null = || OwnedFd::from(File::open("/dev/null").unwrap());
    let expected = "descriptor is a character device 1:3, expected the control device 195:255";
    assert_eq!(refused(null(), false), expected);
    assert!(refused(null(), true).ends_with("the control device or a simulator's socket"));
    let file = tempfile::tempfile().unwrap();
    assert!(refused(file.into(), true).contains("neither a character device nor a socket"));
    let (pipe, _writer) = io::pipe().unwrap();
    assert!(refused(pipe.into(), true).contains("neither"));
    let (stream, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    assert!(refused(stream.into(), true).contains("a socket (domain 1, type 1)"));
    let (ours, _theirs) = packets();
    assert!(open_transport(ours.try_clone().unwrap(), true).is_ok());
    assert!(refused(ours, false).contains("a socket (domain 1, type 5)"));
}

#[test]
fn control_device_is_recognised_by_its_number() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("anything");
    let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: the path is a C string.
    if unsafe { libc::mknod(name.as_ptr(), libc::S_IFCHR | 0o600, libc::makedev(195, 255)) } != 0 {
        return; // mknod needs CAP_MKNOD.
    }
    // Without the driver the device cannot be opened except with O_PATH.
    let fd = File::options().read(true).custom_flags(libc::O_PATH).open(path).unwrap();
    let device = open_transport(fd.into(), false).unwrap();
    let mut slice = ControlBlock { command: 0xa06c_0103, params_len: 8, ..ControlBlock::default() }.encode();
    let error = device.escape(0x2a, &mut slice, &mut [0; 8]).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EBADF), "the escape reached the system call");
    for (command, params_len, params) in [(0xa06c_0103, 8, 4), (0xa06c_0103, 4, 4), (0x2080_0194, 8, 8)] {
        let mut block = ControlBlock { command, params_len, ..ControlBlock::default() }.encode();
        let error = device.escape(0x2a, &mut block, &mut vec![0; params]).unwrap_err();
        assert_eq!(
            error.kind(),
            io::ErrorKind::InvalidInput,
            "{command:x} with {params_len}, {params} bytes"
        );
    }
    assert_eq!(device.escape(0x2b, &mut [0; 32], &mut []).unwrap_err().kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn escape_over_the_socket_returns_the_daemons_bytes() {
    let (ours, theirs) = packets();
    let daemon = daemon(theirs, 1, |nr, block, params| {
        assert_eq!((nr, block.len(), &*params), (0x2a, 32, &[9, 8, 7, 6, 5, 4, 3, 2][..]));
        assert_eq!(block[16..24], [0; 8], "pointers are not sent");
        block[28] = 0x1f;
        params[0] = 1;
        0
    });
    let transport = open_transport(ours, true).unwrap();
    let mut block = ControlBlock { client: 5, params: 77, params_len: 8, ..ControlBlock::default() }.encode();
    let mut params = [9, 8, 7, 6, 5, 4, 3, 2];
    transport.escape(0x2a, &mut block, &mut params).unwrap();
    let block = ControlBlock::decode(&block).unwrap();
    assert_eq!((block.client, block.status, params), (5, 0x1f, [1, 8, 7, 6, 5, 4, 3, 2]));
    daemon.join().unwrap();
}

#[test]
fn errno_of_the_simulator_is_returned() {
    let (ours, theirs) = packets();
    let daemon = daemon(theirs, 1, |_, _, _| libc::EINVAL);
    let error = open_transport(ours, true).unwrap().escape(0x29, &mut [0; 16], &mut []).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    daemon.join().unwrap();
}

#[test]
fn two_users_of_one_socket_receive_their_own_answers() {
    let (ours, theirs) = packets();
    let shared = ours.try_clone().unwrap();
    let daemon = daemon(theirs, 200, |_, _, params| {
        params[0] ^= 0xff;
        0
    });
    let users = [(ours, 1_u8), (shared, 2)].map(|(fd, mark)| {
        thread::spawn(move || {
            let transport = open_transport(fd, true).unwrap();
            for _ in 0..100 {
                let mut params = [mark; 8];
                transport.escape(0x2a, &mut [0; 32], &mut params).unwrap();
                assert_eq!(params[0], mark ^ 0xff);
            }
        })
    });
    users.into_iter().for_each(|user| user.join().unwrap());
    daemon.join().unwrap();
}

#[test]
fn daemon_that_dies_before_or_during_a_request_is_an_io_error() {
    let (ours, theirs) = packets();
    let controls = Controls::from_descriptor(ours, true).unwrap();
    let dies = thread::spawn(move || {
        let (len, _fds) = recv_with_fds(theirs.as_fd(), &mut vec![0; wire::MAX_REQUEST]).unwrap();
        assert!(len > 0);
    });
    assert!(matches!(controls.set_timeslice(1, 2, 3), Err(ControlError::Io(_))));
    dies.join().unwrap();
    assert!(matches!(controls.set_timeslice(1, 2, 3), Err(ControlError::Io(_))));
}

#[test]
fn daemon_that_does_not_answer_is_a_timeout() {
    let (ours, _theirs) = packets();
    let controls = Controls::from_descriptor(ours, true).unwrap();
    assert!(matches!(controls.set_timeslice(1, 2, 3), Err(ControlError::Timeout)));
}

/// The count of requests that the other end receives when this many controls are made.
fn requests_received(ours: OwnedFd, theirs: &OwnedFd, tries: usize) -> usize {
    let controls = Controls::from_descriptor(ours, true).unwrap();
    for _ in 0..tries {
        assert!(matches!(controls.set_timeslice(1, 2, 3), Err(ControlError::Timeout)));
    }
    drop(controls);
    let packets = std::iter::from_fn(|| {
        let (len, fds) = recv_with_fds(theirs.as_fd(), &mut vec![0; wire::MAX_REQUEST]).unwrap();
        (len > 0).then_some(fds.len())
    });
    packets.filter(|fds| *fds == 1).count()
}

#[test]
fn no_request_is_sent_after_a_timeout() {
    let (ours, theirs) = packets();
    assert_eq!(requests_received(ours, &theirs, 3), 1);
}

#[test]
fn full_socket_is_a_timeout() {
    let (ours, theirs) = packets();
    while try_send_with_fds(ours.as_fd(), &[0; 4096], &[]).is_ok() {}
    assert_eq!(requests_received(ours, &theirs, 2), 0);
}

#[test]
fn refusal_of_the_simulated_driver_is_returned() {
    let (ours, theirs) = packets();
    let daemon = daemon(theirs, 1, |_, block, _| {
        block[28] = 0x33;
        0
    });
    let refused = Controls::from_descriptor(ours, true).unwrap().enable(1, 2, &[3]);
    assert!(matches!(refused, Err(ControlError::Refused(NvStatus::INVALID_OBJECT_HANDLE))));
    daemon.join().unwrap();
}

#[test]
fn requests_with_wrong_lengths_are_not_decoded() {
    let packet = wire::encode_request(0x2a, &[1; 32], &[2; 8]).unwrap();
    let request = wire::decode_request(&packet).unwrap();
    assert_eq!((request.nr, request.block, request.params), (0x2a, &[1; 32][..], &[2; 8][..]));
    assert_eq!(packet[..12], [0x2a, 0, 0, 0, 32, 0, 0, 0, 8, 0, 0, 0]);
    for len in 0..packet.len() {
        assert_eq!(wire::decode_request(&packet[..len]), None, "{len} bytes");
    }
    assert_eq!(wire::decode_request(&[&packet[..], &[0]].concat()), None);
    let mut long = packet;
    long[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(wire::decode_request(&long), None);
    assert_eq!(wire::encode_request(1, &[0; 49], &[]), None);
    assert!(wire::read_answer(&[0; 3], &mut [], &mut []).is_err());
    assert!(wire::read_answer(&[0; 5], &mut [], &mut []).is_err());
}
