//! The paths that a source file names. Inline modules count as a part of their file.

/// A word, `::`, or another character of the source. Comments and literals are left out.
pub(crate) type Token = String;

/// Begins the declaration of a module for tests only; its name follows.
const TEST_MODULE: [&str; 8] = ["#", "[", "cfg", "(", "test", ")", "]", "mod"];

/// The tokens of a text, without inline test modules.
pub(crate) fn tokens(text: &str) -> Vec<Token> {
    without_inline_tests(&split(&without_comments_and_literals(text)))
}

/// Whether these tokens declare a module of this name for tests only.
pub(crate) fn is_test_module(tokens: &[Token], name: &str) -> bool {
    tokens
        .windows(TEST_MODULE.len() + 2)
        .any(|window| begins_test_module(window) && window[TEST_MODULE.len()..] == [name, ";"])
}

fn begins_test_module(tokens: &[Token]) -> bool {
    tokens.len() >= TEST_MODULE.len() && tokens[..TEST_MODULE.len()] == TEST_MODULE
}

/// The child modules that these tokens declare in files of their own.
pub(crate) fn children(tokens: &[Token]) -> impl Iterator<Item = &str> {
    tokens.windows(3).filter(|window| window[0] == "mod" && window[2] == ";").map(|window| window[1].as_str())
}

/// All paths of at least two parts, and what `use` declarations name.
pub(crate) fn paths(tokens: &[Token]) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        // `use<…>` in a type captures parameters.
        if tokens[at] == "use" && tokens.get(at + 1).is_some_and(|next| next != "<") {
            at = use_tree(tokens, at + 1, &[], &mut found);
        } else if is_word(&tokens[at]) && !is_visibility(tokens, at) {
            let mut path = vec![tokens[at].clone()];
            while tokens.get(at + 1).is_some_and(|next| next == "::")
                && tokens.get(at + 2).is_some_and(is_word)
            {
                path.push(tokens[at + 2].clone());
                at += 2;
            }
            found.extend((path.len() > 1).then_some(path));
            at += 1;
        } else {
            at += 1;
        }
    }
    found
}

/// Reads the tree of a `use` declaration that begins at `at`, below `prefix`. Returns the place behind it.
fn use_tree(tokens: &[Token], mut at: usize, prefix: &[String], found: &mut Vec<Vec<String>>) -> usize {
    let mut path = prefix.to_vec();
    while let Some(token) = tokens.get(at) {
        match token.as_str() {
            "{" => {
                at += 1;
                while tokens.get(at).is_some_and(|token| token != "}") {
                    at = use_tree(tokens, at, &path, found);
                    at += usize::from(tokens.get(at).is_some_and(|token| token == ","));
                }
                return at + 1;
            }
            "as" => at += 2,
            ";" | "," | "}" => break,
            word => {
                if (path.is_empty() || word != "self") && is_word(word) {
                    path.push(word.to_owned());
                }
                at += 1;
            }
        }
    }
    found.push(path);
    at
}

/// Whether the path at `at` only says where an item is visible: `pub(in PATH)`.
fn is_visibility(tokens: &[Token], at: usize) -> bool {
    at >= 3 && tokens[at - 3..at] == ["pub", "(", "in"]
}

fn is_word(token: impl AsRef<str>) -> bool {
    token.as_ref().starts_with(|first: char| first.is_alphabetic() || first == '_')
}

fn without_inline_tests(tokens: &[Token]) -> Vec<Token> {
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let is_inline = begins_test_module(&tokens[at..])
            && tokens.get(at + TEST_MODULE.len() + 1).is_some_and(|token| token == "{");
        if !is_inline {
            kept.push(tokens[at].clone());
            at += 1;
            continue;
        }
        at += TEST_MODULE.len() + 2;
        let mut depth = 1;
        while depth > 0 && at < tokens.len() {
            depth += i32::from(tokens[at] == "{") - i32::from(tokens[at] == "}");
            at += 1;
        }
    }
    kept
}

fn split(code: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let len = if first.is_alphanumeric() || first == '_' {
            rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        tokens.push(rest[..len].to_owned());
        rest = rest[len..].trim_start();
    }
    tokens
}

fn without_comments_and_literals(text: &str) -> String {
    let mut code = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let skipped = match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            '"' => string_len(rest),
            'r' if rest.starts_with("r\"") || rest.starts_with("r#\"") => {
                let hashes = usize::from(rest.starts_with("r#"));
                let end = format!("\"{}", "#".repeat(hashes));
                let begin = 2 + hashes;
                rest[begin..].find(&end).map_or(rest.len(), |at| begin + at + end.len())
            }
            '\'' => char_len(rest),
            _ => 0,
        };
        if skipped > 0 {
            code.push(' ');
            rest = &rest[skipped..];
        } else {
            code.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    code
}

fn string_len(rest: &str) -> usize {
    let mut is_escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// The length of a character literal; 1 for the quote of a lifetime.
fn char_len(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => rest[2..].get(1..).and_then(|rest| rest.find('\'')).map_or(1, |end| end + 4),
        Some(_) => chars.next().filter(|(_, c)| *c == '\'').map_or(1, |(at, _)| at + 1),
        None => 1,
    }
}
