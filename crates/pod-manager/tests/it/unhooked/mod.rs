//! Scheduling of unhooked processes, on a node of pods that a fake discovery finds.

mod announced;
mod attached;
mod consequences;
mod forged;
mod harness;
mod locked;
mod scans;
mod scheduled;
mod shared_files;
mod stopped;
