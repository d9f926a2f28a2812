//! `sluice` as its users run it: under the name of the kubectl plugin, and in a terminal.
#![cfg(feature = "cluster")]

mod plugin;
mod terminal;
mod top;
