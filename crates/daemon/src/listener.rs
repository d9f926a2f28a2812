//! The TCP listeners of the daemons: [`listen`].

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};

/// Connections that wait for `accept`, as tokio has it. The kernel's own limit (`net.core.somaxconn`) may be lower.
const BACKLOG: i32 = 1024;

/// Listens on a socket that does not block: a blocking `accept` would block a thread of the runtime.
///
/// The address `::` stands for all addresses, IPv6 and IPv4, also where `net.ipv6.bindv6only` is set. If the kernel has no IPv6, it stands
/// for all IPv4 addresses.
///
/// # Errors
/// The address is in use, or is none of this machine.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let named = |why: io::Error| io::Error::new(why.kind(), format!("cannot listen on {address}: {why}"));
    listen_by(bind, address).map_err(named)
}

fn listen_by(
    bind: impl Fn(SocketAddr) -> io::Result<TcpListener>,
    address: SocketAddr,
) -> io::Result<TcpListener> {
    let stands_for_all = address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    bind(address).or_else(|error| {
        if stands_for_all && lacks_ipv6(&error) {
            bind((Ipv4Addr::UNSPECIFIED, address.port()).into())
        } else {
            Err(error)
        }
    })
}

/// Whether the kernel was started without IPv6 (`ipv6.disable=1`), or has no module for it. Sandboxes refuse the address instead.
fn lacks_ipv6(error: &io::Error) -> bool {
    let errors = [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|error| errors.contains(&error))
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(family, SocketType::STREAM, flags, None)?;
    // As the standard library has it: connections of a previous process do not block the address.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, false)?;
    }
    net::bind(&socket, &address)?;
    net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests;
