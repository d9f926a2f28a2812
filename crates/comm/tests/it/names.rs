//! What a client's name may be, and how a long one is shortened.

use sluice_comm::{Name, NameError};

#[test]
fn pod_and_host_names_are_names() {
    for name in ["a", "default/training-0", "node-17.example.com", "team_a/job:3~", &"x".repeat(63)] {
        let parsed = Name::new(name).unwrap();
        assert_eq!((parsed.as_str(), parsed.len()), (name, name.len()));
        assert_eq!((parsed.to_string(), format!("{parsed:?}")), (name.to_owned(), format!("{name:?}")));
    }
}

#[test]
fn name_that_would_break_a_log_line_or_a_resource_file_is_refused() {
    for (name, at, byte) in [
        ("a b", 1, b' '),
        ("a\nb", 1, b'\n'),
        ("a\0", 1, 0),
        ("\x7f", 0, 0x7f),
        ("pod\u{e9}", 3, 0xc3),
        ("\x1b[31m", 0, 0x1b),
    ] {
        assert_eq!(Name::new(name), Err(NameError::NotPrintable { at, byte }), "{name:?}");
    }
    assert_eq!(Name::new(""), Err(NameError::Empty));
    assert_eq!(
        Name::new("a b").unwrap_err().to_string(),
        "client name has byte 0x20 at offset 1, expected graphic ASCII (0x21 to 0x7e)"
    );
}

#[test]
fn short_name_is_not_changed_by_shortening() {
    for name in ["a", "default/training-0", &"x".repeat(47)] {
        assert_eq!(Name::shortened(name).as_str(), name);
    }
}

#[test]
fn long_name_keeps_its_beginning_and_fits_every_request() {
    let long = "machine-learning/resnet-50-training-with-a-long-name";
    let short = Name::shortened(long);
    assert_eq!(short.len(), 47);
    // The digits are FNV-1a's; both sides of a wire have to agree on them for ever.
    assert_eq!(short.as_str(), "machine-learning/resnet-50-tra-cde869bbd8b27984");
    assert_ne!(short, Name::shortened(&long.replace("name", "game")));
}

#[test]
fn any_string_has_a_shortened_name() {
    for name in ["", "a b", "\0", "pod\u{e9}", &"\u{1f600}".repeat(40)] {
        let short = Name::shortened(name);
        assert_eq!(Name::new(short.as_str()), Ok(short), "{name:?}");
        assert!(short.len() <= 47, "{name:?}");
    }
    assert_ne!(Name::shortened("a b"), Name::shortened("a\tb"));
}
