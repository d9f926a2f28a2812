use super::*;
use proptest::prelude::*;

const UID: &str = "0b6b5d2c-6a4e-4f0b-9d7e-3f1c2a5b7d90";
const ID: &str = "4f2a9c61d7e8b3054f2a9c61d7e8b3054f2a9c61d7e8b3054f2a9c61d7e8b305";
const OTHER: &str = "11111111-2222-3333-4444-555555555555";

fn underscored(uid: &str) -> String {
    uid.replace('-', "_")
}

fn in_container(uid: &str) -> Result<PodCgroup, NoPod> {
    Ok(PodCgroup { uid: uid.to_owned(), container: Some(ID.to_owned()) })
}

/// Paths below which a process of container ID of pod UID is.
fn layouts() -> Vec<(&'static str, String)> {
    let systemd = underscored(UID);
    let docker = "9".repeat(64);
    vec![
        ("cgroupfs, guaranteed", format!("/kubepods/pod{UID}/{ID}")),
        ("cgroupfs, burstable", format!("/kubepods/burstable/pod{UID}/{ID}")),
        ("cgroupfs, best-effort", format!("/kubepods/besteffort/pod{UID}/{ID}")),
        ("cgroupfs, CRI-O", format!("/kubepods/burstable/pod{UID}/crio-{ID}")),
        ("cgroupfs, kind", format!("/docker/{docker}/kubelet/kubepods/burstable/pod{UID}/{ID}")),
        ("cgroupfs, kind on systemd", format!("/system.slice/docker-{docker}.scope/kubepods/pod{UID}/{ID}")),
        (
            "systemd, guaranteed",
            format!("/kubepods.slice/kubepods-pod{systemd}.slice/cri-containerd-{ID}.scope"),
        ),
        (
            "systemd, containerd",
            format!(
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{systemd}.slice/cri-containerd-{ID}.scope"
            ),
        ),
        (
            "systemd, CRI-O with its cgroup below",
            format!(
                "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{systemd}.slice/crio-{ID}.scope/container"
            ),
        ),
        (
            "systemd, Docker",
            format!(
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{systemd}.slice/docker-{ID}.scope"
            ),
        ),
        (
            "systemd, kind",
            format!(
                "/system.slice/docker-{docker}.scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod{systemd}.slice/cri-containerd-{ID}.scope"
            ),
        ),
        (
            "systemd in kubelet only",
            format!(
                "/system.slice/containerd.service/kubepods-burstable-pod{systemd}.slice:cri-containerd:{ID}"
            ),
        ),
        ("private namespace, cgroupfs, same class", format!("/../../pod{UID}/{ID}")),
        ("private namespace, cgroupfs, other class", format!("/../../../besteffort/pod{UID}/{ID}")),
        ("private namespace, cgroupfs, whole", format!("/../../../../kubepods/burstable/pod{UID}/{ID}")),
        (
            "private namespace, systemd, same class",
            format!("/../../kubepods-burstable-pod{systemd}.slice/cri-containerd-{ID}.scope"),
        ),
        (
            "private namespace, systemd, other class",
            format!(
                "/../../../kubepods-besteffort.slice/kubepods-besteffort-pod{systemd}.slice/crio-{ID}.scope"
            ),
        ),
    ]
}

/// Names of cgroups that a tenant could make below its own.
fn forged() -> Vec<String> {
    let systemd = underscored(OTHER);
    vec![
        format!("pod{OTHER}/{ID}"),
        format!("kubepods/burstable/pod{OTHER}/{ID}"),
        format!("kubepods.slice/kubepods-pod{systemd}.slice/cri-containerd-{ID}.scope"),
        format!("kubepods-burstable-pod{systemd}.slice:cri-containerd:{ID}"),
        "user.slice".to_owned(),
        format!("a b:c\u{1b}[31m/pod{OTHER}"),
    ]
}

#[test]
fn every_known_layout_is_read_on_v2_and_on_v1() {
    for (name, path) in layouts() {
        assert_eq!(pod_of(&format!("0::{path}\n")), in_container(UID), "{name}: {path}");
        let v1 = format!("12:memory:{path}\n11:cpu,cpuacct:{path}\n1:name=systemd:{path}\n0::/\n");
        assert_eq!(pod_of(&v1), in_container(UID), "{name}, hybrid");
    }
}

#[test]
fn cgroups_below_the_containers_change_nothing() {
    for (name, path) in layouts() {
        for below in forged() {
            let text = format!("0::{path}/{below}\n");
            assert_eq!(pod_of(&text), in_container(UID), "{name}: {text}");
        }
    }
}

#[test]
fn uid_of_a_static_pod_has_no_dashes() {
    let uid = "9c2e1f0a7b6d5c4e3f2a1b0c9d8e7f6a";
    for text in [
        format!("0::/kubepods/burstable/pod{uid}/{ID}"),
        format!(
            "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid}.slice/crio-{ID}.scope"
        ),
    ] {
        assert_eq!(pod_of(&text), in_container(uid), "{text}");
    }
}

#[test]
fn process_in_a_pods_cgroup_outside_containers_has_only_the_pod() {
    for rest in ["", "/", "/crio-conmon-".to_owned().as_str()] {
        let rest = if rest.ends_with('-') { format!("{rest}{ID}.scope") } else { rest.to_owned() };
        let found = pod_of(&format!("0::/kubepods/pod{UID}{rest}"));
        assert_eq!(found, Ok(PodCgroup { uid: UID.to_owned(), container: None }), "{rest}");
    }
}

#[test]
fn process_outside_pods_is_refused_with_its_path() {
    for path in
        ["/", "/user.slice/user-0.slice/session-1.scope", "/system.slice/sshd.service", "/../..", "/kubepods"]
    {
        assert_eq!(pod_of(&format!("0::{path}\n")), Err(NoPod::Outside(path.to_owned())));
    }
    // A name that is not exactly a pod's is none.
    for name in ["pod1234", "podman-77", &format!("pod{}", UID.to_uppercase()), &format!("xpod{UID}")] {
        assert!(matches!(pod_of(&format!("0::/kubepods/{name}/{ID}")), Err(NoPod::Outside(_))), "{name}");
    }
}

#[test]
fn pod_component_in_the_wrong_place_is_refused() {
    let systemd = underscored(UID);
    for path in [
        format!("/pod{UID}/{ID}"),
        format!("/burstable/pod{UID}/{ID}"),
        format!("/system.slice/pod{UID}/{ID}"),
        format!("/user.slice/user-7.slice/user@7.service/kubepods/burstable/pod{UID}/{ID}"),
        format!("/user.slice/kubepods-pod{systemd}.slice:cri-containerd:{ID}"),
        format!("/kubepods-burstable-pod{systemd}.slice/crio-{ID}.scope"),
        format!("/kubepods.slice/kubepods-burstable-pod{systemd}.slice/crio-{ID}.scope"),
        format!("/evil.slice/evil-pod{systemd}.slice/crio-{ID}.scope"),
        format!("/../../mine/pod{UID}/{ID}"),
    ] {
        assert_eq!(pod_of(&format!("0::{path}")), Err(NoPod::Misplaced(path.clone())));
    }
}

#[test]
fn hierarchies_that_contradict_each_other_are_refused() {
    let text = format!("2:memory:/kubepods/pod{UID}/{ID}\n1:cpu:/kubepods/pod{OTHER}/{ID}\n");
    let error = pod_of(&text).unwrap_err();
    assert!(matches!(error, NoPod::Conflict(..)), "{error}");
    assert!(error.to_string().contains(UID) && error.to_string().contains(OTHER), "{error}");
    let text = format!("2:memory:/kubepods/pod{UID}/{ID}\n1:cpu:/kubepods/pod{UID}/{}\n", "e".repeat(64));
    assert!(matches!(pod_of(&text), Err(NoPod::Conflict(..))));
    // One that has only the pod does not contradict.
    let text = format!("2:memory:/kubepods/pod{UID}\n1:cpu:/kubepods/pod{UID}/{ID}\n");
    assert_eq!(pod_of(&text), in_container(UID));
    // One bad line spoils it all, wherever it stands.
    for bad in ["0::relative", "nonsense", "", "5:cpu"] {
        let text = format!("2:memory:/kubepods/pod{UID}/{ID}\n{bad}\n");
        assert_eq!(pod_of(&text), Err(NoPod::Malformed(bad.to_owned())));
    }
    assert!(matches!(pod_of(""), Err(NoPod::Malformed(_))));
}

#[test]
fn messages_quote_names_of_tenants_and_stay_short() {
    let long = format!("/\u{1b}[31m{}", "x".repeat(4000));
    let text = pod_of(&format!("0::{long}")).unwrap_err().to_string();
    assert!(!text.contains('\u{1b}') && text.chars().count() < 400, "{text}");
}

/// Components that mean something here or almost do, and arbitrary ones.
fn any_component() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("..".to_owned()),
        Just("kubepods".to_owned()),
        Just("burstable".to_owned()),
        Just("kubepods.slice".to_owned()),
        Just(format!("pod{OTHER}")),
        Just(format!("kubepods-pod{}.slice", underscored(OTHER))),
        Just(format!("cri-containerd-{ID}.scope")),
        Just("user.slice".to_owned()),
        "[^/\n]{0,20}",
    ]
}

proptest! {
    #[test]
    fn components_below_a_container_never_count(
        layout in 0usize..17,
        below in prop::collection::vec(any_component(), 0..8),
    ) {
        let (_, path) = &layouts()[layout];
        prop_assert_eq!(pod_of(&format!("0::{path}/{}", below.join("/"))), in_container(UID));
    }

    #[test]
    fn any_text_is_read_without_panic(text in "[^\u{0}]{0,400}") {
        if let Ok(pod) = pod_of(&text) {
            prop_assert!(text.contains(&pod.uid) || text.contains(&underscored(&pod.uid)));
        }
    }

    #[test]
    fn any_path_of_pod_like_components_names_the_outermost_pod_or_none(
        parts in prop::collection::vec(any_component(), 0..8),
    ) {
        let path = format!("/{}/kubepods/pod{UID}/{ID}", parts.join("/"));
        let first_is_other = parts.iter().any(|part| part.contains("pod1111") || part.contains("pod11111111"));
        match pod_of(&format!("0::{path}")) {
            Ok(pod) => prop_assert_eq!(pod.uid == OTHER, first_is_other),
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }
}
