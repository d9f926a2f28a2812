//! Files as people write them, before and after an edit.

use super::*;

/// The text after the client is suspended. Resumed again it is what it was.
fn suspended(text: &str, client: &str) -> String {
    let edited = set_suspended(text, client, true).unwrap().expect("an edit");
    let of = |text: &str| {
        let entries = parse(text, ParseOptions::default()).unwrap();
        entries.into_iter().map(|entry| (entry.name, entry.suspended)).collect::<Vec<_>>()
    };
    let expected: Vec<_> =
        of(text).into_iter().map(|(name, was)| (name.clone(), was || name == client)).collect();
    assert_eq!(of(&edited), expected);
    assert!(set_suspended(&edited, client, true).unwrap().is_none(), "suspended twice");
    let resumed = set_suspended(&edited, client, false).unwrap().expect("an edit");
    assert_eq!(resumed, text);
    edited
}

#[test]
fn mapping_in_one_line_gets_the_key_behind_the_name_and_comments_stay() {
    let text = "# shares of node 3\nclients:\n  - { name: a, request: 0.3, memory: 1Gi } # a\n  - {name: \"ab\", request: 0.1, memory: 1Gi}\n";
    assert_eq!(suspended(text, "a"), text.replace("name: a,", "name: a, suspended: true,"));
    assert_eq!(suspended(text, "ab"), text.replace("\"ab\",", "\"ab\", suspended: true,"));
}

#[test]
fn mapping_in_lines_gets_a_line_of_the_same_indentation() {
    let text = "clients:\n- name: a   # the first\n  request: 0.3\n  memory: 1Gi\n-   request: 0.2\n    memory: 1Gi\n    'name': 'b'";
    assert_eq!(suspended(text, "a"), text.replace("# the first\n", "# the first\n  suspended: true\n"));
    assert_eq!(suspended(text, "b"), format!("{text}\n    suspended: true"));
    let windows = "clients:\r\n  - name: a\r\n    request: 0.3\r\n    memory: 1Gi\r\n";
    assert_eq!(suspended(windows, "a"), windows.replace("a\r\n ", "a\r\n    suspended: true\r\n "));
}

#[test]
fn json_is_edited_like_any_other_mapping() {
    let text = "{\"clients\": [{\"memory\": 1, \"request\": 0.1, \"name\": \"a\"}]}";
    assert_eq!(suspended(text, "a"), text.replace("\"a\"}", "\"a\", suspended: true}"));
}

#[test]
fn name_that_is_part_of_others_is_found() {
    let text = "clients:\n  - { name: request, request: 0.1, memory: 1 }\n  - { name: e, request: 0.1, memory: 1 }\n";
    assert_eq!(suspended(text, "e"), text.replace("name: e,", "name: e, suspended: true,"));
    assert_eq!(suspended(text, "request"), text.replace("name: request,", "name: request, suspended: true,"));
}

#[test]
fn key_that_is_there_changes_its_value() {
    let text = "clients:\n  - { name: a, request: 0.1, memory: 1, suspended: false }\n  - { name: b, request: 0.1, memory: 1, suspended: true }\n";
    let edited = set_suspended(text, "a", true).unwrap().unwrap();
    assert_eq!(edited, text.replace("false", "true"));
    let resumed = set_suspended(&edited, "b", false).unwrap().unwrap();
    assert_eq!(
        resumed,
        edited.replace("1, suspended: true }\n", "1 }\n").replacen("1 }", "1, suspended: true }", 1)
    );
    // Without the key the entry would begin with its dash alone.
    let first = "clients:\n  - suspended: true\n    name: a\n    request: 0.1\n    memory: 1\n";
    assert_eq!(set_suspended(first, "a", false).unwrap().unwrap(), first.replace("true", "false"));
    let leading = "clients: [{ suspended: true, name: a, request: 0.1, memory: 1 }]";
    assert_eq!(
        set_suspended(leading, "a", false).unwrap().unwrap(),
        leading.replace("suspended: true, ", "")
    );
}

#[test]
fn refused_edits_name_what_was_found() {
    let refused = |text: &str, client: &str| set_suspended(text, client, true).unwrap_err().to_string();
    let two = "clients: [{ name: a, request: 0.1, memory: 1 }, { name: b, request: 0.1, memory: 1 }]";
    assert_eq!(refused(two, "c"), "found no client \"c\", only a, b");
    assert!(refused("1\na 0.1 1 1\n", "a").contains("Gemini's notation"));
    assert!(refused("clients: [{ name: a, request: 2, memory: 1 }]", "a").contains("clients[0] (a).request"));
    let escaped = "clients: [{ name: \"\\x61\", request: 0.1, memory: 1 }]";
    assert!(refused(escaped, "a").contains("set `suspended` in it by hand"));
}
