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

/// Waits that the hook finds if they begin while another client wants the GPU, or if the client has a limit.
pub(super) const FOUND: &[Wait] = &[Wait::Host, Wait::StreamThenHost];

/// Waits of which the hook takes some for running kernels.
pub(super) const ANY: &[Wait] = &[Wait::Host, Wait::StreamThenHost, Wait::StreamThenKernel, Wait::Kernel];

/// Waits of which the hook takes most for running kernels.
pub(super) const OF_KERNELS: &[Wait] = &[Wait::StreamThenKernel, Wait::Kernel];

/// Which clients have a limit below the whole GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limits {
    None,
    Some,
    All,
}

/// What one process does in each round.
#[derive(Clone, Copy, Debug)]
struct Item {
    process: usize,
    sleep_ns: u64,
    /// The thread sleeps between the begin of the wait and the launch, and not before both.
    sleeps_later: bool,
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
        Self { spec, processes: 1, burst_ns: 0, rounds: kernels, items: vec![Item::kernel(kernel_ns)] }
    }

    /// A client with two processes. In each round the first one has a kernel, waits for it, and then waits by its empty stream until the second
    /// one has run a kernel. The second one sleeps for at least `sleep_ns` meanwhile, in which time no work of the client can run. A launch behind
    /// the wait begins `later_ns` after the wait.
    pub(super) fn waiting_by_empty_stream(
        (wait, rounds): (Wait, u64),
        (kernel_ns, sleep_ns, later_ns): (u64, u64, u64),
    ) -> Self {
        let item = Item::kernel(kernel_ns);
        // The first process runs two kernels before it waits again.
        let sleep_ns = 2 * kernel_ns + sleep_ns;
        let signals = Item { process: 1, sleep_ns, wait: Some((Wait::Host, 0, 0)), ..item };
        let waits = Item { wait: Some((wait, 1, 0)), sleep_ns: later_ns, sleeps_later: true, ..item };
        let spec = client_spec(0, 100, Class::BestEffort);
        Self { spec, processes: 2, burst_ns: 0, rounds, items: vec![item, signals, waits] }
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
    /// The thread waits for the kernel, and for nothing else.
    fn kernel(kernel_ns: u64) -> Self {
        Self { process: 0, sleep_ns: 0, sleeps_later: false, wait: None, kernel_ns, synchronizes: true }
    }

    fn push_steps(&self, index: usize, round: u64, steps: &mut Vec<Step>) {
        let sleep = (self.sleep_ns > 0).then_some(Step::Sleep(self.sleep_ns));
        steps.extend(sleep.filter(|_| !self.sleeps_later));
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
        steps.extend(sleep.filter(|_| self.sleeps_later));
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
type DrawnItem = (Index, (u64, bool), Option<(Wait, Index, bool)>, u64, bool);

/// Which waits, kernels and limits programs have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) waits: &'static [Wait],
    /// The longest kernel.
    pub(super) kernel_ns: u64,
    pub(super) limits: Limits,
}

impl Shape {
    pub(super) const fn of(waits: &'static [Wait]) -> Self {
        Self { waits, kernel_ns: 2 * S, limits: Limits::Some }
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
        (any::<Index>(), (sleep, any::<bool>()), wait, self.kernels(), any::<bool>())
    }

    fn client(self) -> impl Strategy<Value = ClientProgram> {
        let below = (5_u32..100).boxed();
        let limit = match self.limits {
            Limits::None => Just(100).boxed(),
            Limits::Some => prop_oneof![3 => Just(100), 1 => below].boxed(),
            Limits::All => below,
        };
        let class = prop::sample::select(vec![Class::BestEffort, Class::Normal, Class::High]);
        let burst = prop_oneof![Just(0), MS..200 * MS];
        let items = prop::collection::vec(self.items(), 1..=5);
        (0_u32..=25, limit, class, burst, 1..=4_usize, 1..=5_u64, items).prop_map(
            move |(request, limit, class, burst_ns, processes, rounds, drawn)| {
                let limit = limit.max(request);
                let owners: Vec<usize> = drawn.iter().map(|item| item.0.index(processes)).collect();
                let items = drawn.iter().enumerate().map(|(own, drawn)| {
                    let (_, (sleep_ns, sleeps_later), wait, kernel_ns, synchronizes) = *drawn;
                    let wait = wait.map(|(wait, other, before)| {
                        let other = other.index(owners.len());
                        (wait, other, u64::from(before || other >= own))
                    });
                    let wait = wait.filter(|(_, other, _)| owners[*other] != owners[own]);
                    Item { process: owners[own], sleep_ns, sleeps_later, wait, kernel_ns, synchronizes }
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
