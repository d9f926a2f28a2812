//! How the capacity is divided between owners, and that slow closes block no deposit.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, setsockopt, socketpair, sockopt};

use super::*;

struct Tenants {
    store: EscrowStore,
    children: Vec<Child>,
}

impl Drop for Tenants {
    fn drop(&mut self) {
        for child in &mut self.children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

impl Tenants {
    /// Idle programs, each its own owner, and a store of this capacity.
    fn new(count: usize, descriptors: usize, per_owner: usize) -> Self {
        let closer = BackgroundCloser::start().unwrap();
        let owner_of: OwnerOf = |process| owner::of(process).map(|_| Owner::Process(process_of(process)));
        let capacity = Capacity { descriptors, per_owner, ..Capacity::default() };
        let store = EscrowStore { capacity, owner_of, ..EscrowStore::new(true, closer) };
        let child = |_| Command::new("sleep").arg("100000").spawn().unwrap();
        Self { store, children: (0..count).map(child).collect() }
    }

    fn pidfd(&self, tenant: usize) -> OwnedFd {
        sluice_sys::pidfd::open(i32::try_from(self.children[tenant].id()).unwrap()).unwrap()
    }

    fn deposit_descriptor(&mut self, number: u64, tenant: usize) -> Result<(), String> {
        let (controls, _) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap();
        let process = self.pidfd(tenant);
        self.store.accept(&EscrowMessage::Descriptor(number).encode(), vec![controls, process])
    }

    fn held(&self) -> Vec<u64> {
        let mut held: Vec<u64> = self.store.descriptors.keys().copied().collect();
        held.sort_unstable();
        held
    }
}

fn process_of(process: BorrowedFd<'_>) -> i32 {
    use std::os::fd::AsRawFd;
    let fdinfo = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_raw_fd())).unwrap();
    fdinfo.lines().find_map(|line| line.strip_prefix("Pid:")).unwrap().trim().parse().unwrap()
}

#[test]
fn owner_at_its_limit_is_refused_and_other_owners_are_kept() {
    let mut tenants = Tenants::new(2, 100, 3);
    for number in 0..3 {
        tenants.deposit_descriptor(number, 0).unwrap();
    }
    assert!(tenants.deposit_descriptor(3, 0).unwrap_err().contains("3 control descriptors"));
    tenants.deposit_descriptor(4, 1).unwrap();
    assert_eq!(tenants.held(), [0, 1, 2, 4]);
    tenants.store.accept(&EscrowMessage::Close(1).encode(), Vec::new()).unwrap();
    tenants.deposit_descriptor(5, 0).unwrap();
    assert_eq!(tenants.held(), [0, 2, 4, 5]);
}

#[test]
fn full_store_takes_a_descriptor_from_the_owner_with_most() {
    let mut tenants = Tenants::new(3, 4, 4);
    for number in 0..4 {
        tenants.deposit_descriptor(number, 0).unwrap();
    }
    tenants.deposit_descriptor(4, 1).unwrap();
    tenants.deposit_descriptor(5, 1).unwrap();
    assert_eq!(tenants.held(), [0, 1, 4, 5]);
    assert!(tenants.deposit_descriptor(6, 1).is_err(), "no other owner has more than this one");
    tenants.deposit_descriptor(7, 2).unwrap();
    assert_eq!(tenants.held().len(), 4);
    assert!(tenants.held().contains(&7));
}

#[test]
fn ended_process_is_not_kept() {
    let mut tenants = Tenants::new(1, 4, 4);
    let process = tenants.pidfd(0);
    tenants.children[0].kill().unwrap();
    tenants.children[0].wait().unwrap();
    let (controls, theirs) =
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap();
    tenants.store.accept(&EscrowMessage::Descriptor(0).encode(), vec![controls, process]).unwrap();
    assert_eq!(tenants.held(), [0; 0]);
    drop(theirs);
    tenants.children.clear();
}

/// A descriptor whose last close takes an hour: a connection with unread bytes and a linger time.
fn slow_to_close() -> (OwnedFd, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    stream.set_nonblocking(true).unwrap();
    while stream.write(&[0; 1 << 16]).is_ok() {}
    stream.set_nonblocking(false).unwrap();
    setsockopt(&stream, sockopt::Linger, &nix::libc::linger { l_onoff: 1, l_linger: 3600 }).unwrap();
    (stream.into(), listener)
}

#[test]
fn slow_close_does_not_block_deposits_until_too_many_are_pending() {
    let mut tenants = Tenants::new(1, 100, 100);
    // While another test forks, its child has a copy, and this process closes its own at once.
    let mut unread = Vec::new();
    while tenants.store.closer.pending() == 0 {
        let (slow, listener) = slow_to_close();
        unread.push(listener);
        let process = tenants.pidfd(0);
        assert!(
            tenants.store.accept(&EscrowMessage::Descriptor(0).encode(), vec![slow, process]).is_err(),
            "it is no control descriptor"
        );
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    tenants.deposit_descriptor(1, 0).unwrap();
    assert_eq!(tenants.held(), [1]);
    tenants.store.capacity.being_closed = 1;
    assert!(tenants.deposit_descriptor(2, 0).unwrap_err().contains("still being closed"));
}
