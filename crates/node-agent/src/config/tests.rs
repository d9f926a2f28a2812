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
    assert_eq!(config.http, "[::]:9400".parse().unwrap());
    assert_eq!(config.health, "[::]:9405".parse().unwrap());
    assert_eq!(config.state_page, "127.0.0.1:9407".parse().unwrap());
    assert_eq!(config.control_folder(), PathBuf::from("/var/lib/sluice/control"));
    assert_eq!(config.on_manager_loss, None);
    assert_eq!(config.injection, Injection::Runtime);
}

#[test]
fn all_mistakes_are_reported_with_the_allowed_values() {
    let flags = [
        "--seats-per-gpu=0",
        "--on-manager-loss=maybe",
        "--http=9400",
        "--health=here",
        "--state-page=0.0.0.0:9407",
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
        "--state-page is \"0.0.0.0:9407\"",
        "a loopback address",
        "--state-folder is \"here\"",
    ] {
        assert!(message.contains(part), "{part} is not in {message}");
    }
}

#[test]
fn agent_that_nothing_gave_the_driver_is_refused_with_nri_alone() {
    let read = |flags: &[&str], visible: Option<&str>| {
        let arguments = Program::parse_from([&["agent", "--node=n1"], flags].concat()).arguments;
        Config::read(&arguments, |name| {
            visible.filter(|_| name == "NVIDIA_VISIBLE_DEVICES").map(str::to_owned)
        })
    };
    let message = read(&["--injection=nri"], None).unwrap_err().to_string();
    for part in ["NVIDIA_VISIBLE_DEVICES is not set", "own-driver"] {
        assert!(message.contains(part), "{part} is not in {message}");
    }
    assert!(read(&["--injection=nri"], Some("void")).is_ok());
    for flags in
        [&["--injection=auto"][..], &["--injection=nri", "--cleanup"], &["--injection=nri", "--own-driver"]]
    {
        assert!(read(flags, None).is_ok(), "{flags:?}");
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

#[test]
fn probes_are_served_at_the_address_of_the_pages() {
    let health = |flags: &[&str]| read(flags, Some("n1")).unwrap().health.to_string();
    assert_eq!(health(&["--http=[::]:9400"]), "[::]:9405");
    assert_eq!(health(&["--http=[::]:9400", "--health=9500"]), "[::]:9500");
    assert_eq!(health(&["--http=10.0.0.1:9400"]), "10.0.0.1:9405");
    assert_eq!(health(&["--http=10.0.0.1:9400", "--health=127.0.0.1:9400"]), "127.0.0.1:9400");
    assert_eq!(health(&["--http=127.0.0.1:0", "--health=0"]), "127.0.0.1:0");
}

#[test]
fn port_of_the_pages_is_refused_for_the_probes() {
    for flags in
        [&["--health=9400"][..], &["--http=[::]:9405"], &["--http=10.0.0.1:9500", "--health=0.0.0.0:9500"]]
    {
        let message = read(flags, Some("n1")).unwrap_err().to_string();
        assert!(message.contains("--health is") && message.contains("another port than"), "{message}");
    }
}

#[test]
fn ports_of_the_other_pages_are_refused_for_the_state() {
    for flags in [
        &["--health=9407"][..],
        &["--http=127.0.0.1:9407"],
        &["--http=10.0.0.1:9400", "--health=0.0.0.0:9500", "--state-page=127.0.0.1:9500"],
    ] {
        let message = read(flags, Some("n1")).unwrap_err().to_string();
        assert!(message.contains("--state-page is") && message.contains("another port than"), "{message}");
    }
    let read = |flags: &[&str]| read(flags, Some("n1")).unwrap().state_page.to_string();
    assert_eq!(read(&["--state-page=[::1]:9500"]), "[::1]:9500");
    assert_eq!(read(&["--http=10.0.0.1:9407"]), "127.0.0.1:9407");
}
