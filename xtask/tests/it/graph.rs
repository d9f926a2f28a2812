//! Which file of a crate imports which, and which top-level module.

use std::collections::{BTreeMap, BTreeSet};

use crate::imports::{children, paths};
use crate::sources::Sources;

/// The imports of each node, by name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Graph(pub(crate) BTreeMap<String, BTreeSet<String>>);

impl Graph {
    /// The imports of the crate's files. The crate's root is left out: it only declares the modules.
    pub(crate) fn of_files(sources: &Sources) -> Self {
        let imports_of = |module: &Vec<String>| {
            let tokens = &sources.0[module];
            let own: BTreeSet<&str> = children(tokens).collect();
            let targets = paths(tokens).into_iter().filter_map(|path| {
                let path = absolute(module, &own, &path)?;
                let known = (1..=path.len()).rev().map(|end| &path[..end]);
                known.into_iter().find(|prefix| sources.0.contains_key(*prefix)).map(<[String]>::to_vec)
            });
            targets.filter(|target| target != module).map(|target| target.join("::")).collect()
        };
        let files = sources.0.keys().filter(|module| !module.is_empty());
        Self(files.map(|module| (module.join("::"), imports_of(module))).collect())
    }

    /// The same with all files of a top-level module as one node.
    pub(crate) fn of_modules(sources: &Sources) -> Self {
        let top = |name: &str| name.split("::").next().unwrap_or(name).to_owned();
        let mut modules: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (file, imports) in Self::of_files(sources).0 {
            let module = top(&file);
            let others = imports.iter().map(|import| top(import)).filter(|import| *import != module);
            modules.entry(module.clone()).or_default().extend(others);
        }
        Self(modules)
    }

    /// What is left of the graph without the nodes that are in no circle, nor between two circles.
    pub(crate) fn circles(mut self) -> Self {
        loop {
            let before = self.0.len();
            let imported: BTreeSet<String> = self.0.values().flatten().cloned().collect();
            self.0.retain(|node, imports| !imports.is_empty() && imported.contains(node));
            let left: BTreeSet<String> = self.0.keys().cloned().collect();
            self.0.values_mut().for_each(|imports| imports.retain(|import| left.contains(import)));
            if self.0.len() == before {
                return self;
            }
        }
    }
}

/// A path from the crate's root; `None` if it leads to another crate.
fn absolute(module: &[String], children: &BTreeSet<&str>, path: &[String]) -> Option<Vec<String>> {
    let (first, rest) = path.split_first()?;
    let (mut base, rest) = match first.as_str() {
        "crate" => (Vec::new(), rest),
        "self" => (module.to_vec(), rest),
        "super" => (module[..module.len().checked_sub(1)?].to_vec(), rest),
        child if children.contains(child) => (module.to_vec(), path),
        _ => return None,
    };
    for part in rest {
        if part == "super" {
            base.pop()?;
        } else {
            base.push(part.clone());
        }
    }
    Some(base)
}
