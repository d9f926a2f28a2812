//! Commands that own all they need, so that they can be submitted long after the call has returned.

use std::sync::Arc;

use crate::ids::Code;

/// What a kernel launch says.
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

/// What the driver would refuse at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchLimits {
    /// Threads of a block.
    pub threads: u32,
    /// Dynamic shared memory of a block.
    pub shared_bytes: u32,
}

impl Launch {
    /// Checks what can be checked without the driver, so that the program hears of it from the call itself.
    pub fn check(&self, limits: LaunchLimits) -> Result<(), Code> {
        let threads = self.block.iter().try_fold(1u32, |all, &side| all.checked_mul(side));
        if self.function == 0 {
            Err(Code::INVALID_HANDLE)
        } else if self.grid.contains(&0)
            || threads.is_none_or(|threads| threads == 0 || threads > limits.threads)
            || self.shared_bytes > limits.shared_bytes
        {
            Err(Code::INVALID_VALUE)
        } else {
            Ok(())
        }
    }
}

/// Pageable bytes that a deferred copy takes along; more has to be copied by the call itself.
pub const STAGED_MAXIMUM: usize = 64 << 10;

/// A call that only the driver's adapter knows, with all that it needs.
#[derive(Clone)]
pub struct Call {
    work: Work,
    bytes: usize,
    make: Arc<dyn Fn(u64) -> Result<(), Code> + Send + Sync>,
}

impl Call {
    /// A call of this kind of work, which keeps so many bytes; `make` makes it on the stream whose handle it is given.
    pub fn new(
        work: Work,
        bytes: usize,
        make: impl Fn(u64) -> Result<(), Code> + Send + Sync + 'static,
    ) -> Self {
        Self { work, bytes, make: Arc::new(make) }
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

/// Equal are only copies of one call.
impl PartialEq for Call {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.make, &other.make)
    }
}

impl Eq for Call {}

/// A command that waits in a host queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Whatever the others do not say.
    Call(Call),
    /// A kernel.
    Launch(Launch),
    /// Launches an executable graph.
    Graph(u64),
}

/// What a call turns into when it cannot be made now.
#[derive(Debug)]
pub enum Deferral {
    /// A command that is made in its turn; the call returns at once.
    Queue(Command),
    /// Nothing: the caller waits for its turn and makes the call itself.
    ByCaller,
}

impl Command {
    /// The bytes it owns.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Launch(launch) => launch.parameters.len() + launch.attributes.len(),
            Self::Call(call) => call.bytes,
            Self::Graph(_) => 0,
        }
    }

    /// What its duration is learned under.
    pub fn work(&self) -> Work {
        match self {
            Self::Launch(launch) => Work::Kernel(launch.function),
            Self::Call(call) => call.work,
            Self::Graph(graph) => Work::Graph(*graph),
        }
    }
}

/// Kinds of work that are thought to last equally long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Work {
    /// Launches of one function.
    Kernel(u64),
    /// Launches of one graph.
    Graph(u64),
    /// Bytes moved: less than two to this power.
    Bytes(u32),
    /// What takes next to no time.
    Small,
}

impl Work {
    /// The kind of moving so many bytes.
    pub fn moving(bytes: u64) -> Self {
        Self::Bytes(u64::BITS - bytes.leading_zeros())
    }
}
