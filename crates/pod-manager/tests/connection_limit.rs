//! Connections to /metrics are limited, so that they do not use up the descriptors of the manager. A program of its own, because it
//! counts the descriptors of its process.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use sluice_daemon::pages::MAX_OF_ADDRESS;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use support::{CLIENTS, World, until};

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
fn connections_of_one_address_are_bounded_and_the_newest_is_answered() {
    let world = World::new();
    world.settle();
    let address = world.handle().metrics().unwrap();
    until("all connections are closed", || taken(address) == 0);
    let before = descriptors();
    let silent: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(address).unwrap()).collect();
    assert_eq!(support::http::get(address, "/healthz").0, 200);
    // Clients are served all the while.
    for _ in 0..20 {
        let mut hook = world.process("be-a");
        assert!(hook.reserve(1));
        hook.process.die();
    }
    // Both ends of an open connection are descriptors of this process, and one of a connection that the manager has closed.
    until("the processes are forgotten", || descriptors() <= before + 100 + MAX_OF_ADDRESS);
    assert!(taken(address) <= MAX_OF_ADDRESS);
    drop(silent);
}

#[test]
fn health_and_metrics_are_answered_beside_150_half_open_connections() {
    let world = World::with(CLIENTS, |config| config.health = Some(([127, 0, 0, 1], 0).into()));
    let (address, health) = (world.handle().metrics().unwrap(), world.handle().health().unwrap());
    let half_open = |address: SocketAddr| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost:").unwrap();
        stream
    };
    let _streams: Vec<TcpStream> = [address, health].into_iter().cycle().take(300).map(half_open).collect();
    for (address, path) in [(health, "/healthz"), (address, "/healthz"), (address, "/metrics")] {
        assert_eq!(support::http::get(address, path).0, 200, "{path}");
    }
    assert_eq!(support::http::get(health, "/metrics").0, 404, "the listener for probes serves nothing else");
}
