//! Subcommands that put one library of ours on the command line.

pub(crate) mod load;
pub(crate) mod pod_manager;
pub(crate) mod sim;
