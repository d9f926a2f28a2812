//! Every function of the table as one that is not supported. The chapters lay their own over these.

use crate::border::{Border, Status};
use sluice_driver_api::types::*;

macro_rules! not_supported {
    ($($policy:ident $symbol:ident ($name:literal, $since:literal, $variant:ident) fn($($argument:ident : $kind:ty),*);)*) => { $(
        #[allow(dead_code, reason = "a chapter has laid its own over it")]
        pub(crate) fn $symbol($(_: <$kind as Border>::Safe),*) -> Status {
            Err(CUresult::ERROR_NOT_SUPPORTED)
        }
    )* };
}
driver_api!(not_supported);
