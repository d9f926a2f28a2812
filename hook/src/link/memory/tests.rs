use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use sluice_comm::Name;

use super::*;

/// The connections of a stopped manager wait in the queue of its listener until that is full.
#[test]
fn allocations_wait_once_for_a_manager_that_accepts_no_connections() {
    let path = std::env::temp_dir().join(format!("sluice-hook-queue-{}.sock", std::process::id()));
    let listener = UnixListener::bind(&path).expect("a listener");
    // SAFETY: no pointers. One connection beyond this queue waits.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
    let queued = UnixStream::connect(&path).expect("the first connection");
    let identity = ClientIdentity { name: Name::new("a").expect("a name"), ordinal: 0, uuid: [0; 16] };
    let memory = MemoryConnection::new(Address::Unix(path.clone()), identity);
    assert_eq!(memory.connect(0), Err(LinkError::Silent), "the account does not ask a silent manager twice");
    let begun = Instant::now();
    for _ in 0..10 {
        assert_eq!(memory.connect(0), Err(LinkError::Silent));
    }
    assert!(begun.elapsed() < Duration::from_millis(150), "further ones took {:?}", begun.elapsed());
    drop(queued);
    std::fs::remove_file(&path).expect("the path");
}
