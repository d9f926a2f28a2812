use super::*;
use std::path::Path;

fn base() -> Config {
    Config::new("/run/sluice/gpu.sock", "/etc/sluice/resources")
}

fn repository(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

/// The mistakes as `LINE KEY`.
fn places(text: &str) -> Vec<String> {
    let mistakes = base().with_policy(text).unwrap_err();
    mistakes.iter().map(|it| format!("{} {}", it.line.unwrap_or(0), it.field)).collect()
}

fn words(text: &str) -> String {
    base().with_policy(text).unwrap_err().iter().map(Mistake::to_string).collect::<Vec<_>>().join("; ")
}

#[test]
fn file_without_settings_changes_nothing() {
    for text in ["", "# nothing\n", "preemption:\n", "preemption:\n  timeslice:\n", "{}"] {
        assert_eq!(base().with_policy(text), Ok(base()), "{text:?}");
    }
}

#[test]
fn example_of_the_documentation_sets_what_it_says() {
    let page = repository("docs/operators/policy.md");
    let example = page.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let config = base().with_policy(example).unwrap();
    assert_eq!(config.best_effort_slice, Duration::from_micros(200));
    assert_eq!(config.quantum, Duration::from_millis(40));
    let untouched = Config { best_effort_slice: base().best_effort_slice, quantum: base().quantum, ..config };
    assert_eq!(untouched, base());
}

#[test]
fn page_has_each_setting_and_each_refused_key() {
    let page = repository("docs/operators/policy.md");
    let refused = REFUSED.iter().map(|(path, _)| *path);
    for path in SETTINGS.iter().map(|setting| setting.path).chain(refused) {
        let key = format!("`{}`", path[1..].join("."));
        assert!(page.contains(&key), "{key}");
    }
}

#[test]
fn file_takes_precedence_over_a_flag() {
    let flags = Config { quantum: Duration::from_millis(80), capacity: 3, ..base() };
    let config = flags.with_policy("preemption: { scheduling: { quantum_ms: 60 } }").unwrap();
    assert_eq!((config.quantum, config.capacity), (Duration::from_millis(60), 3));
    assert_eq!(config.policies().ledger.quantum_ns, 60_000_000);
}

#[test]
fn each_setting_reaches_its_policy() {
    let text = "\
---
preemption:
  timeslice: { be_task_us: 200, lc_task_us: 5e5, lc_shared_us: 2000 }
  scheduling:
    quantum_ms: 60
    first_grant_ms: 21
    shortest_grant_ms: 2.5
    longest_grant_ms: 150
    limit_period_ms: 300
    grants_at_once: 2
    return_timeout_ms: 1500
    short_pause_ms: 35
";
    let keys = |path: &&str| text.contains(&format!("{path}:"));
    assert!(SETTINGS.iter().all(|setting| setting.path.iter().all(keys)));
    let policies = base().with_policy(text).unwrap().policies();
    let slices = policies.channel_groups;
    assert_eq!((slices.best_effort_slice_us, slices.long_us, slices.shared_us), (200, 500_000, 2_000));
    let ledger = policies.ledger;
    let quota = ledger.quota;
    let quotas = [quota.base_ns, quota.min_ns, quota.cap_ns, quota.limit_period_ns];
    assert_eq!(quotas, [21_000_000, 2_500_000, 150_000_000, 300_000_000]);
    let times = [ledger.quantum_ns, ledger.return_timeout_ns, ledger.idle_credit_ns];
    assert_eq!((ledger.capacity, times), (2, [60_000_000, 1_500_000_000, 35_000_000]));
}

#[test]
fn all_mistakes_are_named_at_once_with_line_and_key() {
    let text = "\
preemption:
  # quantum_ms: a comment
  timeslice:
    be_task_us: 1.5
    quantum_ms: 50
  timeslices: off
  scheduling:
    quantum_ms: 20
    grants_at_once: many

    \"return_timeout_ms\": -1
  power: low
retries: 3
";
    let expected = [
        "4 preemption.timeslice.be_task_us",
        "5 preemption.timeslice.quantum_ms",
        "6 preemption.timeslices",
        "8 preemption.scheduling.quantum_ms",
        "9 preemption.scheduling.grants_at_once",
        "11 preemption.scheduling.return_timeout_ms",
        "12 preemption.power",
        "13 retries",
    ];
    assert_eq!(places(text), expected);
    let words = words(text);
    for part in [
        "line 8, preemption.scheduling.quantum_ms: found 20, expected 30 to 100 ms",
        "line 5, preemption.timeslice.quantum_ms: found an unknown key, expected only be_task_us, lc_task_us, lc_shared_us",
        "line 9, preemption.scheduling.grants_at_once: found \"many\", expected a whole number",
        "line 12, preemption.power: found an unknown key, expected only timeslice, scheduling",
    ] {
        assert!(words.contains(part), "{part}\n{words}");
    }
}

#[test]
fn value_that_contradicts_another_is_named_with_the_keys_of_the_file() {
    let text = "preemption:\n  scheduling:\n    longest_grant_ms: 20\n";
    let expected = "preemption.scheduling.first_grant_ms: found 50ms by a flag or by default, expected shortest_grant_ms to longest_grant_ms";
    assert_eq!(words(text), format!("line 2, {expected}"));
    assert!(base().with_policy(&format!("{text}    first_grant_ms: 20\n")).is_ok());
}

#[test]
fn value_of_another_kind_is_one_mistake_also_if_the_setting_contradicts_another() {
    let text = "preemption:\n  scheduling:\n    first_grant_ms: many\n    longest_grant_ms: 20\n";
    let mistake =
        "line 3, preemption.scheduling.first_grant_ms: found \"many\", expected a number of milliseconds";
    assert_eq!(words(text), mistake);
}

#[test]
fn text_that_is_no_mapping_is_refused_with_its_line() {
    assert_eq!(places("- 1\n"), ["1 file"]);
    assert_eq!(places("preemption:\n  scheduling: {\n"), ["3 file"]);
    assert_eq!(words("preemption:\n  timeslice: {}\n  timeslice: {}\n").matches("duplicate").count(), 1);
}

/// The example of GPreempt's design in the project's second seed text.
const GPREEMPT: &str = "\
preemption:
  enabled: true
  timeslice:
    lc_task_us: 5000000
    be_task_us: 200
    min_timeslice_us: 100
    max_timeslice_us: 10000000
  pre_preemption:
    enabled: true
    scheduled: true
    safety_margin_us: 50
    min_prep_time_us: 100
  resources:
    max_context_memory_mb: 1000
    max_concurrent_contexts: 20
  scheduling:
    policy: \"deadline\"
    fair_share_enabled: true
  priorities:
    - level: 0
      name: \"critical\"
      timeslice_us: 10000000
      preemptible: false
  monitoring:
    enabled: true
    export_interval_sec: 10
    prometheus_port: 9090
";

#[test]
fn keys_of_gpreempt_without_a_meaning_here_are_refused_with_the_reason() {
    let expected = [
        "2 preemption.enabled",
        "4 preemption.timeslice.lc_task_us",
        "6 preemption.timeslice.min_timeslice_us",
        "7 preemption.timeslice.max_timeslice_us",
        "8 preemption.pre_preemption",
        "13 preemption.resources",
        "17 preemption.scheduling.policy",
        "18 preemption.scheduling.fair_share_enabled",
        "19 preemption.priorities",
        "24 preemption.monitoring",
    ];
    assert_eq!(places(GPREEMPT), expected);
    let words = words(GPREEMPT);
    assert!(words.contains("found 5000000, expected 1000 to 1000000 µs"), "{words}");
    assert_eq!(words.matches("expected no such key: ").count(), REFUSED.len(), "{words}");
}

#[test]
fn schema_in_the_repository_is_that_of_the_settings() {
    let committed: serde_json::Value =
        serde_json::from_str(&repository("docs/reference/policy.schema.json")).unwrap();
    assert_eq!(committed, schema(), "run: sluice policy --schema > docs/reference/policy.schema.json");
}

/// The configuration in which nothing but its own range bounds a setting.
fn wide() -> Config {
    let hour = Duration::from_secs(3600);
    let ms = Duration::from_millis(1);
    Config { window: hour, min_quota: ms, base_quota: ms, max_quota: hour, ..base() }
}

#[test]
fn ranges_of_the_schema_are_those_of_the_manager() {
    let checked = |setting: &Setting, number: f64| {
        let mut config = wide();
        // Whole microseconds and counts only: a number below 0 is no duration.
        setting.kind.set(&mut config, &Value::from(number))
            && config.check().is_ok_or_concerns_another(setting.field)
    };
    for setting in &SETTINGS {
        let (least, most, step) = match setting.kind {
            Kind::Milliseconds(least, most, _) | Kind::Microseconds(least, most, _) => (least, most, 1.0),
            Kind::Count(least, most, field) => {
                for (count, holds) in [(least - 1.0, false), (least, true), (most, true), (most + 1.0, false)]
                {
                    let mut config = wide();
                    *field(&mut config) = count.to_string().parse().unwrap();
                    assert_eq!(config.check().is_ok(), holds, "{} {count}", setting.field);
                }
                continue;
            }
        };
        let found = [least - step, least, most, most + step].map(|number| checked(setting, number));
        assert_eq!(found, [false, true, true, false], "{}", setting.field);
    }
}

trait Concerns {
    fn is_ok_or_concerns_another(&self, field: &str) -> bool;
}

impl Concerns for Result<(), crate::config::ConfigMistakes> {
    fn is_ok_or_concerns_another(&self, field: &str) -> bool {
        self.as_ref().err().is_none_or(|mistakes| mistakes.iter().all(|mistake| mistake.field != field))
    }
}
