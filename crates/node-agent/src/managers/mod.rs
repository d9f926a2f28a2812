//! One `sluice pod-manager` per GPU: started, watched, restarted, told who its clients are, asked what they used.
//!
//! A manager keeps nothing over its own restart: the agent hands it the whole set of clients again, and programs attach
//! again by themselves.

mod backoff;
mod child;
mod control;
mod custody;
mod flags;
mod keeper;
mod status;
mod supervisor;
mod ward;

pub use child::Launch;
pub use control::{ControlError, snapshot};
pub use flags::{Adopt, Controls, Flags, Gates};
pub use keeper::instance_id;
pub use status::{Board, State, Status};
pub use supervisor::{Settings, supervise};

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_proto::control::Client;

pub(crate) use backoff::Backoff;

/// The clients of every GPU by its UUID. A GPU without an entry has none.
pub type ClientSets = BTreeMap<String, Vec<Client>>;

/// The sets as they change; `None` until they are known for the first time.
pub type ClientSetsWatch = tokio::sync::watch::Receiver<Option<Arc<ClientSets>>>;
