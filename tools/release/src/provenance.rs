//! From what a release was made and how: an in-toto statement with SLSA's provenance, not signed.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::packages::Package;
use crate::source::Source;

/// The page that describes the command and its result.
const BUILD_TYPE: &str =
    "https://github.com/sluice-gpu/sluice/blob/main/docs/operators/image.md#make-a-release";

/// The machine or service that ran the build, and its tools.
pub(crate) struct Builder<'a> {
    /// A URI.
    pub(crate) id: &'a str,
    /// The name and the version of each tool.
    pub(crate) tools: &'a BTreeMap<&'static str, String>,
}

/// The statement as JSON. `subjects` are names and SHA-256 of the release's files, image and chart.
pub(crate) fn statement(
    source: &Source,
    subjects: &BTreeMap<String, String>,
    packages: &[Package],
    builder: &Builder<'_>,
) -> Result<Vec<u8>> {
    let mut materials = vec![json!({
        "uri": format!("git+{}@{}", source.repository, source.commit),
        "digest": { "gitCommit": source.commit },
    })];
    materials.extend(
        packages
            .iter()
            .map(|package| json!({ "uri": package.url(), "digest": { "sha256": package.sha256 } })),
    );
    let statement = json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subjects
            .iter()
            .map(|(name, sha256)| json!({ "name": name, "digest": { "sha256": sha256 } }))
            .collect::<Vec<Value>>(),
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {
                    "command": "cargo xtask release",
                    "source": { "repository": source.repository, "commit": source.commit },
                },
                "internalParameters": { "tools": builder.tools },
                "resolvedDependencies": materials,
            },
            "runDetails": { "builder": { "id": builder.id } },
        },
    });
    let mut text = serde_json::to_vec_pretty(&statement).context("writing the provenance")?;
    text.push(b'\n');
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packages::parse;

    #[test]
    fn statement_names_the_commit_the_packages_the_tools_and_every_file() {
        let source = Source::example();
        let packages = parse(&format!("amd64 libc6 2.36 {}", "ab".repeat(32))).unwrap();
        let subjects =
            BTreeMap::from([("image".to_owned(), "cd".repeat(32)), ("chart".to_owned(), "ef".repeat(32))]);
        let tools = BTreeMap::from([("rustc", "rustc 1".to_owned())]);
        let builder = Builder { id: "https://example.com/builder", tools: &tools };
        let text = statement(&source, &subjects, &packages, &builder).unwrap();
        let statement: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(
            statement["subject"][0],
            json!({ "name": "chart", "digest": { "sha256": "ef".repeat(32) } })
        );
        assert_eq!(statement["subject"][1]["name"], "image");
        let predicate = &statement["predicate"];
        let definition = &predicate["buildDefinition"];
        assert_eq!(definition["externalParameters"]["source"]["commit"], source.commit);
        assert_eq!(definition["internalParameters"]["tools"]["rustc"], "rustc 1");
        let materials = definition["resolvedDependencies"].as_array().unwrap();
        assert_eq!(materials[0]["digest"]["gitCommit"], source.commit);
        assert_eq!(materials[1]["uri"], "pkg:deb/debian/libc6@2.36?arch=amd64");
        assert_eq!(predicate["runDetails"]["builder"]["id"], "https://example.com/builder");
    }
}
