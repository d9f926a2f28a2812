//! Compiles the C programs in `programs/`, each once per content and kind of linking.

use crate::artifacts;
use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a program may include of another folder.
const ESCAPES: [&str; 2] = ["../../escapes/programs/escape.h", "../../escapes/programs/own_ioctls.c"];

/// How a program gets at the CUDA driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Linking {
    /// Linked against `libcuda.so.1`, which the loader brings in at start.
    LoadTime,
    /// Linked against nothing of CUDA; it opens the library itself.
    Late,
    /// A shared library for others to load.
    Library,
    /// One of the programs in `examples/reef`, in C++, linked against `libcudareef.so`.
    Reef,
}

/// The executable (or library) made from `programs/NAME.c`, or of [`Linking::Reef`] from `examples/reef/NAME.cpp`, compiled if it is not there yet. `with` names further
/// libraries of this kind that it is linked against.
///
/// # Panics
/// When `cc` is missing or refuses the program.
pub fn compiled(name: &str, linking: Linking, with: &[&Path]) -> PathBuf {
    let artifacts = artifacts::built();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let headers = root.join("../../hook/include");
    let is_reef = linking == Linking::Reef;
    let sources = if is_reef { root.join("../../examples/reef") } else { root.join("programs") };
    let source = sources.join(format!("{name}.{}", if is_reef { "cpp" } else { "c" }));
    let beside: &[&str] = if is_reef {
        &["check.h", "driver.h", "work_kernel.h"]
    } else {
        &["common.h", "cu.h", "kernels.h", "memory.h", "preempt.h", ESCAPES[0], ESCAPES[1]]
    };
    let mut hasher = DefaultHasher::new();
    (linking, with).hash(&mut hasher);
    let beside = beside.iter().map(|file| sources.join(file));
    let of_ours = ["sluice.h", "reef.h"].map(|file| headers.join(file));
    for path in std::iter::once(source.clone()).chain(beside).chain(of_ours) {
        let text = fs::read(&path).unwrap_or_else(|error| panic!("reading {}: {error}", path.display()));
        text.hash(&mut hasher);
    }
    let suffix = if linking == Linking::Library { ".so" } else { "" };
    let directory = artifacts.scratch.join("programs").join(format!("{:016x}", hasher.finish()));
    let finished = directory.join(format!("{}{name}{suffix}", if suffix.is_empty() { "" } else { "lib" }));
    if finished.exists() {
        return finished;
    }
    fs::create_dir_all(&directory)
        .unwrap_or_else(|error| panic!("creating {}: {error}", directory.display()));
    // Compiled beside its place and moved there, so that tests running at the same time do not see half of it.
    let unique = tempfile::Builder::new().prefix(name).tempfile_in(&directory);
    // Only its name is kept: a program that any process has open for writing cannot be executed.
    let unique = unique.unwrap_or_else(|error| panic!("making room in {}: {error}", directory.display()));
    let unique = unique.into_temp_path();
    let mut cc = Command::new(if is_reef { "c++" } else { "cc" });
    cc.arg(if is_reef { "-std=c++17" } else { "-std=gnu11" });
    cc.args(["-O1", "-g", "-pthread", "-Wall", "-Wextra", "-Wno-missing-field-initializers", "-I"])
        .arg(&headers);
    cc.arg("-iquote").arg(&sources);
    cc.arg("-o").arg(&unique).arg(&source);
    cc.args(with);
    for library in with {
        cc.arg(format!("-Wl,-rpath,{}", library.parent().unwrap_or(Path::new(".")).display()));
    }
    match linking {
        Linking::LoadTime => cc.arg("-L").arg(&artifacts.driver).arg("-l:libcuda.so.1").arg("-ldl"),
        Linking::Late => cc.arg("-ldl"),
        Linking::Reef => {
            cc.arg("-L").arg(&artifacts.reef).arg("-lcudareef").arg("-L").arg(&artifacts.driver).arg("-lcuda")
        }
        Linking::Library => cc.args(["-shared", "-fPIC", "-ldl"]).arg(format!("-Wl,-soname,lib{name}.so")),
    };
    let output = cc.output().unwrap_or_else(|error| panic!("running {cc:?}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{cc:?} failed:\n{errors}");
    unique.persist(&finished).unwrap_or_else(|error| panic!("placing {}: {error}", finished.display()));
    finished
}
