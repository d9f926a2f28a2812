//! What is found at processes that are looked at from outside: children that have a socket of a made-up simulator.
#![allow(clippy::unwrap_used, reason = "a helper that panics fails its test")]

use std::collections::HashSet;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use sluice_nvrm::NvStatus;
use sluice_nvrm::abi::{Command as Control, ControlBlock, class, gid, handle_info, timeslice};
use sluice_nvrm::outside::{
    CLIENTS, Limits, MOST_FILES, Process, ProcessKey, Questions, Searcher, Unreachable, is_its_own,
};
use sluice_nvrm::transport::wire;
use sluice_sys::pidfd;
use sluice_sys::socket::{recv_with_fds, send_with_fds};

const CLIENT: u32 = CLIENTS + 7;
const OURS: &str = "GPU-01234567-89ab-cdef-0123-456789abcdef";
const THEIRS: &str = "GPU-fedcba98-89ab-cdef-0123-456789abcdef";
const BASE: u32 = 0x5c00_0000;

/// Handle, class and parent.
const OBJECTS: [(u32, u32, u32); 5] = [
    (BASE + 1, class::DEVICE, CLIENT),
    (BASE + 2, class::SUBDEVICE, BASE + 1),
    (BASE + 3, class::CHANNEL_GROUP, BASE + 1),
    (BASE + 4, 0xc86f, BASE + 3),
    (BASE + 5, 0xcbc0, BASE + 4),
];

/// An open file of a made-up driver: the end that a program has, and how often it was asked something.
struct File {
    theirs: OwnedFd,
    asked: Arc<AtomicUsize>,
}

impl File {
    /// With a client that has a context, or without clients.
    fn open(has_client: bool) -> Self {
        Self::on(has_client.then_some((CLIENT, OURS)))
    }

    /// With this client, which has a context on this GPU; clients of different files have different numbers.
    fn on(client: Option<(u32, &'static str)>) -> Self {
        let mut fds = [0; 2];
        let flags = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        // SAFETY: room for two descriptors, which are then owned once each.
        let [ours, theirs] = unsafe {
            assert_eq!(libc::socketpair(libc::AF_UNIX, flags, 0, fds.as_mut_ptr()), 0);
            fds.map(|fd| OwnedFd::from_raw_fd(fd))
        };
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        thread::spawn(move || {
            let mut packet = vec![0; wire::MAX_REQUEST];
            while let Ok((len @ 1.., fds)) = recv_with_fds(ours.as_fd(), &mut packet) {
                count.fetch_add(1, Ordering::SeqCst);
                let request = wire::decode_request(&packet[..len]).unwrap();
                let mut params = request.params.to_vec();
                let mut block = ControlBlock::decode(request.block).unwrap();
                block.status = answer(&block, &mut params, client).0;
                let answer = wire::encode_answer(0, &block.encode(), &params);
                send_with_fds(fds[0].as_fd(), &answer, &[]).unwrap();
            }
        });
        Self { theirs, asked }
    }

    fn take_asked(&self) -> usize {
        self.asked.swap(0, Ordering::SeqCst)
    }

    /// A program that has two descriptors of it.
    fn program(&self) -> Program {
        let copy = || Stdio::from(self.theirs.try_clone().unwrap());
        Program::of(Command::new("sleep").arg("1000").stdin(copy()).stdout(copy()))
    }
}

fn answer(block: &ControlBlock, params: &mut Vec<u8>, client: Option<(u32, &str)>) -> NvStatus {
    let known = client.filter(|(client, _)| block.client == *client);
    let Some((client, gpu)) = known else { return NvStatus::INVALID_CLIENT };
    if block.command == Control::GET_GID_INFO.number {
        *params = gid::encode(gpu).to_vec();
        return NvStatus::OK;
    }
    if block.command == Control::GET_TIMESLICE.number {
        *params = timeslice::encode(2048).to_vec();
        return NvStatus::OK;
    }
    let (object, what) = handle_info::question(params).unwrap();
    let root = [(client, 0x41, 0)];
    let Some((_, class, parent)) = root.iter().chain(&OBJECTS).find(|(handle, ..)| *handle == object) else {
        return NvStatus::OBJECT_NOT_FOUND;
    };
    let parent = if *parent == CLIENT { client } else { *parent };
    let is = if what == handle_info::CLASS { *class } else { parent };
    *params = handle_info::encode(object, what, is).to_vec();
    NvStatus::OK
}

/// A process; killed when dropped.
struct Program(Child, OwnedFd);

impl Program {
    fn of(command: &mut Command) -> Self {
        let child = command.spawn().unwrap();
        let pidfd = pidfd::open(i32::try_from(child.id()).unwrap()).unwrap();
        Self(child, pidfd)
    }

    fn key(&self) -> ProcessKey {
        (i32::try_from(self.0.id()).unwrap(), 1)
    }

    fn as_process(&self) -> Process<'_> {
        self.of_pod("pod")
    }

    fn of_pod<'a>(&'a self, crowd: &'a str) -> Process<'a> {
        Process { key: self.key(), process: self.1.as_fd(), crowd }
    }

    /// The clients and groups found at it.
    fn groups(&self, searcher: &mut Searcher) -> Result<Vec<(u32, u32)>, Unreachable> {
        let ways = searcher.look(&self.as_process(), None, &Limits::default())?;
        let groups = ways.into_iter().flat_map(|way| way.into_parts().1);
        Ok(groups.map(|group| (group.client, group.channel_group)).collect())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn processes_that_share_an_open_file_are_searched_and_walked_through_once() {
    let file = File::open(true);
    let (parent, child) = (file.program(), file.program());
    let mut searcher = Searcher::new(true);
    assert_eq!(parent.groups(&mut searcher).unwrap(), [(CLIENT, BASE + 3)]);
    assert!(file.take_asked() > 1000);
    assert_eq!(child.groups(&mut searcher).unwrap(), [(CLIENT, BASE + 3)]);
    assert!(file.take_asked() <= 2, "the child's is the parent's");
    // The next time it is looked whether anything is new, once for both.
    searcher.begin(&HashSet::from([parent.key(), child.key()]));
    assert_eq!(parent.groups(&mut searcher).unwrap(), [(CLIENT, BASE + 3)]);
    let walk = file.take_asked();
    assert_eq!(child.groups(&mut searcher).unwrap(), [(CLIENT, BASE + 3)]);
    // Whether the client is there still.
    assert!(walk > 1000 && file.take_asked() <= 2, "{walk}");
    // What the parent had goes on as the child's.
    searcher.begin(&HashSet::from([child.key()]));
    assert_eq!(child.groups(&mut searcher).unwrap(), [(CLIENT, BASE + 3)]);
}

#[test]
fn a_file_without_clients_is_searched_once_whoever_has_it() {
    let file = File::open(false);
    let (parent, child) = (file.program(), file.program());
    let mut searcher = Searcher::new(true);
    assert!(matches!(parent.groups(&mut searcher), Err(Unreachable::NoGroups(_))));
    let search = file.take_asked();
    assert!(matches!(child.groups(&mut searcher), Err(Unreachable::NoGroups(_))));
    assert_eq!((search > 500, file.take_asked()), (true, 0));
}

#[test]
fn a_client_that_is_not_found_at_once_is_found_from_round_to_round_with_no_question_asked_twice() {
    let file = File::open(true);
    let program = file.program();
    let mut searcher = Searcher::new(true);
    let few = Limits { questions: Questions::new(100), ..Limits::default() };
    let looked = searcher.look(&program.as_process(), None, &few);
    assert!(matches!(looked, Err(Unreachable::NotYet(_))), "{looked:?}");
    let processes = [program.as_process()];
    let mut rounds = Vec::new();
    loop {
        searcher.begin(&HashSet::from([program.key()]));
        let found = searcher.search(&processes, &Questions::new(100));
        rounds.push(file.take_asked());
        if found.contains(&program.key()) {
            break;
        }
    }
    // Client 7 is the last but seven of 513.
    assert_eq!(rounds, [200, 100, 100, 100, 13]);
    assert_eq!(program.groups(&mut searcher).unwrap(), [(CLIENT, BASE + 3)]);
}

#[test]
fn a_pod_with_many_files_does_not_keep_the_search_for_another_from_its_end() {
    let many: Vec<File> = (0..20).map(|_| File::open(false)).collect();
    let one = File::open(true);
    let (hoarders, modest): (Vec<Program>, _) = (many.iter().map(File::program).collect(), one.program());
    let mut searcher = Searcher::new(true);
    let none = || Limits { questions: Questions::new(1), ..Limits::default() };
    let mut processes: Vec<Process<'_>> = hoarders.iter().map(|program| program.of_pod("greedy")).collect();
    processes.push(modest.of_pod("modest"));
    processes.iter().for_each(|process| drop(searcher.look(process, None, &none())));
    let rounds = (1..=8).find(|_| searcher.search(&processes, &Questions::new(200)).contains(&modest.key()));
    assert_eq!(rounds, Some(6), "513 numbers, a hundred each time");
}

/// A process that has all of these files open, and no other knows of it.
fn with_all(files: &[File]) -> Program {
    let numbers: Vec<i32> = files.iter().map(|file| file.theirs.as_raw_fd()).collect();
    let mut command = Command::new("sleep");
    command.arg("1000");
    let keep = move || {
        // SAFETY: fcntl takes integers and touches no memory; it may be called between fork and exec.
        numbers.iter().for_each(|number| unsafe { assert_eq!(libc::fcntl(*number, libc::F_SETFD, 0), 0) });
        Ok(())
    };
    // SAFETY: what is called there may be.
    Program::of(unsafe { command.pre_exec(keep) })
}

#[test]
fn files_that_lead_to_other_gpus_do_not_make_a_process_one_that_has_too_many() {
    let most = u32::try_from(MOST_FILES).unwrap();
    let few = || Limits { gap: 16, ..Limits::default() };
    let mut files: Vec<File> = (0..most).map(|n| File::on(Some((CLIENT + n, THEIRS)))).collect();
    files.push(File::on(Some((CLIENT + most, OURS))));
    let program = with_all(&files);
    let ways = Searcher::new(true).look(&program.as_process(), Some(OURS), &few()).unwrap();
    let groups: Vec<usize> = ways.into_iter().map(|way| way.into_parts().1.len()).collect();
    assert_eq!((groups.len(), groups.iter().sum::<usize>()), (MOST_FILES + 1, 1));
    let files: Vec<File> = (0..=most).map(|n| File::on(Some((CLIENT + n, OURS)))).collect();
    let looked = Searcher::new(true).look(&with_all(&files).as_process(), Some(OURS), &few());
    assert!(matches!(looked, Err(Unreachable::TooMany(_))), "{looked:?}");
}

#[test]
fn clients_are_a_processs_own_only_over_a_file_on_which_they_are_and_which_it_has() {
    let (file, other, null) =
        (File::open(true), File::open(false), std::fs::File::open("/dev/null").unwrap());
    let (owner, stranger) = (file.program(), other.program());
    let is_own = |program: &Program, descriptor: BorrowedFd<'_>, client| {
        is_its_own(&program.as_process(), descriptor, &[client], true).unwrap()
    };
    assert!(is_own(&owner, file.theirs.as_fd(), CLIENT));
    assert!(!is_own(&owner, file.theirs.as_fd(), CLIENT + 1), "no such client");
    assert!(!is_own(&owner, other.theirs.as_fd(), CLIENT), "over another file");
    assert!(!is_own(&owner, null.as_fd(), CLIENT), "over no driver");
    assert!(!is_own(&stranger, file.theirs.as_fd(), CLIENT), "over a file that it has not open");
}
