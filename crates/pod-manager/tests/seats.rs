//! Connections to /metrics are few, so that nobody takes the data plane's descriptors that way.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use support::hook::PATIENCE;
use support::{World, until};

/// Open descriptors of this process, which the manager is part of here.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn thirty_two_connections_are_taken_and_the_others_wait_their_turn() {
    let world = World::new();
    world.settle();
    let (address, before) = (world.handle().metrics().unwrap(), descriptors());
    let silent: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut last = TcpStream::connect(address).unwrap();
    last.set_read_timeout(Some(PATIENCE)).unwrap();
    last.write_all(b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    // Both ends are ours.
    until("all seats are taken", || descriptors() >= before + 101 + 32);
    // Clients are served all the while.
    for _ in 0..20 {
        let mut hook = world.process("be-a");
        assert!(hook.reserve(1));
        hook.process.die();
    }
    until("the processes are forgotten", || descriptors() <= before + 101 + 32);
    drop(silent);
    let mut answer = String::new();
    last.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}
