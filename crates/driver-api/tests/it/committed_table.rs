//! The committed text of the table, which is compared with real drivers.

use std::fmt::Write;

use sluice_driver_api::{ENTRIES, Variant};

#[test]
fn committed_text_of_the_table_is_current() {
    let mut text = String::new();
    for entry in ENTRIES {
        let flags = if entry.variant == Variant::Ptsz { 2 } else { 0 };
        writeln!(text, "{} {} {} {flags}", entry.symbol, entry.name, entry.since).unwrap();
    }
    let committed = include_str!("../../../../tests/gpu/driver-table.txt");
    assert!(
        text == committed,
        "run: cargo run -p sluice-driver-api --example print_table > tests/gpu/driver-table.txt"
    );
}
