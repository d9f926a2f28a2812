//! Kernels of the fake GPU.

use sluice_preempt::command::{Command, Launch};

/// The effect of a job on memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// `to = to * 3 + add`: twice is not once.
    Affine {
        to: u64,
        add: u64,
    },
    /// `to = mix(to, from)`.
    Mix {
        to: u64,
        from: u64,
    },
    /// `to = value`.
    Store {
        to: u64,
        value: u64,
    },
    /// `to = from`.
    Copy {
        to: u64,
        from: u64,
    },
    /// A host function is called with this value.
    Host(u64),
    /// The kernel reads an illegal address.
    Fault,
    Nothing,
}

/// One job of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) effect: Effect,
    pub(crate) ns: u64,
    pub(crate) tag: u64,
}

/// A function that the driver refuses to launch.
pub(crate) const REFUSED: u64 = 999;

/// A launch of a kernel with this effect.
pub(crate) fn job(effect: Effect, ns: u64, tag: u64) -> Command {
    let words = match effect {
        Effect::Affine { to, add } => [1, to, add, ns, tag],
        Effect::Mix { to, from } => [2, to, from, ns, tag],
        Effect::Store { to, value } => [3, to, value, ns, tag],
        Effect::Copy { to, from } => [4, to, from, ns, tag],
        Effect::Fault => [5, 0, 0, ns, tag],
        Effect::Nothing => [6, 0, 0, ns, tag],
        Effect::Host(_) => panic!("a host function is a call (`TestRig::call`)"),
    };
    let parameters = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    Command::Launch(Launch {
        function: 1000 + ns,
        grid: [1; 3],
        block: [1; 3],
        parameters,
        ..Launch::default()
    })
}

/// The jobs of a command.
pub(crate) fn jobs(command: &Command, graph: impl Fn(u64) -> Vec<Job>) -> Vec<Job> {
    let word = |bytes: &[u8], i: usize| u64::from_le_bytes(bytes[8 * i..8 * i + 8].try_into().unwrap());
    let one = |effect, ns, tag| vec![Job { effect, ns, tag }];
    match command {
        Command::Launch(launch) => {
            let at = |i| word(&launch.parameters, i);
            let effect = match at(0) {
                1 => Effect::Affine { to: at(1), add: at(2) },
                2 => Effect::Mix { to: at(1), from: at(2) },
                3 => Effect::Store { to: at(1), value: at(2) },
                4 => Effect::Copy { to: at(1), from: at(2) },
                5 => Effect::Fault,
                _ => Effect::Nothing,
            };
            one(effect, at(3), at(4))
        }
        Command::Graph(exec) => graph(*exec),
        Command::Call(_) => Vec::new(),
    }
}
