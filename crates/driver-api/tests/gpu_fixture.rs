//! The table that is compared with real drivers is the table of this crate.

use std::fmt::Write;

use sluice_driver_api::{ENTRIES, Variant};

#[test]
fn the_text_for_real_drivers_is_current() {
    let mut text = String::new();
    for entry in ENTRIES {
        let flags = if entry.variant == Variant::Ptsz { 2 } else { 0 };
        writeln!(text, "{} {} {} {flags}", entry.symbol, entry.name, entry.since).unwrap();
    }
    let committed = include_str!("../../../tests/gpu/driver-table.txt");
    assert!(
        text == committed,
        "run: cargo run -p sluice-driver-api --example print_table > tests/gpu/driver-table.txt"
    );
}
