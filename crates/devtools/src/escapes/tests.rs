use super::attempts;
use super::outcome::Row;
use super::outcome::Verdict::{self, Blocked, Detected, Open};
use super::trial::until_expected;

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

/// The final result of an attempt that has these results one after the other, and how often it was made.
fn tried(expect: Verdict, results: &[Verdict]) -> (Verdict, u32) {
    let row = until_expected(|attempts| {
        let result = results[attempts as usize - 1];
        Ok(Some(Row {
            name: "one",
            expect,
            result,
            detected_ms: None,
            gpu_share: 0.0,
            memory_over_bytes: 0,
            attempts,
        }))
    });
    row.ok().flatten().map(|row| (row.result, row.attempts)).expect("each attempt has a row")
}

#[test]
fn only_an_attempt_with_a_worse_result_is_made_again_three_times_at_most() {
    assert_eq!(tried(Blocked, &[Blocked]), (Blocked, 1));
    assert_eq!(tried(Detected, &[Detected]), (Detected, 1));
    assert_eq!(tried(Blocked, &[Open, Detected, Blocked]), (Blocked, 3));
    assert_eq!(tried(Blocked, &[Open, Open, Detected, Blocked]), (Detected, 3));
    assert_eq!(until_expected(|_| Ok(None)).map(|row| row.is_none()).ok(), Some(true));
}
