//! Prints the table as text, one `symbol name version flags` per line: what tests/gpu/check_table.c compares a driver with.
//! Kept current by `cargo run -p sluice-driver-api --example print_table > tests/gpu/driver-table.txt`.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use sluice_driver_api::{ENTRIES, Variant};

fn main() {
    for entry in ENTRIES {
        let flags = if entry.variant == Variant::Ptsz { 2 } else { 0 };
        println!("{} {} {} {flags}", entry.symbol, entry.name, entry.since);
    }
}
