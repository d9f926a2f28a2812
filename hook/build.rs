//! How the library is linked.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Our own references to functions we export mean ours, whoever else was preloaded in front of us.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    // Programs that are linked with it, under whichever of its names, find the one that was preloaded: there are never two.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libsluice.so");
    // The tracker's thread runs in this code: a program that closes its handle must not unmap it.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
