//! Discovery of the channel groups of real processes: children that have a socket of a fake simulator open.

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use sluice_nvrm::NvStatus;
use sluice_nvrm::abi::{Command as Control, ControlBlock, class, gid, handle_info};
use sluice_nvrm::discovery::{
    DiscoveredDescriptor, DiscoveryError, FIRST_CLIENT, GroupDiscovery, MAX_FILES, OWNERSHIP_QUERIES,
    ProcessKey, QueryBudget, ScannedProcess, WalkLimits, driver_descriptors, owns_clients,
};
use sluice_nvrm::transport::wire;
use sluice_sys::pidfd;
use sluice_sys::socket::{recv_with_fds, send_with_fds};

const CLIENT: u32 = FIRST_CLIENT + 7;
const THIS_GPU: &str = "GPU-01234567-89ab-cdef-0123-456789abcdef";
const OTHER_GPU: &str = "GPU-fedcba98-89ab-cdef-0123-456789abcdef";
const BASE: u32 = 0x5c00_0000;

/// Handle, class and parent.
const OBJECTS: [(u32, u32, u32); 5] = [
    (BASE + 1, class::DEVICE, CLIENT),
    (BASE + 2, class::SUBDEVICE, BASE + 1),
    (BASE + 3, class::CHANNEL_GROUP, BASE + 1),
    (BASE + 4, 0xc86f, BASE + 3),
    (BASE + 5, 0xcbc0, BASE + 4),
];

/// An open file of a fake driver: the program's end, and the count of queries.
struct File {
    program_end: OwnedFd,
    queries: Arc<AtomicUsize>,
}

impl File {
    /// A file with one client that has a context, or without clients.
    fn open(has_client: bool) -> Self {
        Self::on(has_client.then_some((CLIENT, THIS_GPU)))
    }

    /// A file with this client, which has a context on this GPU. Clients of different files have different numbers.
    fn on(client: Option<(u32, &'static str)>) -> Self {
        let mut fds = [0; 2];
        let flags = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        // SAFETY: room for two descriptors, which are then owned once each.
        let [driver_end, program_end] = unsafe {
            assert_eq!(libc::socketpair(libc::AF_UNIX, flags, 0, fds.as_mut_ptr()), 0);
            fds.map(|fd| OwnedFd::from_raw_fd(fd))
        };
        let queries = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&queries);
        thread::spawn(move || {
            let mut packet = vec![0; wire::MAX_REQUEST];
            while let Ok((len @ 1.., fds)) = recv_with_fds(driver_end.as_fd(), &mut packet) {
                let request = wire::decode_request(&packet[..len]).unwrap();
                if request.nr == u32::from(wire::NEWEST_CLIENT) {
                    let refused = wire::encode_answer(libc::EINVAL, request.block, request.params);
                    send_with_fds(fds[0].as_fd(), &refused, &[]).unwrap();
                    continue;
                }
                count.fetch_add(1, Ordering::SeqCst);
                let mut params = request.params.to_vec();
                let mut block = ControlBlock::decode(request.block).unwrap();
                block.status = answer(&block, &mut params, client).0;
                let answer = wire::encode_answer(0, &block.encode(), &params);
                send_with_fds(fds[0].as_fd(), &answer, &[]).unwrap();
            }
        });
        Self { program_end, queries }
    }

    fn take_queries(&self) -> usize {
        self.queries.swap(0, Ordering::SeqCst)
    }

    /// A program that has two descriptors of the file.
    fn program(&self) -> Program {
        let copy = || Stdio::from(self.program_end.try_clone().unwrap());
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
    let (object, what) = handle_info::decode_query(params).unwrap();
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

    fn in_pod<'a>(&'a self, pod: &'a str) -> ScannedProcess<'a> {
        ScannedProcess { key: self.key(), pidfd: self.1.as_fd(), pod }
    }

    fn inspect(
        &self,
        discovery: &mut GroupDiscovery,
        pod: &str,
        gpu: Option<&str>,
        limits: &WalkLimits,
    ) -> Result<Vec<DiscoveredDescriptor>, DiscoveryError> {
        let numbers = driver_descriptors(self.key().0, true).unwrap();
        discovery.inspect(&self.in_pod(pod), &numbers, gpu, limits)
    }

    /// The clients and groups found at it.
    fn groups(&self, discovery: &mut GroupDiscovery) -> Result<Vec<(u32, u32)>, DiscoveryError> {
        let descriptors = self.inspect(discovery, "pod", None, &WalkLimits::default())?;
        let groups = descriptors.into_iter().flat_map(|descriptor| descriptor.into_parts().1);
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
fn file_shared_by_two_processes_is_searched_and_walked_once() {
    let file = File::open(true);
    let (parent, child) = (file.program(), file.program());
    let mut discovery = GroupDiscovery::new(true);
    assert_eq!(parent.groups(&mut discovery).unwrap(), [(CLIENT, BASE + 3)]);
    assert!(file.take_queries() > 1000);
    assert_eq!(child.groups(&mut discovery).unwrap(), [(CLIENT, BASE + 3)]);
    assert!(file.take_queries() <= 2, "the child shares the parent's file");
    // The next scan walks the file once for both.
    discovery.begin_scan(&HashSet::from([parent.key(), child.key()]));
    assert_eq!(parent.groups(&mut discovery).unwrap(), [(CLIENT, BASE + 3)]);
    let walk = file.take_queries();
    assert_eq!(child.groups(&mut discovery).unwrap(), [(CLIENT, BASE + 3)]);
    // The queries are whether the client still exists.
    assert!(walk > 1000 && file.take_queries() <= 2, "{walk}");
    // The child keeps the file after the parent has ended.
    discovery.begin_scan(&HashSet::from([child.key()]));
    assert_eq!(child.groups(&mut discovery).unwrap(), [(CLIENT, BASE + 3)]);
}

#[test]
fn shared_file_without_clients_is_searched_once() {
    let file = File::open(false);
    let (parent, child) = (file.program(), file.program());
    let mut discovery = GroupDiscovery::new(true);
    assert!(matches!(parent.groups(&mut discovery), Err(DiscoveryError::NoGroups(_))));
    let search = file.take_queries();
    assert!(matches!(child.groups(&mut discovery), Err(DiscoveryError::NoGroups(_))));
    assert_eq!((search > 500, file.take_queries()), (true, 0));
}

#[test]
fn continued_search_finds_a_client_over_several_scans_without_repeated_queries() {
    let file = File::open(true);
    let program = file.program();
    let mut discovery = GroupDiscovery::new(true);
    let few = WalkLimits { queries: QueryBudget::new(100), ..WalkLimits::default() };
    let inspected = program.inspect(&mut discovery, "pod", None, &few);
    assert!(matches!(inspected, Err(DiscoveryError::SearchIncomplete(_))), "{inspected:?}");
    let processes = [program.in_pod("pod")];
    let mut queries_of_scans = Vec::new();
    loop {
        discovery.begin_scan(&HashSet::from([program.key()]));
        let found = discovery.continue_search(&processes, &QueryBudget::new(100));
        queries_of_scans.push(file.take_queries());
        if found.contains(&program.key()) {
            break;
        }
    }
    // Client 7 is the 506th of 513 numbers.
    assert_eq!(queries_of_scans, [200, 100, 100, 100, 13]);
    assert_eq!(program.groups(&mut discovery).unwrap(), [(CLIENT, BASE + 3)]);
}

#[test]
fn pod_with_many_files_does_not_delay_the_search_of_another_pod() {
    let many: Vec<File> = (0..20).map(|_| File::open(false)).collect();
    let one = File::open(true);
    let (owners_of_many, modest): (Vec<Program>, _) =
        (many.iter().map(File::program).collect(), one.program());
    let mut discovery = GroupDiscovery::new(true);
    let none = || WalkLimits { queries: QueryBudget::new(1), ..WalkLimits::default() };
    let mut programs: Vec<_> = owners_of_many.iter().map(|program| (program, "greedy")).collect();
    programs.push((&modest, "modest"));
    for (program, pod) in &programs {
        drop(program.inspect(&mut discovery, pod, None, &none()));
    }
    let processes: Vec<ScannedProcess<'_>> =
        programs.iter().map(|(program, pod)| program.in_pod(pod)).collect();
    let scans = (1..=8)
        .find(|_| discovery.continue_search(&processes, &QueryBudget::new(200)).contains(&modest.key()));
    assert_eq!(scans, Some(6), "513 numbers, 100 in each scan");
}

/// A process that has all of these files open.
fn with_all(files: &[File]) -> Program {
    let numbers: Vec<i32> = files.iter().map(|file| file.program_end.as_raw_fd()).collect();
    let mut command = Command::new("sleep");
    command.arg("1000");
    let keep = move || {
        // SAFETY: fcntl takes integers and touches no memory; it may be called between fork and exec.
        numbers.iter().for_each(|number| unsafe { assert_eq!(libc::fcntl(*number, libc::F_SETFD, 0), 0) });
        Ok(())
    };
    // SAFETY: the closure makes only calls that are allowed between fork and exec.
    Program::of(unsafe { command.pre_exec(keep) })
}

#[test]
fn files_of_other_gpus_do_not_count_against_the_limit_of_files() {
    let most = u32::try_from(MAX_FILES).unwrap();
    let few = || WalkLimits { gap: 16, ..WalkLimits::default() };
    let mut files: Vec<File> = (0..most).map(|n| File::on(Some((CLIENT + n, OTHER_GPU)))).collect();
    files.push(File::on(Some((CLIENT + most, THIS_GPU))));
    let program = with_all(&files);
    let descriptors = program.inspect(&mut GroupDiscovery::new(true), "pod", Some(THIS_GPU), &few()).unwrap();
    let groups: Vec<usize> =
        descriptors.into_iter().map(|descriptor| descriptor.into_parts().1.len()).collect();
    assert_eq!((groups.len(), groups.iter().sum::<usize>()), (MAX_FILES + 1, 1));
    let files: Vec<File> = (0..=most).map(|n| File::on(Some((CLIENT + n, THIS_GPU)))).collect();
    let inspected = with_all(&files).inspect(&mut GroupDiscovery::new(true), "pod", Some(THIS_GPU), &few());
    assert!(matches!(inspected, Err(DiscoveryError::TooManyFiles(_))), "{inspected:?}");
}

#[test]
fn process_owns_clients_only_on_the_file_where_they_were_made_and_that_it_has_open() {
    let (file, other, null) =
        (File::open(true), File::open(false), std::fs::File::open("/dev/null").unwrap());
    let (owner, stranger) = (file.program(), other.program());
    let owns = |program: &Program, descriptor: BorrowedFd<'_>, client| {
        let announced = [(descriptor.try_clone_to_owned().unwrap(), vec![client])];
        let queries = QueryBudget::new(OWNERSHIP_QUERIES);
        owns_clients(&program.in_pod("pod"), &announced, true, &queries).unwrap()
    };
    assert!(owns(&owner, file.program_end.as_fd(), CLIENT));
    assert!(!owns(&owner, file.program_end.as_fd(), CLIENT + 1), "no such client");
    assert!(!owns(&owner, other.program_end.as_fd(), CLIENT), "made over another file");
    assert!(!owns(&owner, null.as_fd(), CLIENT), "the descriptor is no driver");
    assert!(!owns(&stranger, file.program_end.as_fd(), CLIENT), "the process does not have the file open");
}

/// The process decides how many descriptors it has, and how many it sends.
#[test]
fn ownership_check_lists_descriptors_once_and_ends_with_its_budget() {
    const SENT: usize = 8;
    let file = File::open(true);
    let many = "for n in {10..209}; do eval \"exec $n</dev/null\"; done; echo; exec sleep 1000 >&0";
    let mut command = Command::new("bash");
    command.args(["-c", many]).stdin(file.program_end.try_clone().unwrap()).stdout(Stdio::piped());
    let mut owner = Program::of(&mut command);
    BufReader::new(owner.0.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
    let check = |budget| {
        let sent = || (file.program_end.try_clone().unwrap(), vec![CLIENT]);
        let announced: Vec<_> = (0..SENT).map(|_| sent()).collect();
        let queries = QueryBudget::new(budget);
        let owns = owns_clients(&owner.in_pod("pod"), &announced, true, &queries);
        (owns, budget - queries.remaining())
    };
    let (owns, spent) = check(OWNERSHIP_QUERIES);
    assert!(owns.unwrap());
    assert!((200..=250).contains(&spent), "{spent}: some 200 descriptors, and two for each one sent");
    let (owns, spent) = check(200);
    assert!(matches!(owns, Err(DiscoveryError::TooManyDescriptors(_))), "{owns:?}");
    assert_eq!(spent, 200);
}
