use super::attempts;

/// The table of docs/security.md.
const DOCUMENT: &str = include_str!("../../../../docs/security.md");

#[test]
fn document_has_the_attempts_and_their_results() {
    let rows = DOCUMENT.lines().skip_while(|line| !line.starts_with("| attempt |")).skip(2);
    let documented: Vec<(String, String)> = rows
        .take_while(|line| line.starts_with('|'))
        .map(|line| {
            let mut cells = line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned());
            (cells.next().unwrap_or_default(), cells.next().unwrap_or_default())
        })
        .collect();
    let tried: Vec<(String, String)> =
        attempts::ALL.iter().map(|attempt| (attempt.name.to_owned(), attempt.expect.to_string())).collect();
    assert_eq!(documented, tried);
}
