//! The attempts.

use super::outcome::Verdict::{self, Blocked, Detected};

/// Memory limit of the pod in which the attempts run.
pub(super) const MEMORY_LIMIT: u64 = 2 << 30;

/// How the program of an attempt begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// Under the hook.
    Hooked,
    /// Under the hook, with one more variable.
    With(&'static str, &'static str),
    /// Without the hook.
    Unhooked,
    /// Without the hook, in a pod that has the same program under the hook already.
    Joining,
}

/// The tenant beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Neighbour {
    /// Best effort, always busy, with a request of 0.7.
    Busy,
    /// Latency-critical, 0.1 ms of work every 5 ms.
    Critical,
}

/// One way to get around Sluice.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attempt {
    pub(super) name: &'static str,
    /// `tests/escapes/programs/NAME.c`
    pub(super) program: &'static str,
    pub(super) arguments: &'static [&'static str],
    pub(super) start: Start,
    pub(super) neighbour: Neighbour,
    pub(super) expect: Verdict,
    /// Its pod has a limit as high as its request.
    pub(super) is_limited: bool,
    /// The manager first has to find the process by its search.
    pub(super) is_searched: bool,
    /// It takes memory and no GPU time.
    pub(super) is_of_memory: bool,
    /// It applies to a real GPU too. The others need the simulated driver's ioctls or its ledger, or more memory than may be used.
    pub(super) on_real: bool,
}

impl Attempt {
    const fn new(name: &'static str, program: &'static str, expect: Verdict) -> Self {
        let (arguments, start, neighbour): (&[&str], _, _) = (&[], Start::Hooked, Neighbour::Busy);
        Self {
            name,
            program,
            arguments,
            start,
            neighbour,
            expect,
            is_limited: false,
            is_searched: false,
            is_of_memory: false,
            on_real: true,
        }
    }

    const fn with(self, arguments: &'static [&'static str]) -> Self {
        Self { arguments, ..self }
    }

    const fn started(self, start: Start) -> Self {
        Self { start, ..self }
    }

    const fn limited(self) -> Self {
        Self { is_limited: true, ..self }
    }

    const fn searched(self) -> Self {
        Self { is_searched: true, ..self }
    }

    /// On the simulated GPU only: no more memory is taken on a real one than its owner allows.
    const fn of_memory(self) -> Self {
        Self { is_of_memory: true, on_real: false, ..self }
    }

    const fn simulated_only(self) -> Self {
        Self { on_real: false, ..self }
    }

    const fn beside(self, neighbour: Neighbour) -> Self {
        Self { neighbour, ..self }
    }
}

/// All attempts, in the order of docs/security.md.
pub(super) const ALL: &[Attempt] = &[
    Attempt::new("no hook (static link, musl)", "busy_tenant", Blocked).started(Start::Unhooked).searched(),
    Attempt::new("clean environment", "starts_itself", Blocked)
        .with(&["clean"])
        .started(Start::Unhooked)
        .searched(),
    Attempt::new("exec after attaching", "starts_itself", Blocked).with(&["exec"]).searched(),
    Attempt::new("SLUICE_DISABLE=1", "busy_tenant", Blocked).started(Start::With("SLUICE_DISABLE", "1")),
    Attempt::new("another client's name", "busy_tenant", Blocked)
        .started(Start::With("SLUICE_CLIENT", "ml/pod-2")),
    Attempt::new("driver's own functions by ELF walk", "elf_walk", Blocked).searched(),
    Attempt::new("driver's own functions after attaching", "elf_walk_attached", Blocked),
    Attempt::new("second copy of libcuda", "second_copy", Blocked).with(&["copy-of-libcuda.so"]),
    Attempt::new("dlmopen after attaching", "dlmopen", Blocked).searched(),
    Attempt::new("plug-in opened with RTLD_DEEPBIND", "deepbind", Blocked).searched(),
    Attempt::new("kubectl exec", "busy_tenant", Blocked).started(Start::Joining).searched(),
    Attempt::new("fork after initialisation", "fork_after_init", Blocked).searched(),
    Attempt::new("forged attach", "forged_attach", Blocked).started(Start::Unhooked).searched(),
    Attempt::new("groups announced without channels", "forged_announcement", Blocked)
        .with(&["empty"])
        .started(Start::Unhooked)
        .searched()
        .simulated_only(),
    Attempt::new("announced channels that do not exist", "forged_announcement", Blocked)
        .with(&["invented"])
        .started(Start::Unhooked)
        .searched()
        .simulated_only(),
    Attempt::new("more groups announced than are kept", "forged_announcement", Blocked)
        .with(&["many"])
        .started(Start::Unhooked)
        .searched()
        .simulated_only(),
    Attempt::new("descriptors closed", "descriptors_closed", Blocked).searched(),
    Attempt::new("page mapped over the grant page", "page_over", Blocked),
    Attempt::new("hook's threads stopped", "tracker_stuck", Blocked),
    Attempt::new("process stops itself with the GPU", "stopped_holder", Blocked),
    Attempt::new("persistent kernel", "persistent_kernel", Blocked),
    Attempt::new("device-side graph", "device_graph", Blocked).simulated_only(),
    Attempt::new("open capture", "open_capture", Blocked),
    Attempt::new("own ioctl enables channels", "own_ioctls", Blocked)
        .with(&["enable"])
        .limited()
        .simulated_only(),
    Attempt::new("own ioctl enables channels, no limit", "own_ioctls", Detected)
        .with(&["enable"])
        .simulated_only(),
    Attempt::new("own ioctl sets a time slice", "own_ioctls", Blocked)
        .with(&["slice"])
        .limited()
        .beside(Neighbour::Critical)
        .simulated_only(),
    Attempt::new("memory from pools", "memory", Blocked).with(&["pool", "4294967296"]).of_memory(),
    Attempt::new("managed memory", "memory", Blocked).with(&["managed", "4294967296"]).of_memory(),
    Attempt::new("IPC import", "ipc_import", Blocked).of_memory(),
    Attempt::new("modules' global variables", "module_globals", Detected).with(&["3221225472"]).of_memory(),
    Attempt::new("memory without the hook", "memory", Detected)
        .with(&["pool", "4294967296"])
        .started(Start::Unhooked)
        .of_memory(),
    Attempt::new("memory of a plug-in opened with RTLD_DEEPBIND", "deepbind", Detected)
        .with(&["4294967296"])
        .of_memory(),
    Attempt::new("forged memory frames", "forged_memory", Detected).with(&["1073741824"]).of_memory(),
];
