//! The list of checksums, as `sha256sum --check` reads it.

use std::collections::BTreeMap;
use std::fmt::Write;

/// The list of the given files and their SHA-256.
pub(crate) fn list(files: &BTreeMap<String, String>) -> String {
    files.iter().fold(String::new(), |mut list, (name, sha256)| {
        // Writing to a string cannot fail.
        let _ = writeln!(list, "{sha256}  {name}");
        list
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_has_a_line_for_each_file_in_the_form_of_sha256sum() {
        let files = BTreeMap::from([("b".to_owned(), "22".to_owned()), ("a".to_owned(), "11".to_owned())]);
        assert_eq!(list(&files), "11  a\n22  b\n");
    }
}
