//! The clients of the soak.

/// A client: a pod of the node agent, or an entry of the resource file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Client {
    pub(super) name: &'static str,
    pub(super) class: &'static str,
    pub(super) request: f64,
    pub(super) limit: f64,
    pub(super) memory_mib: u64,
    pub(super) processes: usize,
    /// Uses memory pools. The driver may make a pool larger than the limit allows, until the allocation returns
    /// (docs/design/memory.md). So the peak of such a process is not compared with the limit, and its excess may last some seconds.
    pub(super) pools: bool,
    /// Its memory may leave the GPU.
    pub(super) overcommits: bool,
    /// Starts short children.
    pub(super) children: bool,
}

impl Client {
    pub(super) fn memory_bytes(&self) -> u64 {
        self.memory_mib << 20
    }

    /// Whether only one process of it exists at any time. While the manager is away, each process has the whole limit.
    pub(super) fn is_single(&self) -> bool {
        self.processes == 1
    }

    /// Its line of a resource file.
    pub(super) fn line(&self) -> String {
        let Self { name, class, request, limit, memory_mib, .. } = self;
        let more = if self.overcommits { ", overcommit: true" } else { "" };
        format!(
            "  - {{ name: {name}, request: {request}, limit: {limit}, memory: {memory_mib}Mi, class: {class}{more} }}\n"
        )
    }
}

pub(super) const fn client(name: &'static str, class: &'static str, memory_mib: u64) -> Client {
    Client {
        name,
        class,
        request: 0.1,
        limit: 1.0,
        memory_mib,
        processes: 1,
        pools: false,
        overcommits: false,
        children: false,
    }
}

/// Eight processes. The last client has two and starts short children besides.
pub(super) const CLIENTS: [Client; 7] = [
    client("critical", "latency-critical", 768),
    Client { pools: true, ..client("high", "high", 512) },
    client("normal", "normal", 256),
    Client { pools: true, ..client("pools", "best-effort", 1024) },
    client("narrow", "best-effort", 128),
    Client { limit: 0.25, ..client("limited", "best-effort", 512) },
    Client { processes: 2, children: true, ..client("several", "best-effort", 640) },
];

/// Threads of each process.
pub(super) const THREADS: u32 = 8;

/// The resource file of these clients.
pub(super) fn resource_file(clients: &[Client]) -> String {
    format!("clients:\n{}", clients.iter().map(Client::line).collect::<String>())
}
