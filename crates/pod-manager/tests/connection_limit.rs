//! Connections to /metrics are limited, so that they do not use up the descriptors of the manager. A program of its own, because it
//! counts the descriptors of its process.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use support::hook::PATIENCE;
use support::{World, until};

/// Open descriptors of this process, which the manager is part of here.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Connections to `address` that were taken: one that still waits in the listener's queue has no inode. Asking needs no connection.
fn taken(address: SocketAddr) -> usize {
    let port = format!(":{:04X}", address.port());
    let connections = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let fields = connections.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    // local_address, st (01: established) and inode: proc_net_tcp in the kernel's documentation.
    fields.filter(|f| f[1].ends_with(&port) && f[3] == "01" && f[9] != "0").count()
}

#[test]
fn thirty_two_connections_are_taken_and_the_others_wait_their_turn() {
    let world = World::new();
    world.settle();
    let address = world.handle().metrics().unwrap();
    until("all connections are closed", || taken(address) == 0);
    let before = descriptors();
    let silent: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut last = TcpStream::connect(address).unwrap();
    last.set_read_timeout(Some(PATIENCE)).unwrap();
    last.write_all(b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    until("all connections are taken", || taken(address) == 32);
    // Clients are served all the while.
    for _ in 0..20 {
        let mut hook = world.process("be-a");
        assert!(hook.reserve(1));
        hook.process.die();
    }
    // Both ends of a connection that was taken are ours, one of a connection that waits.
    until("the processes are forgotten", || descriptors() <= before + 101 + 32);
    assert_eq!(taken(address), 32, "and no other connection was accepted");
    drop(silent);
    let mut answer = String::new();
    last.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}
