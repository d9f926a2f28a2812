//! How the library is linked.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Addresses taken in this library are those of its own exports, even if a preloaded library exports the same
    // names.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
}
