//! Integration tests of the driver table.

mod committed_table;
mod compatibility;
mod lookup;
mod policies;
mod table_macro;
