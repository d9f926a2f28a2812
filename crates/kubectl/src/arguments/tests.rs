use clap::CommandFactory;

use super::*;

#[test]
fn command_line_is_consistent() {
    Plugin::command().debug_assert();
}

#[test]
fn output_and_namespace_have_kubectls_letters() {
    let plugin =
        Plugin::try_parse_from(["kubectl-sluice", "explain", "pod", "-n", "team", "-o", "json"]).unwrap();
    let Command::Explain(explain) = plugin.command else { panic!("another command") };
    assert_eq!((explain.namespace.as_deref(), explain.output.format), (Some("team"), Format::Json));
}

#[test]
fn interval_without_a_unit_or_below_100_ms_is_refused() {
    let parse = |interval: &str| Plugin::try_parse_from(["kubectl-sluice", "top", "--interval", interval]);
    assert!(parse("2s").is_ok());
    assert!(parse("2").is_err() && parse("50ms").is_err());
}

#[test]
fn metrics_of_an_address_need_no_namespace() {
    let plugin = Plugin::try_parse_from(["kubectl-sluice", "top", "--metrics", "127.0.0.1:9400"]).unwrap();
    let Command::Top(top) = plugin.command else { panic!("another command") };
    assert_eq!(top.sluice_namespace, "sluice-system");
}
