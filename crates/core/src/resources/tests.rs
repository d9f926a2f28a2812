//! Resource files, right and wrong.

use super::{Class, ClientEntry, Mistakes, ParseOptions, parse};
use crate::share::Share;
use proptest::prelude::*;

const SWAPPED: ParseOptions = ParseOptions { limit_first: true };

fn read(text: &str) -> Result<Vec<ClientEntry>, Mistakes> {
    parse(text, ParseOptions::default())
}

fn entry(name: &str, request: f64, limit: f64, memory: u64, class: Class) -> ClientEntry {
    let share = |fraction| Share::from_fraction(fraction).unwrap();
    ClientEntry {
        name: name.into(),
        request: share(request),
        limit: share(limit),
        memory,
        class,
        slo_ns: 0,
        overcommit: false,
        suspended: false,
    }
}

/// The place and the found value of each mistake.
fn mistakes(text: &str) -> Vec<(Option<usize>, String, String)> {
    let mistakes = read(text).unwrap_err();
    mistakes.iter().map(|m| (m.line, m.field.clone(), m.found.clone())).collect()
}

#[test]
fn gemini_file_is_read_unchanged() {
    let read = read("2\nclient1 0.5 1.0 1073741824\n ns/pod-2\t0.3  0.30 0\n\n").unwrap();
    let first = entry("client1", 0.5, 1.0, 1 << 30, Class::BestEffort);
    let second = entry("ns/pod-2", 0.3, 0.3, 0, Class::BestEffort);
    assert_eq!(read, [first, second]);
    assert_eq!(self::read("0\n").unwrap(), []);
}

#[test]
fn yaml_has_defaults_quantities_and_classes() {
    let text = "
# clients
clients:
  - { name: be-a, request: 0.3, limit: 1.0, memory: 8Gi, class: best-effort }
  - name: lc
    request: 20%
    memory: 10737418240
    class: latency-critical
";
    let expected = [
        entry("be-a", 0.3, 1.0, 8 << 30, Class::BestEffort),
        entry("lc", 0.2, 1.0, 10 << 30, Class::LatencyCritical),
    ];
    assert_eq!(read(text).unwrap(), expected);
    assert_eq!(read("clients: []").unwrap(), []);
}

#[test]
fn yaml_names_the_class_of_each_client_and_an_unknown_class_lists_the_four() {
    let file = |class: &str| format!("clients:\n  - {{ name: a, request: 0, memory: 1, class: {class} }}\n");
    let classes = [
        ("latency-critical", Class::LatencyCritical),
        ("high", Class::High),
        ("normal", Class::Normal),
        ("best-effort", Class::BestEffort),
    ];
    for (name, class) in classes {
        assert_eq!(read(&file(name)).unwrap(), [entry("a", 0.0, 1.0, 1, class)], "{name}");
    }
    let message = read(&file("gold")).unwrap_err().to_string();
    assert!(message.contains("\"gold\""), "{message}");
    assert!(classes.iter().all(|(name, _)| message.contains(name)), "{message}");
}

#[test]
fn yaml_reads_the_slo_of_a_latency_critical_client_and_refuses_others() {
    let file = |class: &str, slo: &str| {
        read(&format!("clients: [{{ name: a, request: 0, memory: 1, class: {class}, slo: {slo} }}]"))
    };
    assert_eq!(file("latency-critical", "1.5ms").unwrap()[0].slo_ns, 1_500_000);
    for (class, slo, found) in [
        ("best-effort", "2ms", "an slo of another class"),
        ("latency-critical", "2", "found \"2\", expected a duration"),
        ("latency-critical", "0s", "found \"0s\", expected a duration"),
        ("latency-critical", "[1ms]", "found a list, expected a word"),
    ] {
        let message = file(class, slo).unwrap_err().to_string();
        assert!(message.contains(found), "{message}");
    }
}

#[test]
fn every_mistake_in_a_gemini_file_is_named_with_its_line() {
    let text = "5\na -0.1 1.0 1\nb 0.2 1.5 1\nc NaN abc 1\nd 0.1 0 8GiB\na 0.2 0.3\nd 0.1 0.2 -5\n";
    let found = mistakes(text);
    let expected = [
        (Some(1), "count", "5"),
        (Some(2), "a.request", "\"-0.1\" (negative)"),
        (Some(3), "b.limit", "\"1.5\" (more than a whole GPU)"),
        (Some(4), "c.request", "\"NaN\" (not a number)"),
        (Some(4), "c.limit", "\"abc\" (not a number)"),
        (Some(5), "d.limit", "\"0\" (a client with limit 0 could never run)"),
        (Some(5), "d.memory", "\"8GiB\""),
        (Some(6), "client \"a\"", "3 words"),
        (Some(7), "d.name", "\"d\" a second time (first at line 5)"),
        (Some(7), "d.memory", "\"-5\""),
    ];
    let found: Vec<_> =
        found.iter().map(|(line, field, found)| (*line, field.as_str(), found.as_str())).collect();
    assert_eq!(found, expected);
}

#[test]
fn every_mistake_in_yaml_is_named_with_its_field() {
    let text = "
clients:
  - { name: be-a, request: 1.2, limit: .nan, memory: lots, class: gold, colour: red }
  - { name: '', request: [1], memory: -1 }
  - just a word
  - { request: 0.1, memory: 1 }
speed: fast
";
    let found = mistakes(text);
    let fields: Vec<_> = found.iter().map(|(_, field, _)| field.as_str()).collect();
    let expected = [
        "clients[2]",
        "clients[3].name",
        "clients[0]",
        "clients[0] (be-a).request",
        "clients[0] (be-a).limit",
        "clients[0] (be-a).memory",
        "clients[0] (be-a).class",
        "clients[1] ().request",
        "clients[1] ().name",
        "clients[1] ().memory",
        "file",
    ];
    assert_eq!(fields, expected);
    let lines: Vec<_> = found.iter().skip(2).map(|(line, _, _)| *line).collect();
    assert_eq!(lines, [3, 3, 3, 3, 3, 4, 4, 4, 7].map(Some));
}

#[test]
fn request_above_the_limit_names_kubeshare_and_the_switch() {
    let text = "1\npod 1.0 0.3 1024\n";
    let message = read(text).unwrap_err().to_string();
    assert!(message.contains("KubeShare 2.0") && message.contains("--swapped"), "{message}");
    assert_eq!(parse(text, SWAPPED).unwrap(), [entry("pod", 0.3, 1.0, 1024, Class::BestEffort)]);
    let message = parse("1\npod 0.3 1.0 1024\n", SWAPPED).unwrap_err().to_string();
    assert!(message.contains("does not look swapped"), "{message}");
}

#[test]
fn requests_above_one_gpu_are_refused_with_the_names_of_all_clients() {
    let text = "3\na 0.5 1 1\nb 0.4 1 1\nc 0.2 1 1\n";
    assert_eq!(mistakes(text), [(None, "requests".into(), "1.1 in sum (a 0.5 + b 0.4 + c 0.2)".into())]);
    assert!(read("3\na 0.5 1 1\nb 0.3 1 1\nc 0.2 1 1\n").is_ok());
}

#[test]
fn names_have_at_most_63_graphic_bytes() {
    let longest = "n".repeat(63);
    assert!(read(&format!("1\n{longest} 0.1 1 1\n")).is_ok());
    assert_eq!(mistakes(&format!("1\n{longest}n 0.1 1 1\n")).len(), 1);
    assert_eq!(mistakes("clients: [{ name: 'two words', request: 0.1, memory: 1 }]").len(), 1);
    assert_eq!(mistakes("clients: [{ name: über, request: 0.1, memory: 1 }]").len(), 1);
}

#[test]
fn text_in_neither_notation_is_refused_with_the_expected_one() {
    for text in ["", "  \n", "hello\n", "x 0.1 1 1\n"] {
        let message = read(text).unwrap_err().to_string();
        assert!(message.contains("the number of clients"), "{text:?}: {message}");
    }
    let message = read("clients: [").unwrap_err().to_string();
    assert!(message.contains("a YAML document"), "{message}");
    let message = read("clients:\n  - {name: a, name: b, request: 0.1, memory: 1}").unwrap_err().to_string();
    assert!(message.contains("duplicate"), "{message}");
    let message = read("tenants: []").unwrap_err().to_string();
    assert!(message.contains("tenants") && message.contains("clients"), "{message}");
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused_with_named_mistakes(text in "[a-z0-9 .:{}\\[\\],\n%-]{0,120}") {
        if let Err(mistakes) = read(&text) {
            prop_assert!(mistakes.iter().count() > 0);
        }
    }

    #[test]
    fn accepted_clients_satisfy_the_rules(shares in prop::collection::vec((0.0f64..=1.0, 0.0f64..=1.0), 0..5)) {
        let lines: String =
            shares.iter().enumerate().map(|(n, (request, limit))| format!("c{n} {request} {limit} {n}\n")).collect();
        if let Ok(resources) = read(&format!("{}\n{lines}", shares.len())) {
            let sum: u32 = resources.iter().map(|client| client.request.ppm()).sum();
            prop_assert!(sum <= Share::ONE.ppm());
            prop_assert!(resources.iter().all(|client| client.request <= client.limit));
            prop_assert_eq!(resources.len(), shares.len());
        }
    }
}

#[test]
fn client_is_suspended_by_a_key_and_other_values_are_mistakes() {
    let with = |more: &str| {
        read(&format!("clients:\n  - {{ name: a, request: 0.3, memory: 1Gi{more} }}\n"))
            .map(|clients| clients[0].suspended)
            .map_err(|error| error.to_string())
    };
    assert_eq!((with(""), with(", suspended: false")), (Ok(false), Ok(false)));
    assert_eq!(with(", suspended: true, class: latency-critical"), Ok(true));
    let refused = with(", suspended: yes, overcommit: 1").unwrap_err();
    assert!(refused.contains("clients[0] (a).suspended: found a word, expected true or false"), "{refused}");
    assert!(refused.contains("clients[0] (a).overcommit: found a number"), "{refused}");
}

#[test]
fn memory_of_a_client_may_leave_the_gpu_unless_it_is_latency_critical() {
    let with = |more: &str| {
        let text = format!("clients:\n  - {{ name: a, request: 0.3, memory: 1Gi{more} }}\n");
        parse(&text, ParseOptions::default())
            .map(|clients| clients[0].overcommit)
            .map_err(|error| error.to_string())
    };
    assert_eq!(with(""), Ok(false));
    assert_eq!(with(", overcommit: true"), Ok(true));
    assert_eq!(with(", overcommit: false, class: latency-critical"), Ok(false));
    let refused = with(", overcommit: true, class: latency-critical").unwrap_err();
    assert!(
        refused.contains("clients[0] (a).overcommit: found true for a latency-critical client"),
        "{refused}"
    );
    let refused = with(", overcommit: often").unwrap_err();
    assert!(refused.contains("clients[0] (a).overcommit: found a word, expected true or false"), "{refused}");
}
