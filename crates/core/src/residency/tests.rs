//! A world of clients that obey the pager, some of them late, and what must hold in it at each moment.

use super::*;
use proptest::prelude::*;

mod idle;
mod suspension;

const MS: u64 = 1_000_000;
const CAPACITY: u64 = 100;
const STEP: u64 = 10 * MS;
/// Time in which one byte moves.
const MOVE_NS: u64 = 2 * MS;

fn policy() -> PagerPolicy {
    PagerPolicy {
        capacity: CAPACITY,
        min_quantum_ns: 500 * MS,
        move_timeout_ns: 2_000 * MS,
        ..PagerPolicy::default()
    }
}

#[derive(Clone, Debug)]
struct Worker {
    need: u64,
    resident: u64,
    moved_ns: u64,
    ran_ns: u64,
    /// The longest time between two moments at which it ran.
    paused_ns: u64,
    longest_pause_ns: u64,
    /// It does not do what it is asked.
    is_deaf: bool,
    /// There is no place on the host for its memory.
    is_bound: bool,
    is_suspended: bool,
    idle_since: Option<u64>,
}

struct World {
    pager: Pager,
    now: u64,
    workers: BTreeMap<ClientId, Worker>,
    fixed_wanted: u64,
    fixed: u64,
    moves_ns: u64,
}

impl World {
    fn new(needs: &[u64]) -> Self {
        let worker = |need: &u64| Worker {
            need: *need,
            resident: 0,
            moved_ns: 0,
            ran_ns: 0,
            paused_ns: 0,
            longest_pause_ns: 0,
            is_deaf: false,
            is_bound: false,
            is_suspended: false,
            idle_since: None,
        };
        let workers =
            needs.iter().enumerate().map(|(at, need)| (ClientId(at as u64), worker(need))).collect();
        Self { pager: Pager::new(policy()), now: 0, workers, fixed_wanted: 0, fixed: 0, moves_ns: 0 }
    }

    fn resident(&self) -> u64 {
        self.workers.values().map(|worker| worker.resident).sum()
    }

    fn step(&mut self) {
        self.now += STEP;
        let reported = self.workers.iter().map(|(id, worker)| {
            let Worker { need, resident, is_bound, is_suspended: suspended, idle_since, .. } = *worker;
            let waits = resident < need && !suspended;
            let reported = Reported {
                need,
                resident,
                waits,
                may_leave: !is_bound,
                suspended,
                idle_since,
                ..Reported::default()
            };
            (*id, reported)
        });
        self.pager.advance(self.now, self.fixed_wanted, &reported.collect());
        assert!(
            self.pager.next_deadline().is_none_or(|at| at > self.now),
            "the pager is due at once, again and again"
        );
        let occupied =
            self.workers.iter().map(|(id, worker)| self.pager.room(*id).unwrap_or(0).max(worker.resident));
        let fits = self.fixed_wanted + occupied.sum::<u64>() <= CAPACITY;
        assert!(!(fits && self.pager.makes_room_for_fixed()));
        if self.fixed_wanted < self.fixed || fits {
            self.fixed = self.fixed_wanted;
        }
        let mut moving = false;
        for (id, worker) in &mut self.workers {
            let room = self.pager.room(*id).unwrap_or(0);
            assert!(
                room == 0 || room >= worker.resident,
                "{id:?} has room {room} for a part of its memory: {worker:?}"
            );
            let leaves = room < worker.resident;
            let returns = worker.resident < worker.need && room >= worker.need;
            if (leaves || returns) && !worker.is_deaf {
                moving = true;
                worker.moved_ns += STEP;
                if worker.moved_ns >= worker.need * MOVE_NS {
                    worker.resident = if leaves { 0 } else { worker.need };
                    worker.moved_ns = 0;
                }
            } else {
                worker.moved_ns = 0;
            }
            if worker.resident == worker.need && !leaves {
                worker.ran_ns += STEP;
                worker.paused_ns = 0;
            } else {
                worker.paused_ns += STEP;
                worker.longest_pause_ns = worker.longest_pause_ns.max(worker.paused_ns);
            }
        }
        self.moves_ns += if moving { STEP } else { 0 };
        assert!(
            self.resident() + self.fixed <= CAPACITY,
            "{} of clients and {} fixed bytes on the GPU at {} ms",
            self.resident(),
            self.fixed,
            self.now / MS
        );
    }

    fn run(&mut self, ms: u64) {
        let end = self.now + ms * MS;
        while self.now < end {
            self.step();
        }
    }
}

fn needs() -> impl Strategy<Value = Vec<u64>> {
    proptest::collection::vec(10_u64..=90, 1..=5)
}

/// The longest time of one switch: all that fits leaves, and as much returns.
const SWITCH_NS: u64 = 2 * CAPACITY * MOVE_NS + 4 * STEP;

proptest! {
    #[test]
    fn moves_take_at_most_a_tenth_of_the_time_and_no_client_starves(needs in needs()) {
        let mut world = World::new(&needs);
        world.run(60_000);
        prop_assert!(world.moves_ns <= world.now / 10 + SWITCH_NS, "moves took {} of {} ms", world.moves_ns / MS, world.now / MS);
        let longest_quantum = policy().run_per_move * SWITCH_NS;
        let bound = needs.len() as u64 * (longest_quantum + SWITCH_NS) + 1_000 * MS;
        for worker in world.workers.values() {
            prop_assert!(worker.longest_pause_ns <= bound, "paused for {} ms: {worker:?}", worker.longest_pause_ns / MS);
        }
    }

    #[test]
    fn fixed_memory_gets_room_within_one_move_and_is_never_taken(
        needs in needs(),
        events in proptest::collection::vec((0_u64..=80, 100_u64..3_000), 1..20),
    ) {
        let mut world = World::new(&needs);
        for (fixed, ms) in events {
            world.fixed_wanted = fixed;
            let begun = world.now;
            while world.now < begun + ms * MS {
                world.step();
                let late = world.now > begun + CAPACITY * MOVE_NS + 4 * STEP;
                prop_assert!(!late || world.fixed == fixed, "{fixed} fixed bytes wait since {} ms", (world.now - begun) / MS);
            }
        }
    }

    #[test]
    fn client_that_does_not_answer_keeps_its_memory_and_others_never_exceed_the_rest(
        needs in needs(),
        deaf in proptest::collection::vec(any::<bool>(), 5),
        fixed in 0_u64..=50,
    ) {
        let mut world = World::new(&needs);
        world.run(1_000);
        for (worker, is_deaf) in world.workers.values_mut().zip(deaf) {
            worker.is_deaf = is_deaf;
        }
        world.run(5_000);
        world.fixed_wanted = fixed;
        world.run(20_000);
    }
}

#[test]
fn two_clients_that_do_not_fit_together_take_turns_of_equal_length() {
    let mut world = World::new(&[70, 70]);
    world.run(60_000);
    let ran: Vec<u64> = world.workers.values().map(|worker| worker.ran_ns / MS).collect();
    assert!(ran.iter().all(|ran| *ran > 25_000), "{ran:?} of 60,000 ms");
    let moved = [0, 1].map(|id| world.pager.moved(ClientId(id)));
    assert!(moved.iter().all(|moved| moved % 70 == 0 && *moved >= 70 * 10), "{moved:?} bytes moved");
}

#[test]
fn clients_that_fit_together_stay() {
    let mut world = World::new(&[40, 50]);
    world.run(10_000);
    // Each came once.
    assert!(
        world.moves_ns <= 50 * MOVE_NS + 40 * MOVE_NS + 4 * STEP,
        "moves took {} ms",
        world.moves_ns / MS
    );
    assert!(world.workers.values().all(|worker| worker.longest_pause_ns < 3_000 * MS));
}

#[test]
fn client_that_returns_after_fixed_memory_has_ended_waits_for_no_quantum() {
    let mut world = World::new(&[70]);
    world.run(3_000);
    world.fixed_wanted = 50;
    world.step();
    assert!(world.pager.makes_room_for_fixed());
    world.run(5_000);
    assert_eq!((world.resident(), world.fixed), (0, 50));
    world.fixed_wanted = 0;
    world.run(200);
    assert_eq!(world.resident(), 70);
}

#[test]
fn client_that_waits_for_more_than_there_can_be_makes_nobody_leave() {
    let mut world = World::new(&[60, 95]);
    world.fixed_wanted = 20;
    world.run(10_000);
    assert_eq!(world.workers[&ClientId(0)].resident, 60);
    assert_eq!(
        world.workers[&ClientId(0)].longest_pause_ns,
        world.workers[&ClientId(0)].longest_pause_ns.min(500 * MS)
    );
}

#[test]
fn client_that_has_more_than_the_capacity_returns_as_soon_as_it_is_alone() {
    let mut pager = Pager::new(policy());
    let mut decide = |ms: u64, fixed, resident| {
        let reported =
            Reported { need: 130, resident, waits: resident == 0, may_leave: true, ..Reported::default() };
        let own_fixed = 10;
        let reported = BTreeMap::from([(ClientId(1), reported.within(CAPACITY, own_fixed))]);
        pager.advance(ms * MS, own_fixed + fixed, &reported);
        pager.room(ClientId(1))
    };
    assert_eq!(decide(0, 0, 130), Some(90));
    assert_eq!(decide(10, 50, 130), Some(0), "another client needs memory that never leaves");
    assert_eq!(decide(20, 50, 0), Some(0));
    assert_eq!(decide(200, 0, 0), Some(90), "all that it can have");
}

#[test]
fn memory_without_a_place_on_the_host_stays() {
    let mut world = World::new(&[70, 70]);
    world.run(300);
    let first = world.workers.get_mut(&ClientId(0)).expect("a client");
    first.is_bound = true;
    world.run(10_000);
    assert_eq!(world.workers[&ClientId(0)].resident, 70);
    world.fixed_wanted = 50;
    world.run(10_000);
    assert_eq!((world.resident(), world.fixed), (70, 0));
    assert!(!world.pager.makes_room_for_fixed(), "an allocation would wait for what does not come");
}

#[test]
fn memory_that_was_there_before_the_manager_stays() {
    let mut pager = Pager::new(policy());
    let on_gpu = |bytes| {
        let reported = Reported { need: bytes, resident: bytes, may_leave: true, ..Reported::default() };
        BTreeMap::from([(ClientId(1), reported)])
    };
    pager.advance(0, 0, &on_gpu(0));
    pager.advance(STEP, 0, &on_gpu(80));
    assert_eq!(pager.room(ClientId(1)), Some(80));
}

/// The rooms of clients that report what they need and what they have on the GPU, and wait for the difference.
fn decide<const CLIENTS: usize>(pager: &mut Pager, ms: u64, memory: [(u64, u64); CLIENTS]) -> [u64; CLIENTS] {
    let reported = memory.iter().zip(1..).map(|((need, resident), id)| {
        let (need, resident, waits) = (*need, *resident, resident < need);
        (ClientId(id), Reported { need, resident, waits, may_leave: true, ..Reported::default() })
    });
    pager.advance(ms * MS, 0, &reported.collect());
    std::array::from_fn(|at| pager.room(ClientId(at as u64 + 1)).expect("a client"))
}

#[test]
fn bytes_that_leave_for_one_client_are_not_given_to_another() {
    let mut pager = Pager::new(policy());
    let mut decide = |ms, memory| decide(&mut pager, ms, memory);
    assert_eq!(decide(0, [(60, 60), (0, 0), (25, 25)]), [60, 0, 25]);
    // The second one comes, and the first one leaves for it. Before it is gone the third one asks for 15 more.
    assert_eq!(decide(10, [(60, 60), (70, 0), (25, 25)]), [0, 0, 25]);
    assert_eq!(decide(20, [(60, 60), (70, 0), (40, 25)]), [0, 0, 25]);
    assert_eq!(decide(30, [(60, 0), (70, 0), (40, 25)]), [0, 70, 25]);
    // The quantum of the second client has begun: the two clients that wait make no client leave.
    assert_eq!(decide(40, [(60, 0), (70, 70), (40, 25)]), [0, 70, 25]);
    assert_eq!(decide(400, [(60, 0), (70, 70), (40, 25)]), [0, 70, 25]);
}

#[test]
fn client_that_does_not_leave_in_time_is_no_move_for_which_the_others_wait() {
    let mut pager = Pager::new(policy());
    assert_eq!(decide(&mut pager, 0, [(60, 60), (0, 0)]), [60, 0]);
    for ms in [10, 1_000, 2_000] {
        assert_eq!(decide(&mut pager, ms, [(60, 60), (70, 0)]), [0, 0], "the first one is asked to leave");
    }
    // It keeps its memory. A third one comes that needs less than what is free.
    assert_eq!(decide(&mut pager, 2_010, [(60, 60), (70, 0), (30, 0)]), [60, 0, 30]);
}
