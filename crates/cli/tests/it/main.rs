//! `sluice` as its users run it: under the name of the kubectl plugin, and in a terminal.
#![cfg(feature = "cluster")]
#![expect(missing_docs, reason = "tests")]

mod plugin;
mod terminal;
mod top;
