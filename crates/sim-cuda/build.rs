//! How the library is linked.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Addresses taken here are those of our own exports, also when a library preloaded in front has the same names.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
}
