//! The task queue of one process.
