//! The TCP listeners of the agent: [`listen`].

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::Context;
use nix::errno::Errno;
use nix::sys::socket::{setsockopt, sockopt};
use tokio::net::{TcpListener, TcpSocket};
use tracing::warn;

/// Connections that wait for `accept`, as tokio has it. The kernel's own limit (`net.core.somaxconn`) may be lower.
const BACKLOG: u32 = 1024;

/// Listens at the address of a flag.
///
/// The address `::` stands for all addresses, IPv6 and IPv4, also where `net.ipv6.bindv6only` is set. If the kernel has no IPv6, it stands
/// for all IPv4 addresses.
///
/// # Errors
/// The address is in use, or is none of this machine.
pub(crate) fn listen(flag: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    listen_by(new_socket, address).with_context(|| format!("cannot listen on --{flag} {address}"))
}

fn listen_by(
    new_socket: impl Fn(SocketAddr) -> io::Result<TcpSocket>,
    address: SocketAddr,
) -> io::Result<TcpListener> {
    let bind = |address| bind(new_socket(address)?, address);
    let stands_for_all = address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    bind(address).or_else(|why| {
        if !stands_for_all || !lacks_ipv6(&why) {
            return Err(why);
        }
        let instead = (Ipv4Addr::UNSPECIFIED, address.port()).into();
        warn!(%address, %instead, %why, "the kernel has no IPv6; listening on IPv4 alone");
        bind(instead)
    })
}

fn new_socket(address: SocketAddr) -> io::Result<TcpSocket> {
    if address.is_ipv6() { TcpSocket::new_v6() } else { TcpSocket::new_v4() }
}

/// Whether the kernel was started without IPv6 (`ipv6.disable=1`), or has no module for it. Sandboxes refuse the address instead.
fn lacks_ipv6(why: &io::Error) -> bool {
    let codes = [Errno::EAFNOSUPPORT, Errno::EADDRNOTAVAIL].map(|code| code as i32);
    why.raw_os_error().is_some_and(|code| codes.contains(&code))
}

fn bind(socket: TcpSocket, address: SocketAddr) -> io::Result<TcpListener> {
    // As tokio has it: connections of a previous process do not block the address.
    socket.set_reuseaddr(true)?;
    if address.is_ipv6() {
        setsockopt(&socket, sockopt::Ipv6V6Only, &false)?;
    }
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

#[cfg(test)]
mod tests;
