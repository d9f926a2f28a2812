//! [`CUresult`], the return type of every driver function.

use std::fmt;

use crate::status_codes::status_codes;

/// Status of a driver call: 0 is success. Values that the headers do not contain are possible and kept.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
#[must_use]
pub struct CUresult(pub u32);

macro_rules! constants {
    ($($short:ident $name:ident $value:literal;)*) => {
        impl CUresult {
            $(
                #[doc = concat!("`", stringify!($name), "`")]
                pub const $short: CUresult = CUresult($value);
            )*

            /// The driver's name of the status, such as `CUDA_ERROR_OUT_OF_MEMORY`.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some(stringify!($name)),)*
                    _ => None,
                }
            }

            /// As [`CUresult::name`], with a terminating NUL as `cuGetErrorName` returns it.
            pub const fn c_name(self) -> Option<&'static std::ffi::CStr> {
                match self.0 {
                    $($value => match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                        Ok(name) => Some(name),
                        Err(_) => None,
                    },)*
                    _ => None,
                }
            }
        }
    };
}
status_codes!(constants);

impl CUresult {
    /// `Ok` for success, otherwise the status as error.
    pub const fn ok(self) -> Result<(), CUresult> {
        if self.0 == 0 { Ok(()) } else { Err(self) }
    }
}

impl fmt::Display for CUresult {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(out, "{name} ({})", self.0),
            None => write!(out, "CUDA status {}", self.0),
        }
    }
}

impl fmt::Debug for CUresult {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

impl std::error::Error for CUresult {}

#[cfg(test)]
mod tests;
