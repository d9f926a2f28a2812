//! `cargo xtask release FOLDER`: makes a release of the commit that is checked out.
//!
//! The folder then has the image for all platforms and the chart, both as OCI layouts, the chart's archive, the bill of materials, the
//! provenance and the checksums. Two builds of one commit have the same bytes, whatever the folder, the user and the time:
//! `tests/release/run` compares them.
#![forbid(unsafe_code)]

mod archive;
mod bill_of_materials;
mod chart;
mod checksums;
mod command;
mod digest;
mod image;
mod layout;
mod packages;
mod platform;
mod programs;
mod provenance;
mod release;
mod source;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// The builder in the provenance if none is stated.
const UNSTATED_BUILDER: &str =
    "https://github.com/sluice-gpu/sluice/blob/main/docs/operators/image.md#a-local-build";

/// Makes a release of the commit that is checked out: image, chart, bill of materials, provenance, checksums.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask release", version)]
struct Arguments {
    /// The folder for the release; it must be empty or absent.
    folder: PathBuf,
    /// The URI of the machine or service that runs this build, for the provenance.
    #[arg(long, default_value = UNSTATED_BUILDER)]
    builder: String,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match release::make(&arguments.folder, &arguments.builder) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("release: {error:#}");
            ExitCode::FAILURE
        }
    }
}
