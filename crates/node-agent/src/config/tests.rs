//! Tests of `config.rs`.

use super::*;
use clap::Parser;

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    arguments: Arguments,
}

fn read(flags: &[&str], node: Option<&str>) -> Result<Config, ConfigMistakes> {
    let flags = [&["agent"], flags].concat();
    let arguments = Program::try_parse_from(flags).unwrap().arguments;
    Config::read(&arguments, |name| node.filter(|_| name == "NODE_NAME").map(str::to_owned))
}

#[test]
fn defaults_are_used_without_flags() {
    let config = read(&[], Some("n1")).unwrap();
    assert_eq!((config.node.as_str(), config.slots_per_gpu, config.task), ("n1", 10, Task::Serve));
    assert_eq!(config.http, "0.0.0.0:9400".parse().unwrap());
    assert_eq!(config.health, "0.0.0.0:9405".parse().unwrap());
    assert_eq!(config.control_folder(), PathBuf::from("/var/lib/sluice/control"));
    assert_eq!(config.on_manager_loss, None);
}

#[test]
fn all_mistakes_are_reported_with_the_allowed_values() {
    let flags = [
        "--seats-per-gpu=0",
        "--on-manager-loss=maybe",
        "--http=9400",
        "--health=here",
        "--state-folder=here",
    ];
    let message = read(&flags, None).unwrap_err().to_string();
    for part in [
        "--node",
        "NODE_NAME",
        "--seats-per-gpu is \"0\"",
        "1 to 1000",
        "--on-manager-loss is \"maybe\"",
        "--http is \"9400\"",
        "--health is \"here\"",
        "--state-folder is \"here\"",
    ] {
        assert!(message.contains(part), "{part} is not in {message}");
    }
}

#[test]
fn flag_overrides_variable_and_manager_arguments_pass_through() {
    let flags = [
        "--node=flag",
        "--manager-argument=--window-ms=500",
        "--on-manager-loss=closed",
        "--cleanup",
        "--stay",
    ];
    let config = read(&flags, Some("variable")).unwrap();
    assert_eq!((config.node.as_str(), config.on_manager_loss.as_deref()), ("flag", Some("closed")));
    assert_eq!(config.host.manager_arguments, ["--window-ms=500"]);
    assert_eq!(config.task, Task::Cleanup { stay: true });
}
