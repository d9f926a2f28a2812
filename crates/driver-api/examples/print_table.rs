//! Prints the table as text, one `symbol name version flags` per line. tests/gpu/check_table.c compares it with a driver.
//! `cargo run -p sluice-driver-api --example print_table > tests/gpu/driver-table.txt` updates the committed text.

#![allow(clippy::print_stdout, reason = "the output of this example")]

use sluice_driver_api::{ENTRIES, Variant};

fn main() {
    for entry in ENTRIES {
        let flags = if entry.variant == Variant::Ptsz { 2 } else { 0 };
        println!("{} {} {} {flags}", entry.symbol, entry.name, entry.since);
    }
}
