//! The source files of a crate, without tests.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::imports::{Token, is_test_module, tokens};

/// The tokens of each file, by module path: empty for `lib.rs`, `link::token` for `link/token.rs`.
pub(crate) struct Sources(pub(crate) BTreeMap<Vec<String>, Vec<Token>>);

impl Sources {
    /// Reads a crate's `src` folder, which is named from the workspace's root.
    pub(crate) fn read(folder: &str) -> Self {
        let root = workspace().join(folder);
        let mut texts = Vec::new();
        read_folder(&root, &root, &mut texts);
        assert!(!texts.is_empty(), "no source files in {folder}");
        Self::of(texts)
    }

    /// The sources of these files: path in the `src` folder, text.
    pub(crate) fn of(texts: impl IntoIterator<Item = (PathBuf, String)>) -> Self {
        let mut files: BTreeMap<_, _> =
            texts.into_iter().map(|(path, text)| (module_of(&path), tokens(&text))).collect();
        let declared = |module: &[String]| {
            let (name, parent) = module.split_last()?;
            Some(is_test_module(files.get(parent)?, name))
        };
        let is_test =
            |module: &[String]| (1..=module.len()).any(|end| declared(&module[..end]) == Some(true));
        let tests: Vec<_> = files.keys().filter(|module| is_test(module)).cloned().collect();
        files.retain(|module, _| !tests.contains(module));
        Self(files)
    }
}

pub(crate) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is in the workspace's root").to_owned()
}

fn read_folder(root: &Path, folder: &Path, texts: &mut Vec<(PathBuf, String)>) {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for path in entries.map(|entry| entry.expect("an entry").path()) {
        if path.is_dir() {
            read_folder(root, &path, texts);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).expect("a source file");
            texts.push((path.strip_prefix(root).expect("a file of the folder").to_owned(), text));
        }
    }
}

fn module_of(path: &Path) -> Vec<String> {
    let path = path.with_extension("");
    let mut module: Vec<_> = path.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if module.last().is_some_and(|name| ["lib", "main", "mod"].contains(&name.as_str())) {
        module.pop();
    }
    module
}
