//! Which failures a peer is told to wait for.

use super::*;
use nix::errno::Errno;
use std::io;

#[test]
fn pages_lack_room_only_without_descriptors_or_memory() {
    let lacks_room = |errno: Errno| Reason::Pages(errno.into()).is_lack_of_room();
    for errno in [Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM] {
        assert!(lacks_room(errno), "{errno}");
    }
    for errno in [Errno::EPERM, Errno::ENOSYS, Errno::EINVAL] {
        assert!(!lacks_room(errno), "{errno}");
    }
    assert!(!Reason::Pages(io::ErrorKind::InvalidData.into()).is_lack_of_room());
}
