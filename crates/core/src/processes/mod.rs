//! All processes of one GPU: whose channel groups are under control, and what follows from what they were found to do.
//!
//! [`Processes`] is one table and one state machine: [`Processes::apply`] takes an [`Event`] and returns the [`Effect`]s that the caller
//! carries out. The table owns the [`ChannelGroupScheduler`], because each decision here changes which groups it schedules.
//!
//! * A process whose hook [announces](State::Announces) its groups has them under control as it announces them: within the limits of its
//!   client, and after the proof that they are its own, where processes can be inspected.
//! * A process that runs [without the hook](State::Unhooked) has them under control as a search finds them.
//! * A process whose groups were found to differ from its announcement is scheduled [from outside](State::Corrected) until its announcement
//!   is complete again.
//! * Beside its state, a process may be stopped for a violation, and its groups may be kept although its connection has closed.
//!
//! What is remembered of a process of the kernel outlasts its connections.

mod admission;
mod announcement;
mod apply;
mod comparison;
mod event;
mod history;
mod inspected;
mod note;
mod obstacle;
mod record;
mod searches;
mod stop;
mod table;
#[cfg(test)]
mod tests;
mod uncertainty;
mod violation;

pub use announcement::{Announcement, ControlDescriptorId, Origin, covers, handles_of, lock_handles};
pub use event::{ClientFacts, Effect, Event, Inspected, OwnershipProof, Violation};
pub use history::GrantPageMapping;
pub use note::Note;
pub use obstacle::{Obstacle, ObstacleKind};
pub use record::{Protocol, Record, State};
pub use table::{ControlledGroup, ProcessPolicy, Processes};
pub use violation::{Checks, Consequence, GroupFinding, ViolationKind, ViolationPolicy};

#[cfg(doc)]
use crate::channel_groups::ChannelGroupScheduler;
