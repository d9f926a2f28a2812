//! Prints docs/compatibility.md: what the hook does with each function.
//! `cargo run -p sluice-driver-api --example print_compatibility > docs/compatibility.md` updates the document.

#![allow(clippy::print_stdout, reason = "the output of this example")]

#[path = "../tests/it/compatibility/mod.rs"]
mod compatibility;

fn main() {
    print!("{}", compatibility::text());
}
