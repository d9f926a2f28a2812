//! Random programs of clients with several processes that wait for each other.
//!
//! A program is a list of items, repeated in rounds. An item is one kernel of one process, with what the process does before and after it.
//! An item may wait for the kernel of another process's item: of an earlier one of the list in the same round, or of any one in the round
//! before. So all waits follow the order of rounds and items. The kernel that comes first in this order among those that have not run is
//! never waited for in vain: without Sluice no program deadlocks.

use super::{MS, S, US};
use proptest::prelude::*;
use proptest::sample::Index;
use sluice_core::Share;
use sluice_core::ledger::{Class, ClientSpec};

/// The kernel of an item has run this many times.
#[derive(Clone, Copy, Debug)]
pub(super) struct Signal {
    pub(super) item: usize,
    pub(super) times: u64,
}

/// How a process waits for a kernel of another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// The thread waits, as in a read from a pipe.
    Host,
    /// The stream waits for a value in memory, and the thread waits for the stream.
    StreamThenHost,
    /// The stream waits for a value in memory, and the kernel of the item is behind this command.
    StreamThenKernel,
    /// The kernel of the item polls a value in memory, as the kernels of a collective do.
    Kernel,
}

/// Waits of a client's programs that the hook can find.
pub(super) const FOUND: &[Wait] = &[Wait::Host, Wait::StreamThenHost];
/// Waits of which the hook takes some for running kernels.
pub(super) const ANY: &[Wait] = &[Wait::Host, Wait::StreamThenHost, Wait::StreamThenKernel, Wait::Kernel];

/// Waits of which the hook takes each for a running kernel.
pub(super) const NOT_FOUND: &[Wait] = &[Wait::StreamThenKernel, Wait::Kernel];

/// What one process does in each round.
#[derive(Clone, Copy, Debug)]
struct Item {
    process: usize,
    sleep_ns: u64,
    /// The item, how many rounds back, and how it is waited for.
    wait: Option<(Wait, usize, u64)>,
    kernel_ns: u64,
    /// Afterwards the thread waits for the stream.
    synchronizes: bool,
}

/// One step of the thread of a process.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Sleep(u64),
    /// The thread waits.
    Await(Signal),
    /// Submits a command that waits for a value in memory.
    StreamWait(Signal),
    /// Submits a kernel that runs for this long, once there is the signal that it polls for.
    Launch(u64, Option<Signal>),
    /// Submits a command that writes a value to memory: the kernel of the item has run.
    StreamSignal(usize),
    Synchronize,
}

/// A client with its program.
#[derive(Clone, Debug)]
pub(super) struct ClientProgram {
    pub(super) spec: ClientSpec,
    pub(super) processes: usize,
    /// The longest burst that its processes report.
    pub(super) burst_ns: u64,
    rounds: u64,
    items: Vec<Item>,
}

impl ClientProgram {
    /// A client with one process that always has a kernel.
    pub(super) fn saturating(request_percent: u32, kernel_ns: u64, kernels: u64) -> Self {
        let spec = client_spec(request_percent, 100, Class::BestEffort);
        let item = Item { process: 0, sleep_ns: 0, wait: None, kernel_ns, synchronizes: true };
        Self { spec, processes: 1, burst_ns: 0, rounds: kernels, items: vec![item] }
    }

    pub(super) fn items(&self) -> usize {
        self.items.len()
    }

    /// The steps of one process.
    pub(super) fn steps(&self, process: usize) -> Vec<Step> {
        let mut steps = Vec::new();
        for round in 0..self.rounds {
            let own = self.items.iter().enumerate().filter(|(_, item)| item.process == process);
            for (index, item) in own {
                item.push_steps(index, round, &mut steps);
            }
        }
        steps
    }

    /// For how long its program keeps others waiting at most, if each kernel holds the GPU for `delay_ns` longer than it runs. The client
    /// has at least a hundredth of the GPU, and repays what it owes at this rate.
    pub(super) fn longest_ns(&self, delay_ns: u64) -> u64 {
        self.lasts_ns(delay_ns, 100)
    }

    /// The same for a client alone, of which nothing but its limit holds back the program.
    pub(super) fn longest_alone_ns(&self, delay_ns: u64) -> u64 {
        self.lasts_ns(delay_ns, u64::from(1_000_000_u32.div_ceil(self.spec.limit.ppm())))
    }

    /// Each nanosecond for which a kernel holds the GPU takes `slowdown`.
    fn lasts_ns(&self, delay_ns: u64, slowdown: u64) -> u64 {
        let lasts = |item: &Item| slowdown * (item.kernel_ns + delay_ns) + item.sleep_ns;
        self.rounds * self.items.iter().map(lasts).sum::<u64>()
    }
}

impl Item {
    fn push_steps(&self, index: usize, round: u64, steps: &mut Vec<Step>) {
        if self.sleep_ns > 0 {
            steps.push(Step::Sleep(self.sleep_ns));
        }
        let wait = self.wait.map(|(wait, item, back)| (wait, Signal { item, times: (round + 1) - back }));
        let mut polled = None;
        match wait {
            None => {}
            Some((Wait::Host, signal)) => steps.push(Step::Await(signal)),
            Some((Wait::StreamThenHost, signal)) => {
                steps.extend([Step::StreamWait(signal), Step::Synchronize]);
            }
            Some((Wait::StreamThenKernel, signal)) => steps.push(Step::StreamWait(signal)),
            Some((Wait::Kernel, signal)) => polled = Some(signal),
        }
        steps.extend([Step::Launch(self.kernel_ns, polled), Step::StreamSignal(index)]);
        if self.synchronizes {
            steps.push(Step::Synchronize);
        }
    }
}

fn client_spec(request_percent: u32, limit_percent: u32, class: Class) -> ClientSpec {
    let share = |percent: u32| Share::from_ppm(percent * 10_000).unwrap();
    ClientSpec { request: share(request_percent), limit: share(limit_percent), class }
}

/// The parts of an [`Item`] before the numbers of processes and items are known.
type DrawnItem = (Index, u64, Option<(Wait, Index, bool)>, u64, bool);

/// Which waits, kernels and limits programs have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) waits: &'static [Wait],
    /// The longest kernel.
    pub(super) kernel_ns: u64,
    /// Some clients have a limit below the whole GPU.
    pub(super) limits: bool,
}

impl Shape {
    pub(super) const fn of(waits: &'static [Wait]) -> Self {
        Self { waits, kernel_ns: 2 * S, limits: true }
    }

    fn kernels(self) -> impl Strategy<Value = u64> {
        let usual = prop_oneof![
            8 => 50 * US..500 * US,
            8 => 500 * US..10 * MS,
            6 => 10 * MS..200 * MS,
            1 => Just(2 * S)
        ];
        usual.prop_map(move |ns| ns.min(self.kernel_ns))
    }

    fn items(self) -> impl Strategy<Value = DrawnItem> {
        // Shorter and longer than the idle times of the hook, than a grant, and than what counts as a short pause.
        let sleep = prop_oneof![
            6 => Just(0),
            3 => 10 * US..5 * MS,
            2 => 5 * MS..120 * MS,
            1 => 120 * MS..300 * MS
        ];
        let wait =
            prop::option::weighted(0.7, (prop::sample::select(self.waits), any::<Index>(), any::<bool>()));
        (any::<Index>(), sleep, wait, self.kernels(), any::<bool>())
    }

    fn client(self) -> impl Strategy<Value = ClientProgram> {
        let limit = prop_oneof![3 => Just(100_u32), 1 => 5_u32..100];
        let class = prop::sample::select(vec![Class::BestEffort, Class::Normal, Class::High]);
        let burst = prop_oneof![Just(0), MS..200 * MS];
        let items = prop::collection::vec(self.items(), 1..=5);
        (0_u32..=25, limit, class, burst, 1..=4_usize, 1..=5_u64, items).prop_map(
            move |(request, limit, class, burst_ns, processes, rounds, drawn)| {
                let limit = if self.limits { limit.max(request) } else { 100 };
                let owners: Vec<usize> = drawn.iter().map(|item| item.0.index(processes)).collect();
                let items = drawn.iter().enumerate().map(|(own, drawn)| {
                    let (_, sleep_ns, wait, kernel_ns, synchronizes) = *drawn;
                    let wait = wait.map(|(wait, other, before)| {
                        let other = other.index(owners.len());
                        (wait, other, u64::from(before || other >= own))
                    });
                    let wait = wait.filter(|(_, other, _)| owners[*other] != owners[own]);
                    Item { process: owners[own], sleep_ns, wait, kernel_ns, synchronizes }
                });
                let items = items.collect();
                ClientProgram { spec: client_spec(request, limit, class), processes, burst_ns, rounds, items }
            },
        )
    }

    /// Clients with requests of at most the whole GPU.
    pub(super) fn clients(
        self,
        number: std::ops::RangeInclusive<usize>,
    ) -> impl Strategy<Value = Vec<ClientProgram>> {
        prop::collection::vec(self.client(), number)
    }
}
