//! Commands that own all they need, so that they can be submitted long after the call has returned.

use std::sync::Arc;

use crate::ids::Code;

/// The arguments of a kernel launch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Launch {
    /// The function's handle.
    pub function: u64,
    /// Blocks in each direction.
    pub grid: [u32; 3],
    /// Threads of a block in each direction.
    pub block: [u32; 3],
    /// Dynamic shared memory.
    pub shared_bytes: u32,
    /// The parameters' bytes, laid out as the function takes them.
    pub parameters: Box<[u8]>,
    /// Launch attributes, in the driver's layout; the first `attributes.len()` bytes.
    pub attributes: Box<[u8]>,
    /// Whether all blocks have to be resident together.
    pub cooperative: bool,
}

/// The most threads of a block on any GPU. Beyond it the driver refuses a launch at once.
const MAX_THREADS: u32 = 1024;

impl Launch {
    /// Checks what can be checked without the driver, so that the call itself returns the error.
    pub fn check(&self) -> Result<(), Code> {
        let threads = self.block.iter().try_fold(1u32, |all, &side| all.checked_mul(side));
        if self.function == 0 {
            Err(Code::INVALID_HANDLE)
        } else if self.grid.contains(&0)
            || threads.is_none_or(|threads| threads == 0 || threads > MAX_THREADS)
        {
            Err(Code::INVALID_VALUE)
        } else {
            Ok(())
        }
    }
}

/// Pageable bytes that a deferred copy may own, in bytes. The caller makes larger copies itself, in order.
pub const STAGED_MAXIMUM: usize = 64 << 10;

/// A driver call that only the driver's adapter knows, with all its arguments.
#[derive(Clone)]
pub struct Call {
    work: Work,
    bytes: usize,
    graph: Option<u64>,
    make: Arc<dyn Fn(u64) -> Result<(), Code> + Send + Sync>,
}

impl Call {
    /// A call of the given kind of work that owns `bytes` bytes. `make` calls the driver on the stream whose handle
    /// it receives.
    pub fn new(
        work: Work,
        bytes: usize,
        make: impl Fn(u64) -> Result<(), Code> + Send + Sync + 'static,
    ) -> Self {
        Self { work, bytes, graph: None, make: Arc::new(make) }
    }

    /// The call with the executable graph that it uses, if it uses one.
    pub fn with_graph(self, graph: Option<u64>) -> Self {
        Self { graph, ..self }
    }

    /// Makes the call.
    pub fn make(&self, stream: u64) -> Result<(), Code> {
        (self.make)(stream)
    }
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call").field("work", &self.work).field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// A command that waits in a host queue.
#[derive(Debug, Clone)]
pub enum Command {
    /// Any call that the adapter keeps as a closure.
    Call(Call),
    /// A kernel.
    Launch(Launch),
    /// Launches an executable graph.
    Graph(u64),
}

/// What a call becomes when it cannot be made now.
#[derive(Debug)]
pub enum Deferral {
    /// A command that the worker submits in its place; the call returns at once.
    Queue(Command),
    /// No command: the caller waits for its place in the order and makes the call itself.
    ByCaller,
}

impl Command {
    /// Bytes that the command owns.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Launch(launch) => launch.parameters.len() + launch.attributes.len(),
            Self::Call(call) => call.bytes,
            Self::Graph(_) => 0,
        }
    }

    /// The executable graph that the command uses. The driver destroys it after the command at the earliest.
    pub(crate) fn graph(&self) -> Option<u64> {
        match self {
            Self::Launch(_) => None,
            Self::Call(call) => call.graph,
            Self::Graph(graph) => Some(*graph),
        }
    }

    /// The kind of work under which its duration is learned.
    pub fn work(&self) -> Work {
        match self {
            Self::Launch(launch) => Work::Kernel(launch.function),
            Self::Call(call) => call.work,
            Self::Graph(graph) => Work::Graph(*graph),
        }
    }
}

/// Kinds of work; pieces of one kind are assumed to last equally long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Work {
    /// Launches of one function.
    Kernel(u64),
    /// Launches of one graph.
    Graph(u64),
    /// A transfer of less than two to this power bytes.
    Bytes(u32),
    /// Work whose duration is negligible.
    Small,
}

impl Work {
    /// The kind of a transfer of `bytes` bytes.
    pub fn transfer(bytes: u64) -> Self {
        Self::Bytes(u64::BITS - bytes.leading_zeros())
    }
}
