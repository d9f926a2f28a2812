//! The function addresses of a loaded driver.

use std::ffi::{CStr, c_void};

use crate::status::CUresult;
use crate::types::*;

macro_rules! real_driver {
    ($($policy:ident $symbol:ident ($name:literal, $since:literal, $variant:ident) fn($($argument:ident : $kind:ty),*);)*) => {
        /// The functions of a real driver, one field for each symbol; `None` if the driver lacks it.
        #[derive(Clone, Copy, Debug)]
        #[allow(non_snake_case, reason = "fields are the driver's symbols")]
        pub struct RealDriver {
            $(
                #[doc = concat!("`", stringify!($symbol), "`")]
                pub $symbol: Option<unsafe extern "C" fn($($argument: $kind),*) -> CUresult>,
            )*
        }

        impl RealDriver {
            /// A driver without any function.
            pub const EMPTY: RealDriver = RealDriver { $($symbol: None,)* };

            /// Calls `resolve` for each symbol of the table; a null result means that the driver lacks it.
            ///
            /// # Safety
            /// A non-null result is the address of the driver function with that name (C calling convention, the ABI of the
            /// table), and stays valid as long as the fields are called.
            pub unsafe fn load(mut resolve: impl FnMut(&CStr) -> *mut c_void) -> RealDriver {
                RealDriver { $(
                    $symbol: {
                        const SYMBOL: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($symbol), "\0").as_bytes()) {
                            Ok(symbol) => symbol,
                            Err(_) => c"",
                        };
                        let address = resolve(SYMBOL);
                        // SAFETY: by this function's contract, a non-null address is a function of this type. A null one is
                        // `None` in an `Option` of a function pointer (both are one pointer wide, with the null niche).
                        unsafe { std::mem::transmute::<*mut c_void, Option<unsafe extern "C" fn($($kind),*) -> CUresult>>(address) }
                    },
                )* }
            }
        }
    };
}
driver_api!(real_driver);
