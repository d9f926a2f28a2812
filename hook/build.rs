//! Linker arguments of the library.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // References of this library to functions that it exports bind to this library, whatever libraries are preloaded before it.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    // Programs that link with it, under any of its names, find the preloaded copy: there are never two.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libsluice.so");
    // The tracker's thread runs in this code: it must stay mapped when a program closes its handle.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
