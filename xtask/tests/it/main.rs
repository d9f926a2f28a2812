//! Tests of the structure of the workspace's crates.
#![forbid(unsafe_code)]

mod circles;
mod graph;
mod imports;
mod layers;
mod mutants;
mod sources;
