//! What the hook does in a call besides the engine's part, by subject. The module `exports` chooses the function by policy word and base
//! name.

pub(crate) mod alloc;
pub(crate) mod charge;
pub(crate) mod context;
pub(crate) mod context_limit;
pub(crate) mod copy;
mod deferred_release;
pub(crate) mod launch;
pub(crate) mod lookup;
pub(crate) mod nvml;
pub(crate) mod physical;
pub(crate) mod pool;
pub(crate) mod pool_charges;
pub(crate) mod primary;
pub(crate) mod query;
pub(crate) mod stream;
pub(crate) mod sync;
