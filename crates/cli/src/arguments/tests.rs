use super::*;
use clap::CommandFactory;

#[test]
fn the_command_line_is_consistent() {
    Arguments::command().debug_assert();
}
