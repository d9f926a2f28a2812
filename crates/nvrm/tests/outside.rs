//! What is found on a process's open file by asking for one handle after the other.

use std::cell::Cell;
use std::collections::BTreeMap;

use sluice_nvrm::outside::{Ask, CLIENTS, Limits, NUMBERS, Numbering, Questions, Search, walk};
use sluice_nvrm::{ControlError, NvStatus};

const DEVICE: u32 = 0x80;
const SUBDEVICE: u32 = 0x2080;
const GROUP: u32 = 0xa06c;
const CHANNEL: u32 = 0xc86f;
const COMPUTE: u32 = 0xcbc0;
const COPY: u32 = 0xc8b5;
const MEMORY: u32 = 0x40;
const BASE: u32 = 0x5c00_0000;

/// Handle, class and parent of an object, handles from their base on.
type Object = (u32, u32, u32);

/// Clients with their objects.
#[derive(Default)]
struct File {
    clients: BTreeMap<u32, Vec<Object>>,
    asked: Cell<u32>,
    broken: bool,
    /// A client that is freed when so many questions were asked.
    leaves: Option<(u32, u32)>,
}

impl File {
    fn with(clients: &[(u32, &[Object])]) -> Self {
        let clients = clients.iter().map(|(client, objects)| (CLIENTS + client, objects.to_vec()));
        Self { clients: clients.collect(), ..Self::default() }
    }

    fn object(&self, client: u32, object: u32) -> Result<Option<(u32, u32)>, ControlError> {
        self.asked.set(self.asked.get() + 1);
        if self.broken {
            return Err(ControlError::Timeout);
        }
        let has_left =
            self.leaves.is_some_and(|(leaves, after)| client == leaves && self.asked.get() > after);
        let Some(objects) = self.clients.get(&client).filter(|_| !has_left) else {
            return Err(ControlError::Refused(NvStatus::INVALID_CLIENT));
        };
        if object == client {
            return Ok(Some((0x41, 0)));
        }
        let found = objects.iter().find(|(handle, ..)| BASE + handle == object);
        Ok(found.map(|(_, class, parent)| (*class, if *parent == 0 { client } else { BASE + parent })))
    }
}

impl Ask for File {
    fn class(&self, client: u32, object: u32) -> Result<Option<u32>, ControlError> {
        Ok(self.object(client, object)?.map(|(class, _)| class))
    }

    fn parent(&self, client: u32, object: u32) -> Result<Option<u32>, ControlError> {
        Ok(self.object(client, object)?.map(|(_, parent)| parent))
    }
}

/// As on an H200 (`gpu-measurements.md` §1): a compute group and a copy group.
const CONTEXT: &[Object] = &[
    (2, DEVICE, 0),
    (3, SUBDEVICE, 2),
    (4, MEMORY, 2),
    (0x15, GROUP, 2),
    (0x1c, CHANNEL, 0x15),
    (0x1d, COMPUTE, 0x1c),
    (0x1e, COPY, 0x1c),
    (0x22, CHANNEL, 0x15),
    (0x3e, GROUP, 2),
    (0x40, CHANNEL, 0x3e),
    (0x41, COPY, 0x40),
];

fn limits() -> Limits {
    Limits { gap: 64, ..Limits::default() }
}

/// (client, subdevice, group, channels), handles from their bases on.
type Found = Vec<(u32, u32, u32, Vec<u32>)>;

/// The clients of a file, searched for from this one downwards.
fn clients(file: &File, newest: u32) -> Result<Vec<u32>, String> {
    let mut search = Search::from(Numbering::at(Some(CLIENTS + newest)).newest());
    let enough = |clients: &[u32], since| !clients.is_empty() && since > 100;
    search.go_back(file, NUMBERS, &Questions::new(u32::MAX), enough).map_err(|why| why.to_string())?;
    Ok(search.clients().to_vec())
}

#[track_caller]
fn found(file: &File, newest: u32) -> Result<Found, String> {
    let tree = walk(file, &clients(file, newest)?, &limits()).map_err(|why| why.to_string())?;
    let groups = tree.into_groups(|_, _| Ok(true))?.into_iter().map(|group| {
        let channels = group.channels.iter().map(|channel| channel - BASE).collect();
        (group.client - CLIENTS, group.subdevice - BASE, group.channel_group - BASE, channels)
    });
    Ok(groups.collect())
}

#[test]
fn the_compute_group_is_found_with_all_its_channels_and_the_copy_group_is_left_alone() {
    let file = File::with(&[(0x19, CONTEXT)]);
    assert_eq!(found(&file, 0x40), Ok(vec![(0x19, 3, 0x15, vec![0x1c, 0x22])]));
}

#[test]
fn every_context_and_every_client_of_the_file_is_found() {
    let two: Vec<_> = CONTEXT
        .iter()
        .copied()
        .chain([(0x70, GROUP, 2), (0x71, CHANNEL, 0x70), (0x72, COMPUTE, 0x71)])
        .collect();
    let file = File::with(&[(0x19, CONTEXT), (0x18, &two), (0x10, &[])]);
    let all = vec![
        (0x19, 3, 0x15, vec![0x1c, 0x22]),
        (0x18, 3, 0x15, vec![0x1c, 0x22]),
        (0x18, 3, 0x70, vec![0x71]),
    ];
    assert_eq!(found(&file, 0x40), Ok(all));
}

#[test]
fn each_group_is_stopped_through_a_subdevice_of_its_own_device() {
    let two_gpus = [
        (2, DEVICE, 0),
        (3, SUBDEVICE, 2),
        (5, DEVICE, 0),
        (6, SUBDEVICE, 5),
        (0x15, GROUP, 5),
        (0x16, CHANNEL, 0x15),
        (0x17, COMPUTE, 0x16),
    ];
    assert_eq!(found(&File::with(&[(1, &two_gpus)]), 9), Ok(vec![(1, 6, 0x15, vec![0x16])]));
}

#[test]
fn where_no_compute_engine_shows_every_group_is_one_that_might_compute() {
    let blind: Vec<_> = CONTEXT.iter().copied().filter(|(_, class, _)| *class != COMPUTE).collect();
    let groups = found(&File::with(&[(1, &blind)]), 9).map(|groups| groups.len());
    assert_eq!(groups, Ok(2));
}

#[test]
fn a_group_that_cannot_be_stopped_is_no_success() {
    let without: Vec<_> = CONTEXT.iter().copied().filter(|(_, class, _)| *class != SUBDEVICE).collect();
    let why = found(&File::with(&[(1, &without)]), 9).expect_err("found");
    assert!(why.contains("no subdevice") && why.contains("0x5c000015"), "{why}");
    let many: Vec<_> =
        (0x100..0x141).map(|channel| (channel, CHANNEL, 0x15)).chain(CONTEXT.iter().copied()).collect();
    let file = File::with(&[(1, &many)]);
    let tree = || walk(&file, &[CLIENTS + 1], &Limits { gap: 256, ..limits() }).expect("answers");
    let why = tree().into_groups(|_, _| Ok(true)).expect_err("found");
    assert!(why.contains("more than 64 channels"), "{why}");
    // What is on another GPU is another manager's affair, whatever it is like.
    assert_eq!(
        tree().into_groups(|client, subdevice| Ok((client, subdevice) != (CLIENTS + 1, BASE + 3))),
        Ok(vec![])
    );
}

#[test]
fn clients_are_looked_for_below_the_newest_and_then_above_it_where_the_numbers_began_again() {
    let file = File::with(&[(0x1_0000, CONTEXT)]);
    assert_eq!(found(&file, 0x1_0010).map(|groups| groups.len()), Ok(1));
    assert!(file.asked.get() < 1000, "{} questions", file.asked.get());
    // A program that has run for days: the numbers of the others have come round since.
    assert_eq!(found(&file, 0xfff0).map(|groups| groups.len()), Ok(1));
    assert_eq!(clients(&File::with(&[]), 0xfff0), Ok(Vec::new()));
}

/// A day of a node: others have taken all the numbers meanwhile, and each look takes one.
#[test]
fn a_program_that_has_run_for_long_is_known_still_and_its_new_clients_are_found() {
    let mut file = File::with(&[(0x70, CONTEXT)]);
    let mut numbering = Numbering::at(Some(CLIENTS + 0x80));
    let mut search = Search::from(numbering.newest());
    let questions = Questions::new(u32::MAX);
    search.go_back(&file, NUMBERS, &questions, |clients, _| !clients.is_empty()).expect("answers");
    for look in 0..40 {
        numbering.made(CLIENTS + 0x80 + look * 0x8000 % 0x10_0000);
        assert_eq!(search.is_on(&file, &questions).ok(), Some(true));
        search.catch_up(&file, numbering.newest(), &questions).expect("answers");
        assert_eq!(search.clients(), [CLIENTS + 0x70]);
    }
    file.clients.insert(CLIENTS + 0x3_9000, Vec::new());
    numbering.made(CLIENTS + 0x4_0000);
    file.asked.set(0);
    search.catch_up(&file, numbering.newest(), &questions).expect("answers");
    assert_eq!(search.clients(), [CLIENTS + 0x3_9000, CLIENTS + 0x70]);
    assert!(search.is_complete(NUMBERS));
}

#[test]
fn who_makes_clients_all_the_time_is_caught_up_with_a_few_questions_at_a_time() {
    let mut file = File::default();
    let mut numbering = Numbering::at(Some(CLIENTS + 0x100));
    let mut search = Search::from(numbering.newest());
    file.clients.insert(CLIENTS + 0x2_0000, Vec::new());
    numbering.made(CLIENTS + 0x4_0000);
    let mut looks = 0;
    while search.is_behind(numbering.newest()) {
        search.catch_up(&file, numbering.newest(), &Questions::new(1 << 16)).expect("answers");
        looks += 1;
    }
    assert_eq!((looks, search.clients()), (4, [CLIENTS + 0x2_0000].as_slice()));
}

#[test]
fn no_number_is_asked_for_twice_over_many_looks_with_few_questions_each() {
    let file = File::with(&[(0x100, CONTEXT)]);
    let mut search = Search::from(Numbering::at(Some(CLIENTS + 0x200)).newest());
    let mut looks = 0;
    while !search.is_complete(NUMBERS) {
        let questions = Questions::new(1 << 17);
        search.go_back(&file, NUMBERS, &questions, |_, _| false).expect("answers");
        looks += 1;
    }
    assert_eq!((looks, file.asked.get(), search.clients()), (8, 1 << 20, [CLIENTS + 0x100].as_slice()));
}

#[test]
fn a_client_whose_number_was_stepped_over_to_is_found_when_the_numbering_gets_there() {
    let mut file = File::default();
    let mut numbering = Numbering::at(Some(CLIENTS + 0x2000));
    let mut search = Search::from(numbering.newest());
    let questions = Questions::new(u32::MAX);
    // Somebody's number was taken, so it has one that is ahead, and the next ones are behind it again.
    numbering.made(CLIENTS + 0x2401);
    search.catch_up(&file, numbering.newest(), &questions).expect("answers");
    file.clients.insert(CLIENTS + 0x2010, Vec::new());
    numbering.made(CLIENTS + 0x2011);
    search.catch_up(&file, numbering.newest(), &questions).expect("answers");
    assert_eq!(search.clients(), [CLIENTS + 0x2010]);
}

#[test]
fn a_client_that_goes_while_it_is_looked_at_hides_no_other() {
    // Another part of the program, NVML for one, makes clients and frees them as it pleases.
    let leaves = Some((CLIENTS + 0x1a, 130));
    let file = File { leaves, ..File::with(&[(0x1a, CONTEXT), (0x19, CONTEXT)]) };
    assert_eq!(found(&file, 0x1a), Ok(vec![(0x19, 3, 0x15, vec![0x1c, 0x22])]));
    let mut search = Search::from(Numbering::at(Some(CLIENTS + 0x1a)).newest());
    let file = File { leaves, ..File::with(&[(0x1a, CONTEXT), (0x19, CONTEXT)]) };
    search.go_back(&file, 4, &Questions::new(9), |_, _| false).expect("answers");
    file.asked.set(1000);
    assert_eq!(search.is_on(&file, &Questions::new(9)).ok(), Some(true));
    assert_eq!(search.clients(), [CLIENTS + 0x19]);
}

#[test]
fn a_process_cannot_keep_whoever_looks_busy_for_ever() {
    let many: Vec<_> = (0..2_000).map(|client| (client, CONTEXT)).collect();
    let file = File::with(&many);
    let all = clients(&file, 2_000).expect("answers");
    file.asked.set(0);
    let limits = Limits { questions: Questions::new(10_000), ..limits() };
    let why = walk(&file, &all, &limits).expect_err("all of it").to_string();
    assert!(why.contains("more objects"), "{why}");
    assert!(file.asked.get() <= 2 * 10_000, "{} questions", file.asked.get());
    // Files are looked at one after the other, with the same questions left.
    assert!(walk(&File::with(&[(1, CONTEXT)]), &[CLIENTS + 1], &limits).is_err());
}

#[test]
fn a_driver_that_does_not_answer_is_not_taken_for_one_without_groups() {
    let file = File { broken: true, ..File::with(&[(1, CONTEXT)]) };
    assert!(found(&file, 9).is_err());
}
