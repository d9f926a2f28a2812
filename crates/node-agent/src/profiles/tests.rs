use super::*;
use clap::Parser;

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    arguments: Arguments,
}

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

const PROFILES: &str = "
- name: training
  nodeLabels: { pool: training, zone: a }
  seatsPerGpu: 4
  onManagerLoss: closed
  controls: off
- name: other
  nodeLabels: { pool: training }
  turnMs: 40
";

#[test]
fn first_profile_of_the_nodes_labels_replaces_its_flags_and_no_others() {
    let profiles = read(PROFILES).unwrap();
    let of = |pairs: &[(&str, &str)]| {
        let found = profiles.iter().find(|profile| profile.is_for(&labels(pairs)));
        found.map(|profile| profile.name.as_str())
    };
    assert_eq!(of(&[("pool", "training"), ("zone", "a"), ("more", "")]), Some("training"));
    assert_eq!(of(&[("pool", "training"), ("zone", "b")]), Some("other"));
    assert_eq!(of(&[("zone", "a")]), None);

    let flags = [
        "agent",
        "--node=n",
        "--seats-per-gpu=7",
        "--http=127.0.0.1:9500",
        "--state-folder=/s",
        "--injection=auto",
    ];
    let mut arguments = Program::parse_from(flags).arguments;
    let before = Config::read(&arguments, |_| None).unwrap();
    profiles[0].apply(&mut arguments).unwrap();
    let after = Config::read(&arguments, |_| None).unwrap();
    assert_eq!((after.slots_per_gpu, after.on_manager_loss.as_deref()), (4, Some("closed")));
    assert_ne!(after.host.managers, before.host.managers, "controls");
    let mut rest = after;
    (rest.slots_per_gpu, rest.on_manager_loss) = (before.slots_per_gpu, before.on_manager_loss.clone());
    rest.host.managers = before.host.managers.clone();
    assert_eq!(rest, before);
}

#[test]
fn all_mistakes_of_all_profiles_are_reported() {
    let text = "
- { nodeLabels: { a: b }, seatsPerGpu: 4, seats: 3 }
- { name: x, controls: perhaps, turnMs: 7, onManagerLoss: maybe }
- { name: x, nodeLabels: { a: b }, adopt: auto, selfTest: [once] }
";
    let why = read(text).unwrap_err().to_string();
    for part in [
        "profile 1 has no name",
        "\"seats\" is no setting",
        "x has no nodeLabels",
        "perhaps",
        "--on-manager-loss is \"maybe\", expected open or closed",
        "7 is not in 30..=100",
        "\"x\" is there twice",
        "\"adopt\" is no setting",
        "selfTest is a list",
    ] {
        assert!(why.contains(part), "{part} in {why}");
    }
    assert!(read("name: x").unwrap_err().to_string().contains("no list of profiles"));
}
