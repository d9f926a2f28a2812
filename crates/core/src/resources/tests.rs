//! Resource files, right and wrong.
