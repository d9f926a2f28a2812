//! Descriptor escrow: what the node agent gets, so that no group stays disabled when the manager dies.

use crate::support::driver::{Descriptor, context};
use crate::support::hook::Hook;
use crate::support::{MS, World, until};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, setsockopt, socketpair, sockopt};
use sluice_comm::escrow::{EscrowMessage, MAX_LEN};
use sluice_sys::file_kind::{self, Kind};
use sluice_sys::socket::recv_with_fds;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};

/// The supervisor's end.
struct Supervisor(OwnedFd);

impl Supervisor {
    /// Of a manager that is started now.
    fn of_a_world() -> (World, Self) {
        Self::of_a_world_with_room_for(None)
    }

    /// The same, where only so many bytes may lie unread, or what the kernel gives at least.
    fn of_a_world_with_room_for(bytes: Option<usize>) -> (World, Self) {
        let (ours, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap();
        if let Some(bytes) = bytes {
            setsockopt(&theirs, sockopt::SndBuf, &bytes).unwrap();
        }
        let mut world = World::new();
        world.stop();
        world.escrow = Some(theirs);
        world.start();
        (world, Self(ours))
    }

    /// The next packet; `None` at the end.
    fn next(&self) -> Option<(EscrowMessage, Vec<OwnedFd>)> {
        let mut packet = [0; MAX_LEN];
        let (len, fds) = recv_with_fds(self.0.as_fd(), &mut packet).unwrap();
        (len > 0).then(|| (EscrowMessage::decode(&packet[..len]).unwrap(), fds))
    }

    /// Whether a packet, or the end, is there.
    fn has_next(&self) -> bool {
        let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO).unwrap() == 1
    }
}

fn process_with_groups(world: &World, client: &str, group: u32) -> (Hook, Descriptor) {
    let descriptor = Descriptor::new();
    let contexts = [context(group)];
    let announced: (&[_], &[_]) = (&contexts, &[descriptor.sent.as_fd()]);
    let hook = Hook::attach_with(&world.socket(), &world.peers.process(), client, 0, announced).unwrap();
    hook.becomes(true, world.clock.now());
    (hook, descriptor)
}

#[test]
fn group_is_escrowed_before_any_control_of_it() {
    let (world, supervisor) = Supervisor::of_a_world();
    world.driver.hold();
    let (_a, _da) = process_with_groups(&world, "be-a", 1);
    // The first control of it is on its way, and does not end.
    assert_eq!(world.driver.next().group(), 1);
    assert!(supervisor.has_next());
    let Some((EscrowMessage::Descriptor(line), fds)) = supervisor.next() else { panic!("no line") };
    let [descriptor, _process] = fds.as_slice() else { panic!("{} descriptors", fds.len()) };
    assert!(matches!(file_kind::of(descriptor.as_fd()).unwrap(), Kind::Socket { .. }));
    assert!(supervisor.has_next());
    let Some((EscrowMessage::Group { descriptor: behind, handles, .. }, _)) = supervisor.next() else {
        panic!("no group")
    };
    assert_eq!((behind, handles.channel_group), (line, 1));
    assert!(!supervisor.has_next());
    world.driver.let_all_go();
}

#[test]
fn escrow_of_groups_that_are_no_longer_controlled_is_revoked() {
    let (world, supervisor) = Supervisor::of_a_world();
    let (a, descriptor) = process_with_groups(&world, "be-a", 1);
    let Some((EscrowMessage::Descriptor(line), fds)) = supervisor.next() else { panic!("no line") };
    drop(fds);
    let Some((EscrowMessage::Group { group, .. }, _)) = supervisor.next() else { panic!("no group") };
    a.process.die();
    assert_eq!(supervisor.next().unwrap().0, EscrowMessage::Forget(group));
    assert_eq!(supervisor.next().unwrap().0, EscrowMessage::Close(line));
    descriptor.closes();
}

/// More than fit into the smallest buffer.
const MANY: u32 = 16;

#[test]
fn agent_that_pauses_reading_has_all_descriptors_in_the_end() {
    let (world, supervisor) = Supervisor::of_a_world_with_room_for(Some(1));
    let hooks: Vec<_> = (1..=MANY)
        .map(|group| process_with_groups(&world, ["be-a", "be-b"][group as usize % 2], group))
        .collect();
    let take_turns = || {
        world.settle();
        world.advance(MS);
    };
    until("quanta of all although no process reads the escrow", || {
        take_turns();
        (1..=MANY).filter(|group| world.driver.group(*group).0).count() == 1
    });
    // This one is gone before anybody was told of it, or right after.
    let mut hooks = hooks.into_iter();
    hooks.next_back().unwrap().0.process.die();
    let (mut lines, mut groups) = (BTreeMap::new(), BTreeMap::new());
    until("all of those that are left", || {
        take_turns();
        while supervisor.has_next() {
            match supervisor.next().unwrap() {
                (EscrowMessage::Descriptor(line), fds) => drop(lines.insert(line, fds)),
                (EscrowMessage::Group { group, descriptor: line, handles }, _) => {
                    assert!(lines.contains_key(&line), "a group of a line that was not given");
                    groups.insert(group, handles.channel_group);
                }
                (EscrowMessage::Forget(group), _) => drop(groups.remove(&group).unwrap()),
                (EscrowMessage::Close(line), _) => drop(lines.remove(&line).unwrap()),
            }
        }
        groups.values().copied().collect::<BTreeSet<_>>() == (1..MANY).collect()
            && lines.len() + 1 == MANY as usize
    });
    // From now on it is told as before.
    let (a, descriptor) = hooks.next().unwrap();
    a.process.die();
    until("the end of the first", || {
        take_turns();
        supervisor.has_next()
    });
    let EscrowMessage::Forget(group) = supervisor.next().unwrap().0 else { panic!("no end of a group") };
    assert_eq!(groups[&group], 1);
    let EscrowMessage::Close(line) = supervisor.next().unwrap().0 else { panic!("no end of a line") };
    lines.remove(&line).unwrap();
    descriptor.closes();
}

#[test]
fn manager_that_stops_in_order_revokes_the_whole_escrow() {
    let (mut world, supervisor) = Supervisor::of_a_world();
    let ((_a, _da), (_b, _db)) =
        (process_with_groups(&world, "be-a", 1), process_with_groups(&world, "be-b", 2));
    until("a group is disabled", || {
        world.settle();
        world.advance(MS);
        !world.driver.group(1).0 || !world.driver.group(2).0
    });
    world.stop();
    let mut left = BTreeSet::new();
    while let Some((deposit, _)) = supervisor.next() {
        match deposit {
            EscrowMessage::Group { group, .. } => drop(left.insert(group)),
            EscrowMessage::Forget(group) => assert!(left.remove(&group)),
            EscrowMessage::Descriptor(_) | EscrowMessage::Close(_) => {}
        }
    }
    assert!(left.is_empty(), "{left:?}");
    assert_eq!((world.driver.group(1), world.driver.group(2)), ((true, 2048), (true, 2048)));
}
