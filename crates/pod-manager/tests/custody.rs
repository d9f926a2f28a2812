//! What the supervisor gets, so that nobody stays stopped when the manager dies.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use sluice_comm::custody::{Deposit, MAX_LEN};
use sluice_sys::kind::{self, Kind};
use sluice_sys::socket::recv_with_fds;
use std::os::fd::{AsFd, OwnedFd};
use support::driver::{Descriptor, context};
use support::hook::Hook;
use support::{MS, World, until};

/// The supervisor's end.
struct Supervisor(OwnedFd);

impl Supervisor {
    /// Of a manager that is started now.
    fn of_a_world() -> (World, Self) {
        let (ours, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap();
        let mut world = World::new();
        world.stop();
        world.custody = Some(theirs);
        world.start();
        (world, Self(ours))
    }

    /// The next packet; `None` at the end.
    fn next(&self) -> Option<(Deposit, Vec<OwnedFd>)> {
        let mut packet = [0; MAX_LEN];
        let (len, fds) = recv_with_fds(self.0.as_fd(), &mut packet).unwrap();
        (len > 0).then(|| (Deposit::decode(&packet[..len]).unwrap(), fds))
    }

    /// Whether a packet, or the end, is there.
    fn has_next(&self) -> bool {
        let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO).unwrap() == 1
    }
}

fn steered(world: &World, client: &str, group: u32) -> (Hook, Descriptor) {
    let descriptor = Descriptor::new();
    let contexts = [context(group)];
    let announced: (&[_], &[_]) = (&contexts, &[descriptor.sent.as_fd()]);
    let hook = Hook::attach_with(&world.socket(), &world.peers.process(), client, 0, announced).unwrap();
    hook.becomes(true, world.clock.now());
    (hook, descriptor)
}

#[test]
fn a_group_is_deposited_before_anything_is_done_to_it() {
    let (world, supervisor) = Supervisor::of_a_world();
    world.driver.hold();
    let (_a, _da) = steered(&world, "be-a", 1);
    // The first control of it is on its way, and does not end.
    assert_eq!(world.driver.next().group(), 1);
    assert!(supervisor.has_next());
    let Some((Deposit::Line(line), fds)) = supervisor.next() else { panic!("no line") };
    let [descriptor, _process] = fds.as_slice() else { panic!("{} descriptors", fds.len()) };
    assert!(matches!(kind::of(descriptor.as_fd()).unwrap(), Kind::Socket { .. }));
    assert!(supervisor.has_next());
    let Some((Deposit::Group { line: behind, handles, .. }, _)) = supervisor.next() else {
        panic!("no group")
    };
    assert_eq!((behind, handles.channel_group), (line, 1));
    assert!(!supervisor.has_next());
    world.driver.let_all_go();
}

#[test]
fn what_is_not_controlled_any_more_is_asked_back() {
    let (world, supervisor) = Supervisor::of_a_world();
    let (a, descriptor) = steered(&world, "be-a", 1);
    let Some((Deposit::Line(line), fds)) = supervisor.next() else { panic!("no line") };
    drop(fds);
    let Some((Deposit::Group { group, .. }, _)) = supervisor.next() else { panic!("no group") };
    a.process.die();
    assert_eq!(supervisor.next().unwrap().0, Deposit::Forget(group));
    assert_eq!(supervisor.next().unwrap().0, Deposit::Close(line));
    descriptor.closes();
}

#[test]
fn a_manager_that_ends_in_order_leaves_nothing_to_do() {
    let (mut world, supervisor) = Supervisor::of_a_world();
    let ((_a, _da), (_b, _db)) = (steered(&world, "be-a", 1), steered(&world, "be-b", 2));
    until("somebody is stopped", || {
        world.settle();
        world.advance(MS);
        !world.driver.group(1).0 || !world.driver.group(2).0
    });
    world.stop();
    let mut left = std::collections::BTreeSet::new();
    while let Some((deposit, _)) = supervisor.next() {
        match deposit {
            Deposit::Group { group, .. } => drop(left.insert(group)),
            Deposit::Forget(group) => assert!(left.remove(&group)),
            Deposit::Line(_) | Deposit::Close(_) => {}
        }
    }
    assert!(left.is_empty(), "{left:?}");
    assert_eq!((world.driver.group(1), world.driver.group(2)), ((true, 2048), (true, 2048)));
}
