//! Annotated pods that get a claim (DRA) in place of GPUs of the extender, in the namespaces that the administrator names.
//!
//! The webhook replaces the annotations by the name of a template, and records them in one annotation. Owner references need the pod's uid,
//! which a pod does not have before the API server stores it, so the extender creates the template afterwards, from the record. The name is
//! a hash of the record: equal pods of a namespace share a template, and both sides derive it alone.

mod keeper;
mod template;
#[cfg(test)]
mod tests;

pub(crate) use keeper::keep_templates;
pub(crate) use template::{claim_spec, record, template_name};

/// Label of the translated pods.
pub(crate) const LABEL: &str = "gpu.sluice.dev/translated";
/// Annotation with the annotations that were translated, as JSON.
pub(crate) const RECORD: &str = "gpu.sluice.dev/annotations";
/// The claim's name in the pod.
pub(crate) const CLAIM: &str = "sluice";

/// The namespaces whose annotated pods get claims.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClaimNamespaces(Vec<String>);

/// A comma-separated list; it may be empty.
impl From<&str> for ClaimNamespaces {
    fn from(list: &str) -> Self {
        let names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
        Self(names.map(str::to_owned).collect())
    }
}

impl ClaimNamespaces {
    pub(crate) fn contains(&self, namespace: &str) -> bool {
        self.0.iter().any(|name| name == namespace)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
