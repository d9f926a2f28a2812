//! RuntimeClasses whose containers run in a sandbox with a kernel of its own, such as gVisor and Kata.
//!
//! The host does not see a sandbox's processes, so a pod-manager cannot identify them, and the sockets of the host are not
//! reachable from inside by default. Such a pod would get a GPU without limits.

use crate::annotations::Mistake;

/// The usual names of gVisor's and Kata's classes.
pub const DEFAULT: &str = "gvisor,runsc,kata,kata-*";

/// Names of RuntimeClasses; a `*` at the end stands for any rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxRuntimeClasses(Vec<String>);

/// A comma-separated list; it may be empty.
impl From<&str> for SandboxRuntimeClasses {
    fn from(list: &str) -> Self {
        let names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
        Self(names.map(str::to_owned).collect())
    }
}

impl SandboxRuntimeClasses {
    /// The mistake of a pod that names one of these classes.
    #[must_use]
    pub fn mistake(&self, class: Option<&str>) -> Option<Mistake> {
        let class = class?;
        let is_it = |name: &String| match name.strip_suffix('*') {
            Some(start) => class.starts_with(start),
            None => class == name,
        };
        self.0.iter().any(is_it).then(|| {
            let allowed = format!(
                "a RuntimeClass whose containers share the node's kernel, or nothing: a sandbox ({}) hides the pod's \
                 processes from Sluice, so its share and memory would have no limits",
                self.0.join(", ")
            );
            Mistake::new("spec.runtimeClassName", class, allowed)
        })
    }
}
