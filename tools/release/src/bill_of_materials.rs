//! The bill of materials of the image, in CycloneDX's format: Rust's packages and Debian's.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, anyhow};
use cargo_metadata::{DependencyKind, Metadata, PackageId};
use cyclonedx_bom::external_models::uri::Purl;
use cyclonedx_bom::models::component::Classification;
use cyclonedx_bom::models::dependency::{Dependencies, Dependency};
use cyclonedx_bom::models::hash::{Hash, HashAlgorithm, HashValue, Hashes};
use cyclonedx_bom::models::license::{LicenseChoice, Licenses};
use cyclonedx_bom::models::metadata::Metadata as About;
use cyclonedx_bom::prelude::{Bom, Component, Components, DateTime, SpdxExpression};

use crate::packages::Package;
use crate::source::Source;

/// The packages whose programs are in the image.
const PROGRAMS: [&str; 2] = ["sluice-cli", "sluice-hook"];

/// A Rust package of the image.
#[derive(Debug, Default, PartialEq, Eq)]
struct Crate {
    name: String,
    version: String,
    license: Option<String>,
    /// The URLs of the packages that it is built with.
    dependencies: BTreeSet<String>,
}

/// The bill of materials as JSON. `metadata` is what cargo reports for each platform.
pub(crate) fn json(source: &Source, metadata: &[Metadata], packages: &[Package]) -> Result<Vec<u8>> {
    let mut crates = BTreeMap::new();
    for of_platform in metadata {
        collect(of_platform, &mut crates)?;
    }
    let mut json = Vec::new();
    bom(source, &crates, packages)?
        .output_as_json_v1_5(&mut json)
        .context("writing the bill of materials")?;
    json.push(b'\n');
    Ok(json)
}

/// Adds the packages that the image's programs are linked with, by their URLs. Packages that only build scripts or tests use are not in
/// the image.
fn collect(metadata: &Metadata, crates: &mut BTreeMap<String, Crate>) -> Result<()> {
    let resolve = metadata.resolve.as_ref().context("cargo reported no dependencies")?;
    let nodes: BTreeMap<&PackageId, _> = resolve.nodes.iter().map(|node| (&node.id, node)).collect();
    let url = |id: &PackageId| -> Result<String> {
        let package = &metadata.packages.iter().find(|package| package.id == *id);
        let package = package.with_context(|| format!("cargo did not describe {id}"))?;
        Ok(format!("pkg:cargo/{}@{}", package.name, package.version))
    };
    let is_program = |package: &&cargo_metadata::Package| PROGRAMS.contains(&package.name.as_str());
    let mut open: Vec<&PackageId> =
        metadata.packages.iter().filter(is_program).map(|package| &package.id).collect();
    let mut seen = BTreeSet::new();
    while let Some(id) = open.pop() {
        if !seen.insert(id) {
            continue;
        }
        let package = &metadata[id];
        let node = nodes.get(id).with_context(|| format!("cargo reported no dependencies of {id}"))?;
        let linked = node
            .deps
            .iter()
            .filter(|dependency| dependency.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal));
        let entry = crates.entry(url(id)?).or_insert_with(|| Crate {
            name: package.name.to_string(),
            version: package.version.to_string(),
            license: package.license.clone(),
            dependencies: BTreeSet::new(),
        });
        for dependency in linked {
            entry.dependencies.insert(url(&dependency.pkg)?);
            open.push(&dependency.pkg);
        }
    }
    Ok(())
}

fn bom(source: &Source, crates: &BTreeMap<String, Crate>, packages: &[Package]) -> Result<Bom> {
    let image = format!("pkg:oci/sluice@{}", source.version);
    let mut components = Vec::new();
    let mut dependencies = vec![Dependency {
        dependency_ref: image.clone(),
        dependencies: (crates.iter())
            .filter(|(_, of)| PROGRAMS.contains(&of.name.as_str()))
            .map(|(url, _)| url.clone())
            .chain(packages.iter().map(Package::url))
            .collect(),
    }];
    for (url, of) in crates {
        let mut component = Component::new(Classification::Library, &of.name, &of.version, Some(url.clone()));
        component.purl = Some(package_url(url)?);
        component.licenses = match &of.license {
            Some(license) => {
                let license = SpdxExpression::parse_lax(license.clone())
                    .map_err(|error| anyhow!("the licence '{license}' of {url}: {error}"))?;
                Some(Licenses(vec![LicenseChoice::Expression(license)]))
            }
            None => None,
        };
        components.push(component);
        let needs = of.dependencies.iter().cloned().collect();
        dependencies.push(Dependency { dependency_ref: url.clone(), dependencies: needs });
    }
    for package in packages {
        let url = package.url();
        let mut component =
            Component::new(Classification::Library, &package.name, &package.version, Some(url.clone()));
        component.purl = Some(package_url(&url)?);
        let content = HashValue(package.sha256.clone());
        component.hashes = Some(Hashes(vec![Hash { alg: HashAlgorithm::SHA_256, content }]));
        components.push(component);
    }
    let time = DateTime::try_from(source.time_text()?).context("the commit's time")?;
    Ok(Bom {
        metadata: Some(About {
            timestamp: Some(time),
            component: Some(Component::new(
                Classification::Container,
                "sluice",
                &source.version,
                Some(image),
            )),
            ..About::default()
        }),
        // A random number would be another one in each build.
        serial_number: None,
        components: Some(Components(components)),
        dependencies: Some(Dependencies(dependencies)),
        ..Bom::default()
    })
}

fn package_url(text: &str) -> Result<Purl> {
    text.parse().map_err(|()| anyhow!("'{text}' is no package URL"))
}

#[cfg(test)]
mod tests {
    use cargo_metadata::MetadataCommand;
    use cyclonedx_bom::prelude::Validate;

    use super::*;
    use crate::packages::parse;

    fn crates_of_this_workspace() -> BTreeMap<String, Crate> {
        let mut command = MetadataCommand::new();
        let metadata = command
            .manifest_path(crate::release::WORKSPACE)
            .other_options(["--locked".to_owned()])
            .exec()
            .unwrap();
        let mut crates = BTreeMap::new();
        collect(&metadata, &mut crates).unwrap();
        crates
    }

    #[test]
    fn packages_of_the_programs_are_listed_and_those_of_tests_and_tools_are_not() {
        let crates = crates_of_this_workspace();
        let has = |name: &str| crates.values().any(|of| of.name == name);
        for name in ["sluice-cli", "sluice-hook", "sluice-pod-manager", "tokio", "libc", "rustls"] {
            assert!(has(name), "{name} is missing");
        }
        for name in ["sluice-release", "sluice-devtools", "proptest", "tonic-prost-build"] {
            assert!(!has(name), "{name} is not in the image");
        }
        // A package that the programs are linked with only through others.
        let parent = crates.values().find(|of| of.name == "sluice-comm").unwrap();
        assert!(parent.dependencies.iter().all(|url| crates.contains_key(url)), "{parent:?}");
    }

    #[test]
    fn bill_is_valid_and_the_same_each_time() {
        let packages = parse(include_str!("../../../docker/packages")).unwrap();
        let crates = crates_of_this_workspace();
        let made = bom(&Source::example(), &crates, &packages).unwrap();
        let result = made.validate();
        assert!(result.passed(), "{result:?}");
        let json = || {
            let mut json = Vec::new();
            bom(&Source::example(), &crates, &packages).unwrap().output_as_json_v1_5(&mut json).unwrap();
            String::from_utf8(json).unwrap()
        };
        let text = json();
        assert_eq!(text, json());
        assert!(text.contains(&packages[0].sha256), "no digest of Debian's package");
        assert!(text.contains("2023-11-14T22:13:20Z"), "not the commit's time");
    }
}
