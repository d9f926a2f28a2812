//! Kinds of descriptors.

use sluice_sys::file_kind::{Kind, identity, of};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixDatagram, UnixStream};

#[test]
fn devices_sockets_and_other_files_are_distinguished() {
    let null = File::open("/dev/null").unwrap();
    assert_eq!(of(null.as_fd()).unwrap(), Kind::Character { major: 1, minor: 3 });
    let (stream, _other) = UnixStream::pair().unwrap();
    assert_eq!(of(stream.as_fd()).unwrap(), Kind::Socket { domain: 1, kind: 1 });
    let (datagrams, _other) = UnixDatagram::pair().unwrap();
    assert_eq!(of(datagrams.as_fd()).unwrap(), Kind::Socket { domain: 1, kind: 2 });
    let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    assert_eq!(of(udp.as_fd()).unwrap(), Kind::Socket { domain: 2, kind: 2 });
    let folder = File::open("/").unwrap();
    assert_eq!(of(folder.as_fd()).unwrap(), Kind::Other);
    assert_eq!(of(std::io::pipe().unwrap().0.as_fd()).unwrap(), Kind::Other);
}

#[test]
fn copies_of_a_descriptor_share_one_identity() {
    let (one, other) = UnixStream::pair().unwrap();
    let copy = one.try_clone().unwrap();
    assert_eq!(identity(one.as_fd()).unwrap(), identity(copy.as_fd()).unwrap());
    assert_ne!(identity(one.as_fd()).unwrap(), identity(other.as_fd()).unwrap());
}
