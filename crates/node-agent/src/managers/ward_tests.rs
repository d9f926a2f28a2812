//! Who gets how much of what can be kept, and that nobody waits for a close.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, setsockopt, socketpair, sockopt};

use super::*;

struct Tenants {
    ward: Ward,
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
    /// Programs that do nothing, each its own owner, and a ward with so much room.
    fn new(count: usize, lines: usize, of_one: usize) -> Self {
        let closer = Closer::start().unwrap();
        let owner_of: OwnerOf = |process| owner::of(process).map(|_| Owner::Process(process_of(process)));
        let room = Room { lines, of_one, ..Room::default() };
        let ward = Ward { room, owner_of, ..Ward::new(true, closer) };
        let child = |_| Command::new("sleep").arg("100000").spawn().unwrap();
        Self { ward, children: (0..count).map(child).collect() }
    }

    fn pidfd(&self, tenant: usize) -> OwnedFd {
        sluice_sys::pidfd::open(i32::try_from(self.children[tenant].id()).unwrap()).unwrap()
    }

    fn line(&mut self, number: u64, tenant: usize) -> Result<(), String> {
        let (controls, _) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap();
        let process = self.pidfd(tenant);
        self.ward.take(&Deposit::Line(number).encode(), vec![controls, process])
    }

    fn kept(&self) -> Vec<u64> {
        let mut kept: Vec<u64> = self.ward.lines.keys().copied().collect();
        kept.sort_unstable();
        kept
    }
}

fn process_of(process: BorrowedFd<'_>) -> i32 {
    use std::os::fd::AsRawFd;
    let fdinfo = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_raw_fd())).unwrap();
    fdinfo.lines().find_map(|line| line.strip_prefix("Pid:")).unwrap().trim().parse().unwrap()
}

#[test]
fn nobody_has_more_than_his_part_and_the_others_are_kept() {
    let mut tenants = Tenants::new(2, 100, 3);
    for number in 0..3 {
        tenants.line(number, 0).unwrap();
    }
    assert!(tenants.line(3, 0).unwrap_err().contains("3 ways"));
    tenants.line(4, 1).unwrap();
    assert_eq!(tenants.kept(), [0, 1, 2, 4]);
    tenants.ward.take(&Deposit::Close(1).encode(), Vec::new()).unwrap();
    tenants.line(5, 0).unwrap();
    assert_eq!(tenants.kept(), [0, 2, 4, 5]);
}

#[test]
fn where_there_is_no_room_who_has_most_makes_some_for_who_has_less() {
    let mut tenants = Tenants::new(3, 4, 4);
    for number in 0..4 {
        tenants.line(number, 0).unwrap();
    }
    tenants.line(4, 1).unwrap();
    tenants.line(5, 1).unwrap();
    assert_eq!(tenants.kept(), [0, 1, 4, 5]);
    assert!(tenants.line(6, 1).is_err(), "nobody has more than he has");
    tenants.line(7, 2).unwrap();
    assert_eq!(tenants.kept().len(), 4);
    assert!(tenants.kept().contains(&7));
}

#[test]
fn a_process_that_has_ended_is_not_kept() {
    let mut tenants = Tenants::new(1, 4, 4);
    let process = tenants.pidfd(0);
    tenants.children[0].kill().unwrap();
    tenants.children[0].wait().unwrap();
    let (controls, theirs) =
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap();
    tenants.ward.take(&Deposit::Line(0).encode(), vec![controls, process]).unwrap();
    assert_eq!(tenants.kept(), [0; 0]);
    drop(theirs);
    tenants.children.clear();
}

/// A descriptor whose last close takes an hour: a connection with bytes that nobody reads.
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
fn what_takes_long_to_close_keeps_nobody_from_being_kept_until_too_much_of_it_waits() {
    let mut tenants = Tenants::new(1, 100, 100);
    let (slow, _unread) = slow_to_close();
    let process = tenants.pidfd(0);
    assert!(
        tenants.ward.take(&Deposit::Line(0).encode(), vec![slow, process]).is_err(),
        "no way to a driver"
    );
    tenants.line(1, 0).unwrap();
    assert_eq!(tenants.kept(), [1]);
    tenants.ward.room.to_close = 1;
    assert!(tenants.line(2, 0).unwrap_err().contains("still being closed"));
}
