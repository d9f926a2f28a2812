//! A manager that dies, releases groups, or outlives a tenant, played by the test; also the driver, which records the
//! controls.

use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command as Program};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use sluice_comm::attach::ContextHandles;
use sluice_comm::escrow::EscrowMessage;
use sluice_nvrm::abi::{Command, ControlBlock, DisableChannels, timeslice};
use sluice_nvrm::transport::wire;
use sluice_sys::socket::{recv_with_fds, send_with_fds};

use super::*;

const GPU: &str = "GPU-test";

/// The limit of each wait. It decides no outcome: it only ends a test that hangs.
const HANGS: Duration = Duration::from_secs(60);

/// A control as the driver receives it: of the group, or of the group with this first channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Slice(u32, u64),
    Start(u32),
    Stop(u32),
}

fn packets() -> (OwnedFd, OwnedFd) {
    socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap()
}

/// Groups whose time slices the driver refuses to change.
type Refusing = &'static [u32];

/// A control descriptor of a fake driver. It obeys, except that it refuses time slices of the groups in `refusing`.
/// The time slice of a group is initially its number. The calls end when the last copy of the descriptor is closed.
fn driver(refusing: Refusing) -> (OwnedFd, Receiver<Call>) {
    let (ours, theirs) = packets();
    let (sender, calls) = channel();
    thread::spawn(move || {
        let mut packet = vec![0; wire::MAX_REQUEST];
        while let Ok((len @ 1.., fds)) = recv_with_fds(ours.as_fd(), &mut packet) {
            let request = wire::decode_request(&packet[..len]).unwrap();
            let block = ControlBlock::decode(request.block).unwrap();
            let (mut answered, mut params) = (request.block.to_vec(), request.params.to_vec());
            let refused = refusing.contains(&block.object);
            let call = if block.command == Command::GET_TIMESLICE.number {
                params = timeslice::encode(block.object.into()).to_vec();
                None
            } else if block.command == Command::SET_TIMESLICE.number {
                if refused {
                    answered = ControlBlock { status: 0x56, ..block }.encode().to_vec();
                }
                Some(Call::Slice(block.object, timeslice::decode(request.params).unwrap()))
            } else {
                let switch = DisableChannels::decode(request.params).unwrap();
                let channel = switch.channels[0].1;
                Some(if switch.disable { Call::Stop(channel) } else { Call::Start(channel) })
            };
            let answer = wire::encode_answer(0, &answered, &params);
            send_with_fds(fds[0].as_fd(), &answer, &[]).unwrap();
            if let Some(call) = call {
                sender.send(call).unwrap();
            }
        }
    });
    (theirs, calls)
}

/// An idle program, and its pidfd.
fn tenant() -> (Child, OwnedFd) {
    let child = Program::new("sleep").arg("100000").spawn().unwrap();
    let pidfd = sluice_sys::pidfd::open(i32::try_from(child.id()).unwrap()).unwrap();
    (child, pidfd)
}

fn give(manager: &OwnedFd, deposit: &EscrowMessage, descriptors: &[&OwnedFd]) {
    let fds: Vec<_> = descriptors.iter().map(|fd| fd.as_fd()).collect();
    send_with_fds(manager.as_fd(), &deposit.encode(), &fds).unwrap();
}

/// Group `number` with channel `number`, behind a descriptor.
fn group(number: u32, line: u64) -> EscrowMessage {
    let handles = ContextHandles {
        descriptor: 0,
        client: 1,
        subdevice: 2,
        channel_group: number,
        channels: vec![number],
    };
    EscrowMessage::Group { group: number.into(), descriptor: line, handles }
}

/// A manager with these groups behind one descriptor, whose process is the child.
fn manager(groups: &[u32], refusing: Refusing) -> (Escrow, OwnedFd, Receiver<Call>, Child) {
    let (escrow, manager) = Escrow::start(GPU, true).unwrap();
    let (descriptor, calls) = driver(refusing);
    let (child, pidfd) = tenant();
    give(&manager, &EscrowMessage::Descriptor(1), &[&descriptor, &pidfd]);
    for number in groups {
        give(&manager, &group(*number, 1), &[]);
    }
    (escrow, manager, calls, child)
}

async fn released(escrow: Escrow) -> ReleaseCounts {
    tokio::time::timeout(HANGS, escrow.released).await.unwrap().unwrap()
}

fn end(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[tokio::test]
async fn groups_of_a_dead_manager_are_released_with_their_default_slice_and_closed() {
    let (escrow, manager, calls, child) = manager(&[7, 8], &[]);
    drop(manager);
    assert_eq!(released(escrow).await, ReleaseCounts { released: 2, failed: 0 });
    // This also proves that every copy of the descriptor is closed, because the calls end.
    let made: Vec<Call> = calls.iter().collect();
    let of = |group| [Call::Slice(group, 2048), Call::Start(group)];
    assert!(made == [of(7), of(8)].concat() || made == [of(8), of(7)].concat(), "{made:?}");
    end(child);
}

#[tokio::test]
async fn group_that_keeps_its_slice_is_enabled_unless_two_would_have_tiny_slices() {
    // The time slice of a quantum is harmless. Of two groups with tiny slices, whose state is unknown, none is
    // enabled.
    let (escrow, manager, calls, child) = manager(&[5000, 6000, 1, 2, 9], &[5000, 6000, 1, 2]);
    drop(manager);
    assert_eq!(released(escrow).await, ReleaseCounts { released: 1, failed: 4 });
    let mut started: Vec<Call> = calls.iter().filter(|call| matches!(call, Call::Start(_))).collect();
    started.sort_by_key(|call| format!("{call:?}"));
    assert_eq!(started, [Call::Start(5000), Call::Start(6000), Call::Start(9)]);
    end(child);
}

#[tokio::test]
async fn forgotten_group_is_not_touched() {
    let (escrow, manager, calls, child) = manager(&[7, 8], &[]);
    give(&manager, &EscrowMessage::Forget(7), &[]);
    drop(manager);
    assert_eq!(released(escrow).await, ReleaseCounts { released: 1, failed: 0 });
    assert_eq!(calls.iter().collect::<Vec<_>>(), [Call::Slice(8, 2048), Call::Start(8)]);
    end(child);
}

#[tokio::test]
async fn descriptor_of_an_ended_process_is_closed_while_the_manager_runs() {
    let (escrow, manager, calls, child) = manager(&[7], &[]);
    end(child);
    // The calls end when the descriptor is closed.
    assert_eq!(calls.recv_timeout(HANGS), Err(std::sync::mpsc::RecvTimeoutError::Disconnected));
    drop(manager);
    assert_eq!(released(escrow).await, ReleaseCounts::default());
}

#[tokio::test]
async fn descriptor_is_closed_when_the_manager_says_so() {
    let (escrow, manager, calls, child) = manager(&[7], &[]);
    give(&manager, &EscrowMessage::Close(1), &[]);
    assert_eq!(calls.recv_timeout(HANGS), Err(std::sync::mpsc::RecvTimeoutError::Disconnected));
    drop(manager);
    assert_eq!(released(escrow).await, ReleaseCounts::default());
    end(child);
}

#[tokio::test]
async fn other_descriptors_are_closed_and_control_descriptors_are_kept() {
    let (escrow, manager, calls, child) = manager(&[7], &[]);
    let (sent, mut other) = UnixStream::pair().unwrap();
    let (second, pidfd) = tenant();
    give(&manager, &EscrowMessage::Descriptor(2), &[&sent.into(), &pidfd]);
    give(&manager, &group(9, 2), &[]);
    send_with_fds(manager.as_fd(), b"nonsense", &[]).unwrap();
    other.set_read_timeout(Some(HANGS)).unwrap();
    assert_eq!(other.read(&mut [0]).unwrap(), 0, "a copy is still open");
    drop(manager);
    assert_eq!(released(escrow).await, ReleaseCounts { released: 1, failed: 0 });
    assert_eq!(calls.iter().collect::<Vec<_>>(), [Call::Slice(7, 2048), Call::Start(7)]);
    end(child);
    end(second);
}
