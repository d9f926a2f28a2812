//! No modules of a crate import each other in a circle: what each needs is below it.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::graph::Graph;
use crate::sources::Sources;

/// The `src` folders of crates of which the top-level modules form no circle.
const WITHOUT_CIRCLES_OF_MODULES: &[&str] =
    &["hook/src", "crates/pod-manager/src", "crates/core/src", "crates/kubectl/src", "crates/policy-sim/src"];

/// Those of which the files form none either.
const WITHOUT_CIRCLES_OF_FILES: &[&str] = &["hook/src"];

#[test]
fn top_level_modules_of_a_crate_import_each_other_in_no_circle() {
    for folder in WITHOUT_CIRCLES_OF_MODULES {
        let circles = Graph::of_modules(&Sources::read(folder)).circles();
        assert!(circles.0.is_empty(), "modules of {folder} import each other in a circle: {:#?}", circles.0);
    }
}

#[test]
fn files_of_a_crate_import_each_other_in_no_circle() {
    for folder in WITHOUT_CIRCLES_OF_FILES {
        let circles = Graph::of_files(&Sources::read(folder)).circles();
        assert!(circles.0.is_empty(), "files of {folder} import each other in a circle: {:#?}", circles.0);
    }
}

/// The files in a circle of a crate with these files.
fn in_circles(files: &[(&str, &str)]) -> BTreeSet<String> {
    let texts = files.iter().map(|(path, text)| (PathBuf::from(path), (*text).to_owned()));
    Graph::of_files(&Sources::of(texts)).circles().0.into_keys().collect()
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn circle_is_found_however_the_imports_are_written() {
    for (from_a, from_b) in [
        ("use crate::b;", "use crate::a;"),
        ("use crate::b::{self, Kind as Other};", "use crate::{a::Sort, c};"),
        ("use super::b::*;", "fn f() { crate::a::g() }"),
        ("type A = Vec<crate::b::Kind>;", "pub(crate) use super::a::Sort;"),
        ("fn f() -> impl Iterator + use<T> { g(); crate::b::h() }", "use crate::a;"),
        ("macro_rules! m { () => { $crate::b::f() } }", "use crate::c;\nuse crate::{c::f, a};"),
    ] {
        let files = [
            ("lib.rs", "mod a; mod b; mod c; mod d;"),
            ("a.rs", from_a),
            ("b.rs", from_b),
            ("c.rs", ""),
            ("d.rs", "use crate::a;"),
        ];
        assert_eq!(in_circles(&files), names(&["a", "b"]), "{from_a} {from_b}");
    }
}

#[test]
fn file_that_uses_its_child_and_is_used_by_it_is_in_a_circle() {
    let child = ("a/b.rs", "use super::Kind; use super::super::c;");
    let uses = [("lib.rs", "mod a;"), ("a.rs", "mod b; use b::f; struct Kind;"), ("c.rs", ""), child];
    assert_eq!(in_circles(&uses), names(&["a", "a::b"]));
    let declares = [("lib.rs", "mod a;"), ("a/mod.rs", "mod b; struct Kind;"), ("c.rs", ""), child];
    assert_eq!(in_circles(&declares), names(&[]));
}

#[test]
fn names_in_comments_strings_visibilities_and_tests_are_no_imports() {
    let quiet = "// crate::b\n/* use crate::b; */ const A: &str = \"use crate::b;\\\" crate::b::f()\";\n\
        pub(in crate::b) const C: char = '\"'; fn f<'a>(_: &'a str) { r#\"crate::b\"#; }\n\
        #[cfg(test)]\nmod tests;\n#[cfg(test)]\nmod inline { use crate::b; fn f() { if true {} } }";
    let files = [
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", quiet),
        ("a/tests.rs", "use crate::b;"),
        ("a/tests/more.rs", "use crate::b;"),
        ("b.rs", "use crate::a;"),
    ];
    assert_eq!(in_circles(&files), names(&[]));
    let after = format!("{quiet} use crate::b;");
    let files = [("a.rs", after.as_str()), ("b.rs", "use crate::a;")];
    assert_eq!(in_circles(&files), names(&["a", "b"]), "what follows them is read");
}
