use super::*;
use clap::Parser;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    arguments: Arguments,
}

#[test]
fn lease_is_parsed_with_and_without_namespace_and_none() {
    let named =
        |namespace: Option<&str>| Lease::Named { namespace: namespace.map(Into::into), name: "l".into() };
    assert_eq!("none".parse(), Ok(Lease::None));
    assert_eq!("l".parse(), Ok(named(None)));
    assert_eq!("n/l".parse(), Ok(named(Some("n"))));
    for wrong in ["", "/", "n/", "/l", "a/b/c"] {
        assert!(wrong.parse::<Lease>().is_err(), "{wrong}");
    }
}

#[test]
fn all_flags_have_defaults_and_invalid_values_are_refused() {
    let defaults = Command::try_parse_from(["scheduler"]).unwrap().arguments;
    assert_eq!(defaults.listen.to_string(), "127.0.0.1:9402");
    assert_eq!(defaults.metrics_listen.to_string(), "[::]:9401");
    assert_eq!(defaults.reservation, Duration::from_secs(60));
    for wrong in
        ["--reservation=0s", "--reservation=soon", "--candidates=0", "--strategy=random", "--lease=a/b/c"]
    {
        assert!(Command::try_parse_from(["scheduler", wrong]).is_err(), "{wrong}");
    }
}
