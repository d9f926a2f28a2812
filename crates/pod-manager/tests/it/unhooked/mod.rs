//! Processes that run without the hook, on a node of pods that a fake search finds.

mod announced;
mod locked;
mod node;
mod scheduled;
mod searches;
