//! The search for clients on an open file, and the walk through their objects.

use std::cell::Cell;
use std::collections::BTreeMap;

use sluice_nvrm::discovery::{
    CLIENT_NUMBERS, ClientNumbering, ClientSearch, FIRST_CLIENT, ObjectQueries, QueryBudget, WalkLimits,
    walk_objects,
};
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

/// An open file: its clients with their objects.
#[derive(Default)]
struct File {
    clients: BTreeMap<u32, Vec<Object>>,
    queries: Cell<u32>,
    /// Every query times out.
    is_broken: bool,
    /// A client, and the count of queries after which it is freed.
    freed: Option<(u32, u32)>,
}

impl File {
    fn with(clients: &[(u32, &[Object])]) -> Self {
        let clients = clients.iter().map(|(client, objects)| (FIRST_CLIENT + client, objects.to_vec()));
        Self { clients: clients.collect(), ..Self::default() }
    }

    fn object(&self, client: u32, object: u32) -> Result<Option<(u32, u32)>, ControlError> {
        self.queries.set(self.queries.get() + 1);
        if self.is_broken {
            return Err(ControlError::Timeout);
        }
        let is_freed = self.freed.is_some_and(|(freed, after)| client == freed && self.queries.get() > after);
        let Some(objects) = self.clients.get(&client).filter(|_| !is_freed) else {
            return Err(ControlError::Refused(NvStatus::INVALID_CLIENT));
        };
        if object == client {
            return Ok(Some((0x41, 0)));
        }
        let found = objects.iter().find(|(handle, ..)| BASE + handle == object);
        Ok(found.map(|(_, class, parent)| (*class, if *parent == 0 { client } else { BASE + parent })))
    }
}

impl ObjectQueries for File {
    fn class(&self, client: u32, object: u32) -> Result<Option<u32>, ControlError> {
        Ok(self.object(client, object)?.map(|(class, _)| class))
    }

    fn parent(&self, client: u32, object: u32) -> Result<Option<u32>, ControlError> {
        Ok(self.object(client, object)?.map(|(_, parent)| parent))
    }
}

/// As on an H200 (`docs/reference/gpu.md` §1): a compute group and a copy group.
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

fn limits() -> WalkLimits {
    WalkLimits { gap: 64, ..WalkLimits::default() }
}

/// (client, subdevice, group, channels), handles from their bases on.
type Found = Vec<(u32, u32, u32, Vec<u32>)>;

/// The clients of a file, searched from this number downwards.
fn clients(file: &File, newest: u32) -> Result<Vec<u32>, String> {
    let mut search = ClientSearch::from(ClientNumbering::from_newest(Some(FIRST_CLIENT + newest)).newest());
    let enough = |clients: &[u32], since| !clients.is_empty() && since > 100;
    search
        .search_older(file, CLIENT_NUMBERS, &QueryBudget::new(u32::MAX), enough)
        .map_err(|why| why.to_string())?;
    Ok(search.clients().to_vec())
}

#[track_caller]
fn found(file: &File, newest: u32) -> Result<Found, String> {
    let tree = walk_objects(file, &clients(file, newest)?, &limits()).map_err(|why| why.to_string())?;
    let groups = tree.into_groups(|_, _| Ok(true))?.into_iter().map(|group| {
        let channels = group.channels.iter().map(|channel| channel - BASE).collect();
        (group.client - FIRST_CLIENT, group.subdevice - BASE, group.channel_group - BASE, channels)
    });
    Ok(groups.collect())
}

#[test]
fn compute_group_is_found_with_all_channels_and_copy_group_is_left_out() {
    let file = File::with(&[(0x19, CONTEXT)]);
    assert_eq!(found(&file, 0x40), Ok(vec![(0x19, 3, 0x15, vec![0x1c, 0x22])]));
}

#[test]
fn groups_of_all_clients_of_a_file_are_found() {
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
fn group_is_controlled_through_a_subdevice_of_its_own_device() {
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
fn without_a_visible_compute_engine_all_groups_are_found() {
    let without: Vec<_> = CONTEXT.iter().copied().filter(|(_, class, _)| *class != COMPUTE).collect();
    let groups = found(&File::with(&[(1, &without)]), 9).map(|groups| groups.len());
    assert_eq!(groups, Ok(2));
}

#[test]
fn group_that_cannot_be_disabled_is_an_error_unless_it_is_on_another_gpu() {
    let without: Vec<_> = CONTEXT.iter().copied().filter(|(_, class, _)| *class != SUBDEVICE).collect();
    let why = found(&File::with(&[(1, &without)]), 9).expect_err("found");
    assert!(why.contains("no subdevice") && why.contains("0x5c000015"), "{why}");
    let many: Vec<_> =
        (0x100..0x141).map(|channel| (channel, CHANNEL, 0x15)).chain(CONTEXT.iter().copied()).collect();
    let file = File::with(&[(1, &many)]);
    let tree =
        || walk_objects(&file, &[FIRST_CLIENT + 1], &WalkLimits { gap: 256, ..limits() }).expect("answers");
    let why = tree().into_groups(|_, _| Ok(true)).expect_err("found");
    assert!(why.contains("more than 64 channels"), "{why}");
    // The manager of the other GPU controls its groups.
    assert_eq!(
        tree().into_groups(|client, subdevice| Ok((client, subdevice) != (FIRST_CLIENT + 1, BASE + 3))),
        Ok(vec![])
    );
}

#[test]
fn clients_are_searched_below_the_newest_number_and_then_above_it() {
    let file = File::with(&[(0x1_0000, CONTEXT)]);
    assert_eq!(found(&file, 0x1_0010).map(|groups| groups.len()), Ok(1));
    assert!(file.queries.get() < 1000, "{} queries", file.queries.get());
    // A client that is older than one round of the numbering.
    assert_eq!(found(&file, 0xfff0).map(|groups| groups.len()), Ok(1));
    assert_eq!(clients(&File::with(&[]), 0xfff0), Ok(Vec::new()));
}

/// A day of a node: other processes use up all numbers, and each scan uses one.
#[test]
fn old_client_stays_known_after_a_round_of_the_numbering_and_new_clients_are_found() {
    let mut file = File::with(&[(0x70, CONTEXT)]);
    let mut numbering = ClientNumbering::from_newest(Some(FIRST_CLIENT + 0x80));
    let mut search = ClientSearch::from(numbering.newest());
    let queries = QueryBudget::new(u32::MAX);
    search.search_older(&file, CLIENT_NUMBERS, &queries, |clients, _| !clients.is_empty()).expect("answers");
    for scan in 0..40 {
        numbering.observe(FIRST_CLIENT + 0x80 + scan * 0x8000 % 0x10_0000);
        assert_eq!(search.drop_freed(&file, &queries).ok(), Some(true));
        search.search_newer(&file, &numbering, &queries).expect("answers");
        assert_eq!(search.clients(), [FIRST_CLIENT + 0x70]);
    }
    file.clients.insert(FIRST_CLIENT + 0x3_9000, Vec::new());
    numbering.observe(FIRST_CLIENT + 0x4_0000);
    file.queries.set(0);
    search.search_newer(&file, &numbering, &queries).expect("answers");
    assert_eq!(search.clients(), [FIRST_CLIENT + 0x3_9000, FIRST_CLIENT + 0x70]);
    assert!(search.is_complete(CLIENT_NUMBERS));
}

#[test]
fn search_catches_up_with_a_fast_numbering_over_several_scans() {
    let mut file = File::default();
    let mut numbering = ClientNumbering::from_newest(Some(FIRST_CLIENT + 0x100));
    let mut search = ClientSearch::from(numbering.newest());
    file.clients.insert(FIRST_CLIENT + 0x2_0000, Vec::new());
    numbering.observe(FIRST_CLIENT + 0x4_0000);
    let mut scans = 0;
    while search.is_behind(numbering.newest()) {
        search.search_newer(&file, &numbering, &QueryBudget::new(1 << 16)).expect("answers");
        scans += 1;
    }
    assert_eq!((scans, search.clients()), (4, [FIRST_CLIENT + 0x2_0000].as_slice()));
}

#[test]
fn no_number_is_queried_twice_over_several_scans() {
    let file = File::with(&[(0x100, CONTEXT)]);
    let mut search = ClientSearch::from(ClientNumbering::from_newest(Some(FIRST_CLIENT + 0x200)).newest());
    let mut scans = 0;
    while !search.is_complete(CLIENT_NUMBERS) {
        let queries = QueryBudget::new(1 << 17);
        search.search_older(&file, CLIENT_NUMBERS, &queries, |_, _| false).expect("answers");
        scans += 1;
    }
    assert_eq!(
        (scans, file.queries.get(), search.clients()),
        (8, 1 << 20, [FIRST_CLIENT + 0x100].as_slice())
    );
}

#[test]
fn client_with_a_number_below_a_stepped_over_one_is_found() {
    let mut file = File::default();
    let mut numbering = ClientNumbering::from_newest(Some(FIRST_CLIENT + 0x2000));
    let mut search = ClientSearch::from(numbering.newest());
    let queries = QueryBudget::new(u32::MAX);
    // A taken number made the driver step ahead; the numbers in between are given out afterwards.
    numbering.observe(FIRST_CLIENT + 0x2401);
    search.search_newer(&file, &numbering, &queries).expect("answers");
    file.clients.insert(FIRST_CLIENT + 0x2010, Vec::new());
    numbering.observe(FIRST_CLIENT + 0x2011);
    search.search_newer(&file, &numbering, &queries).expect("answers");
    assert_eq!(search.clients(), [FIRST_CLIENT + 0x2010]);
}

#[test]
fn client_freed_during_the_walk_does_not_hide_other_clients() {
    // Other parts of a program, such as NVML, make and free clients at any time.
    let freed = Some((FIRST_CLIENT + 0x1a, 130));
    let file = File { freed, ..File::with(&[(0x1a, CONTEXT), (0x19, CONTEXT)]) };
    assert_eq!(found(&file, 0x1a), Ok(vec![(0x19, 3, 0x15, vec![0x1c, 0x22])]));
    let mut search = ClientSearch::from(ClientNumbering::from_newest(Some(FIRST_CLIENT + 0x1a)).newest());
    let file = File { freed, ..File::with(&[(0x1a, CONTEXT), (0x19, CONTEXT)]) };
    search.search_older(&file, 4, &QueryBudget::new(9), |_, _| false).expect("answers");
    file.queries.set(1000);
    assert_eq!(search.drop_freed(&file, &QueryBudget::new(9)).ok(), Some(true));
    assert_eq!(search.clients(), [FIRST_CLIENT + 0x19]);
}

#[test]
fn walk_over_many_clients_ends_with_its_query_budget() {
    let many: Vec<_> = (0..2_000).map(|client| (client, CONTEXT)).collect();
    let file = File::with(&many);
    let all = clients(&file, 2_000).expect("answers");
    file.queries.set(0);
    let limits = WalkLimits { queries: QueryBudget::new(10_000), ..limits() };
    let why = walk_objects(&file, &all, &limits).expect_err("all of it").to_string();
    assert!(why.contains("more objects"), "{why}");
    assert!(file.queries.get() <= 2 * 10_000, "{} queries", file.queries.get());
    // The next file is walked with the rest of the same budget.
    assert!(walk_objects(&File::with(&[(1, CONTEXT)]), &[FIRST_CLIENT + 1], &limits).is_err());
}

#[test]
fn driver_timeout_is_an_error_and_not_an_empty_result() {
    let file = File { is_broken: true, ..File::with(&[(1, CONTEXT)]) };
    assert!(found(&file, 9).is_err());
}
