//! Tests of the structure of the workspace's crates.
#![forbid(unsafe_code)]

mod attach_files;
mod circles;
mod graph;
mod imports;
mod layers;
mod mutants;
mod sources;
