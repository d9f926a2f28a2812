//! Processes of the system that get host memory, live without a connection, and end.

use super::*;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

/// A process that lives until it is ended.
struct Living {
    child: Child,
    pidfd: OwnedFd,
    key: ProcessKey,
}

impl Living {
    fn start() -> Self {
        let child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let pid = child.id().cast_signed();
        Self { child, pidfd: sluice_sys::pidfd::open(pid).unwrap(), key: (pid, 1) }
    }

    fn end(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn open(&self, pool: &mut HostPool, client: u64) -> Arc<HostMemory> {
        pool.open(ClientId(client), self.key, &self.pidfd, 8 * MIB).unwrap().0
    }
}

impl Drop for Living {
    fn drop(&mut self) {
        let _ended = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// Bytes whose pages exist.
fn existing(fd: BorrowedFd<'_>) -> u64 {
    File::from(fd.try_clone_to_owned().unwrap()).metadata().unwrap().blocks() * 512
}

fn eventually(what: &str, condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(60), "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn process_counts_until_it_has_ended_and_not_only_while_it_is_connected() {
    let mut pool = HostPool::new(10 * MIB);
    let (first, second) = (Living::start(), Living::start());
    drop(first.open(&mut pool, 1));
    second.open(&mut pool, 2);
    pool.give(first.key, 6 * MIB, 8 * MIB, Place::Here).unwrap();
    // It has no connection, and its record is gone.
    pool.take_back(|_| {});
    let refused = pool.give(second.key, 6 * MIB, 8 * MIB, Place::Here).unwrap_err().to_string();
    assert_eq!(refused, format!("{} of {} bytes are in use, {} are needed", 6 * MIB, 10 * MIB, 6 * MIB));
    first.end();
    pool.take_back(|_| {});
    pool.give(second.key, 6 * MIB, 8 * MIB, Place::Here).unwrap();
}

#[test]
fn processes_of_a_client_have_together_what_the_client_may_have() {
    let mut pool = HostPool::new(100 * MIB);
    let (first, second, of_other) = (Living::start(), Living::start(), Living::start());
    for (process, client) in [(&first, 1), (&second, 1), (&of_other, 2)] {
        process.open(&mut pool, client);
    }
    pool.give(first.key, 5 * MIB, 8 * MIB, Place::Here).unwrap();
    pool.give(second.key, 3 * MIB, 8 * MIB, Place::Here).unwrap();
    assert!(matches!(
        pool.give(second.key, 4 * MIB, 8 * MIB, Place::Here),
        Err(Refusal::Client { needed: MIB, .. })
    ));
    pool.give(of_other.key, 8 * MIB, 8 * MIB, Place::Here).unwrap();
}

#[test]
fn process_that_connects_again_has_the_memory_that_it_had() {
    let mut pool = HostPool::new(10 * MIB);
    let process = Living::start();
    let before = process.open(&mut pool, 1);
    pool.give(process.key, 6 * MIB, 8 * MIB, Place::Here).unwrap();
    let after = process.open(&mut pool, 1);
    assert!(Arc::ptr_eq(&before, &after));
    pool.give(process.key, 8 * MIB, 8 * MIB, Place::Here).unwrap();
    assert_eq!(pool.holders[0].given, 8 * MIB);
}

#[test]
fn what_a_process_declares_counts_and_gives_it_no_page() {
    let mut pool = HostPool::new(10 * MIB);
    let (first, second) = (Living::start(), Living::start());
    first.open(&mut pool, 1);
    second.open(&mut pool, 2);
    pool.give(second.key, 8 * MIB, 8 * MIB, Place::Here).unwrap();
    pool.count(first.key, 8 * MIB);
    pool.give(first.key, 8 * MIB, 8 * MIB, Place::Earlier).unwrap();
    assert!(matches!(pool.give(first.key, MIB, 8 * MIB, Place::Here), Err(Refusal::Pool { .. })));
    second.end();
    pool.take_back(|_| {});
    pool.give(first.key, MIB, 8 * MIB, Place::Here).unwrap();
}

#[test]
fn client_has_at_most_so_many_processes() {
    let mut pool = HostPool::new(10 * MIB);
    let process = Living::start();
    for start in 0..MOST_OF_CLIENT as u64 {
        pool.open(ClientId(1), (1, start), &process.pidfd, 8 * MIB).unwrap();
    }
    let refused = pool.open(ClientId(1), (1, u64::MAX), &process.pidfd, 8 * MIB);
    assert!(matches!(refused, Err(Refusal::TooMany)));
    pool.open(ClientId(2), (1, u64::MAX), &process.pidfd, 8 * MIB).unwrap();
}

#[test]
fn memory_is_filled_as_far_as_it_is_needed_and_keeps_what_was_written() {
    let mut pool = HostPool::new(10 * MIB);
    let process = Living::start();
    let memory = process.open(&mut pool, 1);
    let fd = memory.fd().unwrap();
    let mut file = File::from(fd.try_clone_to_owned().unwrap());
    file.write_all(b"written before").unwrap();
    memory.fill(4 * MIB);
    eventually("half of it to exist", || memory.filled() == 4 * MIB);
    assert_eq!(existing(fd), 4 * MIB);
    memory.fill(1000 * MIB);
    eventually("all of it to exist", || memory.filled() == 8 * MIB);
    assert_eq!(std::os::unix::fs::FileExt::read_at(&file, &mut [0; 14], 0).unwrap(), 14);
    let mut read = [0; 14];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut read, 0).unwrap();
    assert_eq!(&read, b"written before");
}

#[test]
fn pages_of_an_ended_process_are_free_although_its_child_has_them_mapped() {
    let mut pool = HostPool::new(10 * MIB);
    let process = Living::start();
    let memory = process.open(&mut pool, 1);
    pool.give(process.key, 8 * MIB, 8 * MIB, Place::Here).unwrap();
    memory.fill(8 * MIB);
    eventually("all of it to exist", || memory.filled() == 8 * MIB);
    // As a child has it: sealed against every change of its size and against further seals.
    let of_child = memory.fd().unwrap().try_clone_to_owned().unwrap();
    let mapped = sluice_sys::page::SharedRegion::map_whole(of_child.as_fd()).unwrap();
    assert!(File::from(of_child.try_clone().unwrap()).set_len(0).is_err());
    drop(memory);
    process.end();
    pool.take_back(|_| {});
    eventually("its pages to be free", || existing(of_child.as_fd()) == 0);
    assert_eq!(mapped.words()[0].load(std::sync::atomic::Ordering::Relaxed), 0);
}

#[test]
fn memory_of_a_process_that_lives_longer_than_the_manager_keeps_its_content() {
    let mut pool = HostPool::new(10 * MIB);
    let process = Living::start();
    let memory = process.open(&mut pool, 1);
    let of_process = File::from(memory.fd().unwrap().try_clone_to_owned().unwrap());
    memory.fill(8 * MIB);
    eventually("all of it to exist", || memory.filled() == 8 * MIB);
    std::os::unix::fs::FileExt::write_all_at(&of_process, b"written", 0).unwrap();
    drop((pool, memory));
    // A thread would take the pages out of the file.
    std::thread::sleep(Duration::from_millis(100));
    let mut read = [0; 7];
    std::os::unix::fs::FileExt::read_exact_at(&of_process, &mut read, 0).unwrap();
    assert_eq!((&read, existing(of_process.as_fd())), (b"written", 8 * MIB));
}
