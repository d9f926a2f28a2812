//! The pod of a process, read from the text of its /proc/PID/cgroup.
//!
//! Kubelet puts every container below a cgroup of its pod, and the container runtime puts every process of the
//! container below that one of the container. Children, `kubectl exec` and processes with a cleared environment are
//! there, too. A tenant can only make cgroups *below* its own, under any name. Therefore the outermost component that
//! looks like a pod decides, and components behind the container's are ignored. (The kernel refuses names with a line
//! feed, so no tenant can forge a line.)
//!
//! Known layouts, on cgroup v1 (a line per hierarchy), v2 (one line, `0::`) and both at once:
//!
//! ```text
//! cgroupfs  …/kubepods[/burstable|/besteffort]/pod<uid>/<container>
//! systemd   …/[x-]kubepods.slice[/…-burstable.slice]/…-pod<uid with _>.slice/<runtime>-<container>.scope
//! systemd driver in kubelet only   …/kubepods-burstable-pod<uid with _>.slice:<runtime>:<container>
//! seen from a private cgroup namespace   /../../[burstable/]pod<uid>/<container>
//! ```

#[cfg(test)]
mod tests;

use std::fmt;

/// The pod and container of a process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PodCgroup {
    /// The pod's uid: as the API has it (`metadata.uid`), or 32 hex digits for a static pod (its config hash).
    pub uid: String,
    /// The container's id, without the runtime's name; `None` if the process is in the pod's cgroup but in no
    /// container's.
    pub container: Option<String>,
}

/// The reason why a process is in no pod. Paths are quoted: a tenant may have named its part of them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPod {
    /// No line names a pod: the longest path that there was.
    #[error("its cgroup is {:?}", Shortened(.0))]
    Outside(String),
    /// A component of this path looks like a pod but is not where kubelet puts pods.
    #[error("its cgroup {:?} looks like a pod's but is not where kubelet puts pods", Shortened(.0))]
    Misplaced(String),
    /// Two hierarchies name different pods or containers.
    #[error("its cgroups contradict each other: {0} in one hierarchy, {1} in another")]
    Conflict(Box<PodCgroup>, Box<PodCgroup>),
    /// This line is not `ID:CONTROLLERS:/PATH`, or there is none.
    #[error("its cgroup is not to be read: {:?}", Shortened(.0))]
    Malformed(String),
}

/// The pod that the whole text of a /proc/PID/cgroup names.
/// Errors: the reason why it names none. Every hierarchy that names a pod must name the same one.
pub fn pod_of(text: &str) -> Result<PodCgroup, NoPod> {
    let mut found: Option<PodCgroup> = None;
    let mut longest = "";
    for line in text.lines() {
        let path = path_of(line).ok_or_else(|| NoPod::Malformed(line.to_owned()))?;
        longest = if path.len() > longest.len() { path } else { longest };
        let Some(pod) = pod_in(path)? else { continue };
        found = Some(match found {
            None => pod,
            Some(first) => combined(first, pod)?,
        });
    }
    match found {
        Some(pod) => Ok(pod),
        None if longest.is_empty() => Err(NoPod::Malformed(String::new())),
        None => Err(NoPod::Outside(longest.to_owned())),
    }
}

/// The third field of a line; paths may contain colons.
fn path_of(line: &str) -> Option<&str> {
    let path = line.splitn(3, ':').nth(2).filter(|path| path.starts_with('/'))?;
    // The kernel appends this for a process that has ended and whose cgroup was removed.
    Some(path.strip_suffix(" (deleted)").unwrap_or(path))
}

/// The pod of one path; `None` if no component looks like one.
fn pod_in(path: &str) -> Result<Option<PodCgroup>, NoPod> {
    let mut components: Vec<&str> = path.split('/').filter(|component| !component.is_empty()).collect();
    let parents = components.iter().take_while(|component| **component == "..").count();
    components.drain(..parents);
    let like = components.iter().enumerate().find_map(|(at, text)| Some((at, PodComponent::read(text)?)));
    let Some((at, pod)) = like else { return Ok(None) };
    let (above, below) = components.split_at(at);
    if !pod.belongs_below(above, parents > 0) {
        return Err(NoPod::Misplaced(path.to_owned()));
    }
    let container = pod.container().or_else(|| container(below.get(1)?));
    Ok(Some(PodCgroup { container: container.map(str::to_owned), uid: pod.uid }))
}

/// Combines two hierarchies. Only one of them may name a container.
fn combined(first: PodCgroup, second: PodCgroup) -> Result<PodCgroup, NoPod> {
    let same = match (&first.container, &second.container) {
        (Some(one), Some(other)) => one == other,
        _ => true,
    };
    if !same || first.uid != second.uid {
        return Err(NoPod::Conflict(Box::new(first), Box::new(second)));
    }
    Ok(PodCgroup { container: first.container.or(second.container), ..first })
}

impl fmt::Display for PodCgroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pod {} container {}", self.uid, self.container.as_deref().unwrap_or("(none)"))
    }
}

/// At most 256 characters of a text whose length a tenant controls.
struct Shortened<'a>(&'a str);

impl fmt::Debug for Shortened<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MAX_CHARS: usize = 256;
        match self.0.char_indices().nth(MAX_CHARS) {
            Some((end, _)) => write!(f, "{:?}…", self.0.get(..end).unwrap_or_default()),
            None => write!(f, "{:?}", self.0),
        }
    }
}

/// A component that names a pod, in one of kubelet's three ways: `pod<uid>` (cgroupfs driver), `<parent>-pod<uid with _>.slice`
/// (systemd driver), or `<slice>:<runtime>:<container>` (kubelet names systemd slices and the runtime uses them as folders).
#[derive(Clone, Debug, PartialEq, Eq)]
struct PodComponent<'a> {
    /// The uid as the API writes it.
    uid: String,
    /// The part of a slice's name before `-pod`; `None`: not named by the systemd driver.
    parent: Option<&'a str>,
    /// What follows the first colon.
    rest: Option<&'a str>,
}

impl<'a> PodComponent<'a> {
    /// Reads a component, if it looks like a pod's.
    fn read(text: &'a str) -> Option<Self> {
        if let Some(uid) = text.strip_prefix("pod").filter(|uid| is_uid(uid, '-')) {
            return Some(Self { uid: uid.to_owned(), parent: None, rest: None });
        }
        let (slice, rest) = text.split_once(':').map_or((text, None), |(slice, rest)| (slice, Some(rest)));
        let (parent, uid) = slice.strip_suffix(".slice")?.rsplit_once("-pod")?;
        is_uid(uid, '_').then(|| Self { uid: uid.replace('_', "-"), parent: Some(parent), rest })
    }

    /// The container, if this component names it.
    fn container(&self) -> Option<&'a str> {
        self.rest?.split_once(':').and_then(|(_, id)| container(id))
    }

    /// Whether kubelet puts pods below these components. `relative`: the components above them are unknown, because the
    /// path begins with `..`.
    fn belongs_below(&self, above: &[&str], relative: bool) -> bool {
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
fn container(text: &str) -> Option<&str> {
    let stem = text.strip_suffix(".scope").unwrap_or(text);
    let (runtime, id) = stem.rsplit_once('-').unwrap_or(("", stem));
    let is_id =
        (32..=64).contains(&id.len()) && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    // CRI-O's monitor of a container is none of its processes.
    (is_id && runtime != "crio-conmon").then_some(id)
}
