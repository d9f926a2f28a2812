//! Tables of gangs of GPUs that this node no longer has. A manager replaces the table of its own GPU.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use tracing::{info, warn};

/// Removes the tables in a folder that belong to none of these GPUs: `<gpu-uuid>.json`, and `<gpu-uuid>.new` of a manager that was killed
/// while it wrote. Other managers would keep slots for clients of that GPU.
pub(super) fn remove(folder: &Path, gpus: &BTreeSet<String>) {
    for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        let is_table = path.extension().is_some_and(|ending| ending == "json" || ending == "new");
        let is_known = path.file_stem().and_then(|gpu| gpu.to_str()).is_some_and(|gpu| gpus.contains(gpu));
        if !is_table || is_known {
            continue;
        }
        match fs::remove_file(&path) {
            Ok(()) => info!(table = %path.display(), "removed the table of a GPU that is gone"),
            Err(why) => warn!(table = %path.display(), %why, "cannot remove the table of a GPU that is gone"),
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_tables_of_other_gpus_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let files = ["GPU-1.json", "GPU-1.new", "GPU-2.json", "GPU-2.new", "notes.txt"];
        files.iter().for_each(|name| std::fs::write(folder.path().join(name), "").unwrap());
        super::remove(folder.path(), &["GPU-1".to_owned()].into());
        let left = files.iter().filter(|name| folder.path().join(name).exists());
        assert_eq!(left.copied().collect::<Vec<_>>(), ["GPU-1.json", "GPU-1.new", "notes.txt"]);
    }
}
