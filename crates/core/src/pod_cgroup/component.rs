//! Components of a cgroup path: which look like a pod's or a container's, and where a pod's component may stand.

/// A component that names a pod, in one of kubelet's three ways: `pod<uid>` (cgroupfs driver), `<parent>-pod<uid with _>.slice`
/// (systemd driver), or `<slice>:<runtime>:<container>` (kubelet names systemd slices and the runtime uses them as folders).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PodComponent<'a> {
    /// The uid as the API writes it.
    pub(super) uid: String,
    /// The part of a slice's name before `-pod`; `None`: not named by the systemd driver.
    parent: Option<&'a str>,
    /// What follows the first colon.
    rest: Option<&'a str>,
}

impl<'a> PodComponent<'a> {
    /// Reads a component, if it looks like a pod's.
    pub(super) fn read(text: &'a str) -> Option<Self> {
        if let Some(uid) = text.strip_prefix("pod").filter(|uid| is_uid(uid, '-')) {
            return Some(Self { uid: uid.to_owned(), parent: None, rest: None });
        }
        let (slice, rest) = text.split_once(':').map_or((text, None), |(slice, rest)| (slice, Some(rest)));
        let (parent, uid) = slice.strip_suffix(".slice")?.rsplit_once("-pod")?;
        is_uid(uid, '_').then(|| Self { uid: uid.replace('_', "-"), parent: Some(parent), rest })
    }

    /// The container, if this component names it.
    pub(super) fn container(&self) -> Option<&'a str> {
        self.rest?.split_once(':').and_then(|(_, id)| container(id))
    }

    /// Whether kubelet puts pods below these components. `relative`: the components above them are unknown, because the
    /// path begins with `..`.
    pub(super) fn belongs_below(&self, above: &[&str], relative: bool) -> bool {
        // systemd lets users make any cgroup there.
        if above.contains(&"user.slice") {
            return false;
        }
        let Some(parent) = self.parent else {
            let kubepods = match above {
                [front @ .., "burstable" | "besteffort"] => front,
                front => front,
            };
            return kubepods.last().map_or(relative, |last| *last == "kubepods");
        };
        let is_below_parent =
            || above.last().map_or(relative, |last| last.strip_suffix(".slice") == Some(parent));
        is_kubepods(parent) && (self.rest.is_some() || is_below_parent())
    }
}

/// Whether kubelet's systemd driver keeps pods in a slice: `kubepods` or a class of it, possibly below the slices of
/// kubelet's configured root.
fn is_kubepods(slice: &str) -> bool {
    let class = ["-burstable", "-besteffort"].iter().find_map(|class| slice.strip_suffix(class));
    let root = class.unwrap_or(slice);
    root == "kubepods" || root.ends_with("-kubepods")
}

/// A uid as the API makes it, with `dash` between its groups, or a static pod's hash.
fn is_uid(text: &str, dash: char) -> bool {
    let hex = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let groups: Vec<&str> = text.split(dash).collect();
    let lengths: Vec<usize> = groups.iter().map(|group| group.len()).collect();
    (lengths == [8, 4, 4, 4, 12] || lengths == [32]) && groups.iter().all(|group| hex(group))
}

/// The container's id in `<id>`, `<runtime>-<id>` or `<runtime>-<id>.scope`.
pub(super) fn container(text: &str) -> Option<&str> {
    let stem = text.strip_suffix(".scope").unwrap_or(text);
    let (runtime, id) = stem.rsplit_once('-').unwrap_or(("", stem));
    let is_id =
        (32..=64).contains(&id.len()) && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    // CRI-O's monitor of a container is none of its processes.
    (is_id && runtime != "crio-conmon").then_some(id)
}
