//! Every function of the table as one that is not supported. The chapters override these functions.

use crate::border::{CArgument, Status};
use sluice_driver_api::types::*;

macro_rules! not_supported {
    ($($policy:ident $symbol:ident ($name:literal, $since:literal, $variant:ident) fn($($argument:ident : $kind:ty),*);)*) => { $(
        #[allow(dead_code, reason = "a chapter overrides it")]
        pub(crate) fn $symbol($(_: <$kind as CArgument>::Safe),*) -> Status {
            Err(CUresult::ERROR_NOT_SUPPORTED)
        }
    )* };
}
driver_api!(not_supported);
