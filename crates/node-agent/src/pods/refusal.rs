//! Why a pod gets no GPU.

use sluice_placement::annotations::{Mistake, Mistakes, keys};
use sluice_placement::format_share;

use crate::prepared_claims::DRIVER;

/// Why a pod gets no GPU, worded for its owner.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Its annotations cannot be read.
    #[error("its annotations are not valid: {0}")]
    Annotations(Mistakes),
    /// Its assignment cannot be read.
    #[error("its assignment is not valid: {0}")]
    Assignment(Mistake),
    /// It has an assignment, but requests nothing.
    #[error("it has {assigned}, but asks for no GPU: there is no {quota} and no {memory}", assigned = keys::ASSIGNED_GPU, quota = keys::QUOTA, memory = keys::MEMORY)]
    NoRequest,
    /// The scheduler did not assign a GPU to it.
    #[error("no GPU was assigned to it ({assigned} is missing): it has to be scheduled by {scheduler}", assigned = keys::ASSIGNED_GPU, scheduler = keys::SCHEDULER_NAME)]
    NotAssigned,
    /// Its assignment names another number of GPUs than it requests.
    #[error("it asks for {asked} GPU(s), but {assigned} names {given}", assigned = keys::ASSIGNED_GPU)]
    WrongCount {
        /// Number of GPUs that it requests.
        asked: usize,
        /// Number of GPUs that its assignment names.
        given: usize,
    },
    /// None of its GPUs is one of this node's.
    #[error("{gpu}, which was assigned to it, is not a GPU of this node")]
    ForeignGpu {
        /// The UUID.
        gpu: String,
    },
    /// It requests more GPU time than the GPU has left.
    #[error("{gpu} has {free} free, {asked} asked", free = format_share((*.free_ppm).into()), asked = format_share((*.asked_ppm).into()))]
    NoShareLeft {
        /// The UUID.
        gpu: String,
        /// Parts per million of the GPU that no pod was promised.
        free_ppm: u32,
        /// Parts per million of the GPU that this pod requests.
        asked_ppm: u32,
    },
    /// It requests more memory than the GPU has left.
    #[error("{gpu} has {free} bytes of memory free, {asked} asked")]
    NoMemoryLeft {
        /// The UUID.
        gpu: String,
        /// Bytes that no pod was promised.
        free: u64,
        /// Bytes that this pod requests.
        asked: u64,
    },
    /// Its memory may leave the GPU, and the host has no place for it.
    #[error("{gpu} has {free} bytes of the host's memory free for pods with {key}, {asked} asked", key = keys::MEMORY_OVERCOMMIT)]
    NoHostMemoryLeft {
        /// The UUID.
        gpu: String,
        /// Bytes of the host that no pod was promised.
        free: u64,
        /// Bytes of the host that this pod needs.
        asked: u64,
    },
    /// It has an assignment of the scheduler beside prepared claims.
    #[error("it has {assigned} beside a ResourceClaim of {driver}, expected one of them", assigned = keys::ASSIGNED_GPU, driver = DRIVER)]
    AssignedAndClaimed,
    /// Its claims have shares of one GPU that cannot be added up.
    #[error(
        "its claims have shares of {gpu} with different {what}, expected the same: they are one client there"
    )]
    SharesDiffer {
        /// The UUID.
        gpu: String,
        /// What differs.
        what: &'static str,
    },
}
