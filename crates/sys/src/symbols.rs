//! Symbols of the libraries that this process has loaded.

use std::ffi::CStr;

/// Whether the program or a library of the process's global scope, as a preloaded one, defines this symbol.
pub fn is_defined(symbol: &CStr) -> bool {
    // SAFETY: the name is a C string, and the address that is found is not used.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, symbol.as_ptr()) };
    !address.is_null()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbol_is_found_only_if_a_loaded_library_defines_it() {
        let found = [c"malloc", c"sluice_defined_nowhere"].map(is_defined);
        assert_eq!(found, [true, false]);
    }
}
