//! The lines of keys in a YAML text: the document tree does not keep them.

/// The line, from 1, of the key at this path. A key that is not found on a line of its own, as in `{ a: 1 }`, has the line of the one
/// around it.
pub(super) fn line_of(text: &str, path: &[&str]) -> Option<usize> {
    let lines: Vec<&str> = text.lines().collect();
    let (mut found, mut next, mut outer) = (None, 0, None);
    for key in path {
        let Some((line, indent)) = child(&lines, next, outer, key) else { break };
        (found, next, outer) = (Some(line + 1), line + 1, Some(indent));
    }
    found
}

/// The line and the indentation of a key among the children that begin on line `from`. Their indentation is larger than `outer`.
fn child(lines: &[&str], from: usize, outer: Option<usize>, key: &str) -> Option<(usize, usize)> {
    let mut indent_of_children = None;
    for (number, line) in lines.iter().enumerate().skip(from) {
        let content = line.trim_start();
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        let indent = line.len() - content.len();
        if outer.is_some_and(|outer| indent <= outer) {
            return None;
        }
        let is_child = *indent_of_children.get_or_insert(indent) == indent;
        if is_child && starts_with_key(content, key) {
            return Some((number, indent));
        }
    }
    None
}

fn starts_with_key(content: &str, key: &str) -> bool {
    let content = content.trim_start_matches(['"', '\'']);
    let rest = content.strip_prefix(key).map(|rest| rest.trim_start_matches(['"', '\'']));
    rest.is_some_and(|rest| rest.trim_start().starts_with(':'))
}
