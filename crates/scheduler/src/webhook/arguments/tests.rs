use super::*;
use clap::Parser;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    arguments: Arguments,
}

fn parsed(flags: &[&str]) -> Arguments {
    Command::try_parse_from([&["webhook"], flags].concat()).unwrap().arguments
}

#[test]
fn listeners_are_at_all_addresses_unless_flags_name_one() {
    let defaults = parsed(&[]);
    assert_eq!([defaults.listen, defaults.metrics].map(|one| one.to_string()), ["[::]:9443", "[::]:9404"]);
    let stated = parsed(&["--listen=0.0.0.0:10343", "--metrics=[::1]:9404"]);
    assert_eq!([stated.listen, stated.metrics].map(|one| one.to_string()), ["0.0.0.0:10343", "[::1]:9404"]);
}
