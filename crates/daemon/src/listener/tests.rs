use std::cell::RefCell;
use std::net::{Ipv4Addr, Ipv6Addr, TcpStream};

use rustix::io::Errno;

use super::*;

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Calls [`listen_by`] on a kernel that answers each IPv6 address with this error. Returns the addresses that were bound or tried.
fn tried(refusal: Errno, wanted: &str) -> (io::Result<TcpListener>, Vec<SocketAddr>) {
    let tried = RefCell::new(Vec::new());
    let bind = |address: SocketAddr| {
        tried.borrow_mut().push(address);
        if address.is_ipv6() { Err(refusal.into()) } else { bind(address) }
    };
    let outcome = listen_by(bind, address(wanted));
    (outcome, tried.into_inner())
}

#[test]
fn all_addresses_mean_those_of_ipv4_where_the_kernel_has_no_ipv6() {
    for refusal in [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL] {
        let (listener, tried) = tried(refusal, "[::]:0");
        assert_eq!(tried, [address("[::]:0"), address("0.0.0.0:0")]);
        assert_eq!(listener.unwrap().local_addr().unwrap().ip(), Ipv4Addr::UNSPECIFIED);
    }
}

#[test]
fn other_failures_are_reported() {
    for (refusal, wanted) in
        [(Errno::ADDRINUSE, "[::]:0"), (Errno::ACCESS, "[::]:0"), (Errno::ADDRNOTAVAIL, "[::1]:0")]
    {
        let (listener, tried) = tried(refusal, wanted);
        assert_eq!(listener.unwrap_err().raw_os_error(), Some(refusal.raw_os_error()));
        assert_eq!(tried, [address(wanted)]);
    }
}

/// Also where the system's default is IPv6 alone (`net.ipv6.bindv6only`).
#[test]
fn all_addresses_are_those_of_ipv4_and_ipv6() {
    let has_ipv6 = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
    let listener = listen(address("[::]:0")).unwrap();
    let port = listener.local_addr().unwrap().port();
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    if has_ipv6 {
        TcpStream::connect((Ipv6Addr::LOCALHOST, port)).unwrap();
    }
}

#[test]
fn ipv4_address_is_taken_as_it_is_and_accept_does_not_block() {
    let listener = listen(address("127.0.0.1:0")).unwrap();
    assert_eq!(listener.local_addr().unwrap().ip(), Ipv4Addr::LOCALHOST);
    assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    let again = listen(listener.local_addr().unwrap()).unwrap_err();
    assert!(again.to_string().contains(&listener.local_addr().unwrap().to_string()), "{again}");
}
