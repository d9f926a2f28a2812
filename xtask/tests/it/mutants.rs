//! The mutants in `tests/mutants`: each patch applies to the tree and names a test that is in it. Building and running them all takes
//! minutes (`tests/mutants/run`), so a change that makes a patch stale shows here first.

use std::path::Path;
use std::process::Command;

use crate::sources::workspace;

#[test]
fn each_mutant_applies_and_names_a_test_of_the_preload_tests() {
    let root = workspace();
    let mut mutants = 0;
    for entry in std::fs::read_dir(root.join("tests/mutants")).expect("the folder of mutants") {
        let patch = entry.expect("an entry").path();
        if patch.extension().is_none_or(|extension| extension != "patch") {
            continue;
        }
        let applied = git_apply_check(&root, &patch);
        assert!(applied.is_ok(), "{}: {}", patch.display(), applied.unwrap_err());
        let text = std::fs::read_to_string(&patch).expect("a patch");
        let test = text.lines().next().and_then(|line| line.rsplit_once(": ")).map(|(_, test)| test);
        let (module, function) =
            test.and_then(|test| test.rsplit_once("::")).expect("Caught by: MODULE::TEST");
        let source = root.join(format!("tests/preload/tests/it/{}.rs", module.replace("::", "/")));
        let tests =
            std::fs::read_to_string(&source).unwrap_or_else(|error| panic!("{}: {error}", source.display()));
        assert!(tests.contains(&format!("#[test]\nfn {function}(")), "{}: no {function}", source.display());
        mutants += 1;
    }
    assert!(mutants > 0, "there are mutants");
}

/// What `tests/mutants/run` does first with each patch.
fn git_apply_check(root: &Path, patch: &Path) -> Result<(), String> {
    let output =
        Command::new("git").args(["apply", "--check"]).arg(patch).current_dir(root).output().expect("git");
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}
