use super::*;
use crate::peer::{Peer, Place};
use sluice_comm::Name;
use sluice_sys::socket::PeerCredentials;

fn identify(pid: i32, cgroup: Option<&str>) -> Result<Identity, Refusal> {
    let place = cgroup.map(|cgroup| Place { command: "python\u{1b}3".into(), cgroup: cgroup.to_owned() });
    let credentials = PeerCredentials { pid, uid: 0, gid: 0 };
    let peer = Peer { credentials, started: Some(1), pidfd: None, place };
    let name = Name::new("kube-system/admin").unwrap();
    ByCgroup.identify(&Claim { name: &name, peer: Some(&peer) })
}

#[test]
fn cgroup_decides_and_not_the_claimed_name() {
    let uid = "0b6b5d2c-6a4e-4f0b-9d7e-3f1c2a5b7d90";
    match identify(7, Some(&format!("0::/kubepods/pod{uid}/{}\n", "a".repeat(64)))) {
        Ok(Identity::Pod(pod)) => {
            assert_eq!((pod.uid, pod.container), (uid.into(), Some("a".repeat(64))))
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn refusal_names_the_cgroup_or_asks_for_the_host_pid_namespace() {
    let refusal = identify(1234, Some("0::/system.slice/ssh.service\n")).unwrap_err().to_string();
    assert_eq!(
        refusal,
        "process 1234 (\"python\\u{1b}3\") is in no pod: its cgroup is \"/system.slice/ssh.service\""
    );
    assert!(identify(0, None).unwrap_err().to_string().contains("hostPID"));
}
