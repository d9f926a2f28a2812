//! The list of the files of an ATTACH in docs/ARCHITECTURE.md: a reader follows it through few files of bounded length. The test cannot see
//! whether a file is missing from the list.

use crate::sources::workspace;

const MOST_FILES: usize = 10;
const MOST_LINES: usize = 500;

/// The files of the numbered list under the heading.
fn listed(document: &str) -> Vec<&str> {
    let (_, section) = document.split_once("### One ATTACH, file by file\n").expect("the heading");
    let section = section.split_once("\n## ").map_or(section, |(section, _)| section);
    section.lines().filter_map(file_of).collect()
}

/// The file that an item of the list begins with.
fn file_of(line: &str) -> Option<&str> {
    let (number, text) = line.split_once(". `")?;
    number.parse::<usize>().ok()?;
    text.split_once('`').map(|(file, _)| file)
}

#[test]
fn attach_passes_at_most_ten_files_that_exist_and_are_short() {
    let document = std::fs::read_to_string(workspace().join("docs/ARCHITECTURE.md")).expect("the document");
    let files = listed(&document);
    assert!((1..=MOST_FILES).contains(&files.len()), "files of an ATTACH: {files:?}");
    for file in files {
        let text = std::fs::read_to_string(workspace().join(file));
        let lines = text.unwrap_or_else(|error| panic!("{file}: {error}")).lines().count();
        assert!(lines <= MOST_LINES, "{file} has {lines} lines");
    }
}
