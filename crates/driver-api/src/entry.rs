//! The table as a sorted array, and the lookup of `cuGetProcAddress` in it.

/// What the hook does with a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// Launches kernels: waits at the launch gate.
    Launch,
    /// As `Launch`, for a kernel that is cooperative, always or by an attribute of its configuration.
    Cooperative,
    /// The calling thread waits for the GPU.
    Sync,
    /// Changes how much GPU memory a context has. The driver may wait until the context is idle.
    ContextLimit,
    /// Copies asynchronously.
    Copy,
    /// Allocates GPU memory of a size in the arguments.
    Alloc,
    /// Allocates GPU memory in a stream, from a pool.
    AllocAsync,
    /// Frees such memory.
    Free,
    /// Makes, finds or destroys a pool of memory, or adds a graph node that may allocate memory.
    Pool,
    /// Has the driver give back memory that a pool, or a device for graphs, does not use.
    Trim,
    /// Adds or ends references to physical memory.
    Physical,
    /// Reads what the driver knows of an address, or keeps addresses in an object of the driver.
    Resident,
    /// Initialises the driver.
    Init,
    /// Returns the amount of GPU memory.
    Query,
    /// Returns addresses of driver functions.
    Lookup,
    /// Begins or ends a stream capture.
    Capture,
    /// Makes or destroys a stream.
    Stream,
    /// Makes or destroys a context, or changes the current one.
    Context,
    /// Makes, records, queries, waits for or destroys an event.
    Event,
    /// A stream command of which all arguments are values, so that the same call can be made later.
    Order,
    /// A stream command that can be made only when the commands before it were made.
    Turn,
    /// As [`Self::Order`], for a command that passes the launch gate.
    GatedOrder,
    /// As [`Self::Turn`], for a command that passes the launch gate.
    GatedTurn,
    /// As [`Self::Copy`], for a copy that passes the launch gate.
    GatedCopy,
    /// As [`Self::Sync`], for a copy that passes the launch gate.
    GatedSync,
    /// Queries a stream, or changes how it executes later commands.
    Ask,
    /// Changes or destroys an executable graph.
    Graph,
    /// The hook passes the call to the driver.
    Forward,
}

/// The default stream that the null handle means in a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Variant {
    /// The legacy default stream, one per context; also for functions without a stream.
    Default,
    /// The default stream of the calling thread: symbols that end in `_ptsz` or `_ptds`.
    Ptsz,
}

/// One exported symbol of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The symbol in `libcuda.so.1`, such as `cuMemAlloc_v2`.
    pub symbol: &'static str,
    /// The name that `cuGetProcAddress` takes, such as `cuMemAlloc`.
    pub name: &'static str,
    /// The first CUDA version (1000 x major + 10 x minor) in which `name` means this symbol.
    pub since: u32,
    /// Its default stream.
    pub variant: Variant,
    /// What the hook does with it.
    pub policy: Policy,
}

macro_rules! entries {
    (@policy launch) => { Policy::Launch };
    (@policy cooperative) => { Policy::Cooperative };
    (@policy sync) => { Policy::Sync };
    (@policy context_limit) => { Policy::ContextLimit };
    (@policy copy) => { Policy::Copy };
    (@policy alloc) => { Policy::Alloc };
    (@policy alloc_async) => { Policy::AllocAsync };
    (@policy free) => { Policy::Free };
    (@policy pool) => { Policy::Pool };
    (@policy trim) => { Policy::Trim };
    (@policy physical) => { Policy::Physical };
    (@policy resident) => { Policy::Resident };
    (@policy init) => { Policy::Init };
    (@policy query) => { Policy::Query };
    (@policy lookup) => { Policy::Lookup };
    (@policy capture) => { Policy::Capture };
    (@policy stream) => { Policy::Stream };
    (@policy context) => { Policy::Context };
    (@policy event) => { Policy::Event };
    (@policy order) => { Policy::Order };
    (@policy turn) => { Policy::Turn };
    (@policy gated_order) => { Policy::GatedOrder };
    (@policy gated_turn) => { Policy::GatedTurn };
    (@policy gated_copy) => { Policy::GatedCopy };
    (@policy gated_sync) => { Policy::GatedSync };
    (@policy ask) => { Policy::Ask };
    (@policy graph) => { Policy::Graph };
    (@policy forward) => { Policy::Forward };
    (@variant default) => { Variant::Default };
    (@variant ptsz) => { Variant::Ptsz };
    ($($policy:ident $symbol:ident ($name:literal, $since:literal, $variant:ident) fn($($arguments:tt)*);)*) => {
        /// All rows, in the table's order: by name, variant and version.
        pub static ENTRIES: &[Entry] = &[$(Entry {
            symbol: stringify!($symbol),
            name: $name,
            since: $since,
            variant: entries!(@variant $variant),
            policy: entries!(@policy $policy),
        },)*];
    };
}
driver_api!(entries);

/// The flag of `cuGetProcAddress` that requests the per-thread variants (`CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`).
const PER_THREAD: u64 = 2;

/// The symbol that the driver returns for `cuGetProcAddress(name, version, flags)`: the newest ABI that is not newer than `version`.
/// With flag 2 it is chosen among the per-thread variants, if the name has any.
///
/// `None` for unknown names, and for versions before the function (or, with flag 2, its per-thread variant) existed. Does not
/// allocate.
pub fn lookup(name: &str, version: i32, flags: u64) -> Option<&'static Entry> {
    lookup_index(name, version, flags).map(|index| &ENTRIES[index])
}

/// As [`lookup`], but returns the index in [`ENTRIES`], which is also the index of the row in the table.
pub fn lookup_index(name: &str, version: i32, flags: u64) -> Option<usize> {
    let version = u32::try_from(version).ok()?;
    let (first, rows) = rows_of(name);
    let per_thread = flags & PER_THREAD != 0 && rows.iter().any(|entry| entry.variant == Variant::Ptsz);
    let variant = if per_thread { Variant::Ptsz } else { Variant::Default };
    rows.iter()
        .enumerate()
        .filter(|(_, entry)| entry.since <= version && entry.variant == variant)
        .max_by_key(|(_, entry)| entry.since)
        .map(|(index, _)| first + index)
}

/// The row of an exported symbol, by the name that `dlsym` takes.
pub fn find_symbol(symbol: &str) -> Option<&'static Entry> {
    position(symbol).map(|index| &ENTRIES[index])
}

/// The index of a symbol. A symbol is a base name, optionally followed by `_v` and a number, and by `_ptsz` or `_ptds`.
fn position(symbol: &str) -> Option<usize> {
    let plain = symbol.strip_suffix("_ptsz").or_else(|| symbol.strip_suffix("_ptds")).unwrap_or(symbol);
    let base = match plain.rsplit_once("_v") {
        Some((base, number)) if !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit()) => {
            base
        }
        _ => plain,
    };
    let (first, rows) = rows_of(base);
    rows.iter().position(|entry| entry.symbol == symbol).map(|index| first + index)
}

/// The rows of one base name, and the index of the first.
fn rows_of(name: &str) -> (usize, &'static [Entry]) {
    let first = ENTRIES.partition_point(|entry| entry.name < name);
    let count = ENTRIES[first..].partition_point(|entry| entry.name == name);
    (first, &ENTRIES[first..first + count])
}
