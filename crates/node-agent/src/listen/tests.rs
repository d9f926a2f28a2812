//! Tests of `listen.rs`.

use std::cell::RefCell;
use std::net::TcpStream;

use super::*;

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Calls [`listen_by`] on a kernel that answers each IPv6 address with this error. Also returns the addresses that were tried.
fn tried(refusal: Errno, wanted: &str) -> (io::Result<TcpListener>, Vec<SocketAddr>) {
    let tried = RefCell::new(Vec::new());
    let socket = |address: SocketAddr| {
        tried.borrow_mut().push(address);
        if address.is_ipv6() { Err(refusal.into()) } else { new_socket(address) }
    };
    let outcome = listen_by(socket, address(wanted));
    (outcome, tried.into_inner())
}

#[tokio::test]
async fn all_addresses_are_those_of_ipv4_where_the_kernel_has_no_ipv6() {
    for refusal in [Errno::EAFNOSUPPORT, Errno::EADDRNOTAVAIL] {
        let (listener, tried) = tried(refusal, "[::]:0");
        assert_eq!(tried, [address("[::]:0"), address("0.0.0.0:0")]);
        assert_eq!(listener.unwrap().local_addr().unwrap().ip(), Ipv4Addr::UNSPECIFIED);
    }
}

#[tokio::test]
async fn other_failures_are_reported() {
    let cases = [(Errno::EADDRINUSE, "[::]:0"), (Errno::EACCES, "[::]:0"), (Errno::EADDRNOTAVAIL, "[::1]:0")];
    for (refusal, wanted) in cases {
        let (listener, tried) = tried(refusal, wanted);
        assert_eq!(listener.unwrap_err().raw_os_error(), Some(refusal as i32));
        assert_eq!(tried, [address(wanted)]);
    }
}

#[tokio::test]
async fn all_addresses_are_those_of_ipv4_and_ipv6_also_if_the_kernel_default_is_ipv6_alone() {
    let has_ipv6 = std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
    // What `net.ipv6.bindv6only` does to each new socket.
    let ipv6_alone = |address| {
        let socket = new_socket(address)?;
        if address.is_ipv6() {
            setsockopt(&socket, sockopt::Ipv6V6Only, &true)?;
        }
        Ok(socket)
    };
    let listener = listen_by(ipv6_alone, address("[::]:0")).unwrap();
    let port = listener.local_addr().unwrap().port();
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    if has_ipv6 {
        TcpStream::connect((Ipv6Addr::LOCALHOST, port)).unwrap();
    }
}

#[tokio::test]
async fn address_in_use_is_reported_with_its_flag() {
    let listener = listen("http", address("127.0.0.1:0")).unwrap();
    let taken = listener.local_addr().unwrap();
    let error = listen("http", taken).unwrap_err().to_string();
    assert_eq!(error, format!("cannot listen on --http {taken}"));
}
