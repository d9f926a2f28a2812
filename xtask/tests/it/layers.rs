//! The table of modules at the head of a crate's `lib.rs`: each module imports only modules of its own row and of rows below.

use std::collections::BTreeMap;

use crate::graph::Graph;
use crate::sources::{Sources, workspace};

/// The `src` folders of crates with such a table.
const WITH_TABLE: &[&str] = &["hook/src"];

#[test]
fn modules_import_only_what_the_table_of_their_crate_has_beside_or_below_them() {
    for folder in WITH_TABLE {
        let text =
            std::fs::read_to_string(workspace().join(folder).join("lib.rs")).expect("the crate's root");
        // The highest row comes first.
        let modules_of = |line: &str| line.strip_prefix("//! | ")?.split(" | ").next().map(str::to_owned);
        let rows: Vec<String> = text.lines().filter_map(modules_of).filter(|row| row.contains('`')).collect();
        let mut row_of: BTreeMap<&str, usize> = BTreeMap::new();
        for (row, line) in rows.iter().enumerate() {
            for module in line.split('`').skip(1).step_by(2) {
                assert_eq!(row_of.insert(module, row), None, "{folder}: {module} is in two rows");
            }
        }
        let graph = Graph::of_modules(&Sources::read(folder)).0;
        let modules: Vec<&str> = graph.keys().map(String::as_str).collect();
        assert_eq!(row_of.keys().copied().collect::<Vec<_>>(), modules, "{folder}: the table's modules");
        for (module, imports) in &graph {
            for import in imports {
                let (from, to) = (row_of[module.as_str()], row_of[import.as_str()]);
                assert!(from <= to, "{folder}: {module} imports {import}, which is above it in the table");
            }
        }
    }
}
