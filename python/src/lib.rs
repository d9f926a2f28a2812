//! `sluice._native`: the task queue of `sluice-tasks` for Python.

use pyo3::prelude::*;

/// The module `sluice._native`.
#[pymodule]
mod _native {}
