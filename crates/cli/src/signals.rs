//! Signals that ask a program to end.

pub(crate) use sluice_test_bed::Interrupts;
