//! Gangs that share two GPUs by grants. A rank returns its grant only when its collectives have ended, and a collective ends only when both
//! ranks have launched it: whatever the ranks launch, and whichever rank dies, no gang and no client of one GPU waits for ever.

use proptest::prelude::*;
use sluice_core::gangs::{CYCLE_NS, GangTable, Slots, assign};
use sluice_core::ledger::{
    Action, Class, ClientSpec, Deadline, GrantRequest, Policy, ReturnKind, TokenLedger,
};
use sluice_core::{ClientId, ProcessId, Share};

const MS: u64 = 1_000_000;
const STEP_NS: u64 = 5 * MS;
const STEPS: u64 = 1_200;
/// Two gangs, and a client of each GPU alone.
const REQUESTS: [f64; 3] = [0.3, 0.5, 0.2];
const GANGS: usize = 2;
/// The longest that a gang makes no collective, or a client of one GPU has no grant: less than the return timeout of 2 s, which ended such
/// waits before. 20,000 cases were run with it.
const PATIENCE_NS: u64 = 9 * CYCLE_NS;

/// A process of a client on one GPU.
#[derive(Clone, Copy, Debug, Default)]
struct Rank {
    /// It may launch until then.
    deadline: Option<u64>,
    launched: u64,
    is_dead: bool,
}

fn index(process: ProcessId) -> usize {
    usize::try_from(process.0).unwrap()
}

struct Gpu {
    ledger: TokenLedger,
    ranks: [Rank; REQUESTS.len()],
}

impl Gpu {
    fn new() -> Self {
        let mut ledger = TokenLedger::new(Policy::default());
        for (number, request) in (0..).zip(REQUESTS) {
            let request = Share::from_fraction(request).unwrap();
            let spec = ClientSpec { request, limit: Share::ONE, class: Class::BestEffort };
            ledger.set_client(ClientId(number), spec, 0);
            ledger.add_process(ProcessId(number), ClientId(number), ReturnKind::Returns).unwrap();
        }
        Self { ledger, ranks: [Rank::default(); REQUESTS.len()] }
    }

    fn table(&self, number: usize) -> GangTable {
        let shares = self.ledger.entitled_shares().into_iter();
        let name = |client: ClientId| match client.0 {
            0 | 1 => client.0.to_string(),
            _ => format!("alone-{number}"),
        };
        let shares = shares.filter_map(|(client, share)| Some((name(client), share?))).collect();
        GangTable { shares, by_grants: true, ..GangTable::default() }
    }

    fn request(&mut self, rank: usize, now: u64) {
        if !self.ranks[rank].is_dead {
            self.ledger.request(ProcessId(rank as u64), now, GrantRequest::default()).unwrap();
        }
    }

    fn advance(&mut self, now: u64) {
        for action in self.ledger.advance(now) {
            match action {
                Action::Grant { process, deadline: Deadline::At(deadline), .. }
                | Action::Extend { process, deadline, .. } => {
                    self.ranks[index(process)].deadline = Some(deadline);
                }
                Action::Revoke { process, .. } => {
                    self.ranks[index(process)].deadline = None;
                    self.request(index(process), now);
                }
                _ => {}
            }
        }
    }
}

/// What a rank does in a step in which it may launch.
fn launches() -> impl Strategy<Value = Vec<[u64; 2]>> {
    prop::collection::vec([0_u64..4, 0_u64..4], 37)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn no_gang_and_no_client_waits_for_ever(
        launches in [launches(), launches()],
        death in prop::option::of((0..2_usize, 0..STEPS)),
    ) {
        let mut gpus = [Gpu::new(), Gpu::new()];
        let gangs = assign(&[gpus[0].table(0), gpus[1].table(1)]);
        for gpu in &mut gpus {
            let slot = |client: u64| Some((ClientId(client), *gangs.slots.get(&client.to_string())?));
            let slots: Slots = (0..GANGS as u64).filter_map(slot).collect();
            gpu.ledger.set_slots(slots.in_cycles_of(gangs.cycle_ns));
            (0..REQUESTS.len()).for_each(|rank| gpu.request(rank, 0));
        }
        let mut last_progress = [[0; REQUESTS.len()]; 2];
        for step in 0..STEPS {
            let now = step * STEP_NS;
            gpus.iter_mut().for_each(|gpu| gpu.advance(now));
            if let Some((gpu, at)) = death
                && at == step
            {
                // The first gang loses a rank: its peer spins for ever.
                gpus[gpu].ranks[0] = Rank { is_dead: true, ..gpus[gpu].ranks[0] };
                gpus[gpu].ledger.process_gone(ProcessId(0), now);
            }
            for gang in 0..GANGS {
                let ended = gpus[0].ranks[gang].launched.min(gpus[1].ranks[gang].launched);
                for (number, gpu) in gpus.iter_mut().enumerate() {
                    let rank = &mut gpu.ranks[gang];
                    if !rank.is_dead && rank.deadline.is_some_and(|deadline| now < deadline) {
                        let chosen = launches[gang][usize::try_from(step % 37).unwrap()][number];
                        // A rank that is not ahead of its peer waits for nothing and goes on.
                        rank.launched += chosen.max(u64::from(rank.launched == ended));
                    }
                }
                let ends = gpus[0].ranks[gang].launched.min(gpus[1].ranks[gang].launched);
                if ends > ended {
                    (0..2).for_each(|gpu| last_progress[gpu][gang] = now);
                }
                for gpu in &mut gpus {
                    let rank = gpu.ranks[gang];
                    let is_over = rank.deadline.is_some_and(|deadline| now >= deadline);
                    if is_over && rank.launched == ends && !rank.is_dead {
                        gpu.ranks[gang].deadline = None;
                        gpu.ledger.returned(ProcessId(gang as u64), now, STEP_NS, 0).unwrap();
                        gpu.request(gang, now);
                    }
                }
            }
            for (number, gpu) in gpus.iter_mut().enumerate() {
                let Some(deadline) = gpu.ranks[GANGS].deadline else { continue };
                last_progress[number][GANGS] = now;
                if now >= deadline {
                    gpu.ranks[GANGS].deadline = None;
                    gpu.ledger.returned(ProcessId(GANGS as u64), now, STEP_NS, 0).unwrap();
                    gpu.request(GANGS, now);
                }
            }
            for (client, name) in ["first gang", "second gang", "client of one GPU"].iter().enumerate() {
                let is_alive = gpus.iter().all(|gpu| !gpu.ranks[client].is_dead);
                if !is_alive {
                    continue;
                }
                for (number, progress) in last_progress.iter().enumerate() {
                    let waited = now - progress[client];
                    prop_assert!(waited <= PATIENCE_NS, "{name}, GPU {number}: {} ms at {} ms", waited / MS, now / MS);
                }
            }
        }
    }
}
