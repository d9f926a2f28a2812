//! The set of clients that the node agent sends, checked: all mistakes of a request are named at once.

use crate::definition::{ClientKey, Definition};
use sluice_core::ledger::{Class, ClientSpec};
use sluice_core::share::{Share, WHOLE_PPM};
use sluice_proto::control::{Class as ClassWord, Client, SetClientsRequest};
use std::collections::HashSet;

/// A set of clients that is older than the one in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outdated {
    pub(crate) in_force: u64,
}

/// The longest names that the API server accepts.
const MAX_UID: usize = 128;
const MAX_NAMESPACE: usize = 63;
const MAX_POD: usize = 253;
const MAX_GANG: usize = 63;

/// A valid set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientSet {
    pub(crate) generation: u64,
    pub(crate) agent_instance: String,
    pub(crate) clients: Vec<Definition>,
}

impl ClientSet {
    /// Checks a request.
    pub(crate) fn read(request: SetClientsRequest) -> Result<Self, String> {
        let mut mistakes = Vec::new();
        if request.agent_instance.is_empty() {
            mistakes.push("agent_instance is empty".to_owned());
        }
        let mut uids = HashSet::new();
        let mut clients = Vec::with_capacity(request.clients.len());
        let mut promised = 0_u64;
        for (at, client) in request.clients.into_iter().enumerate() {
            if !client.pod_uid.is_empty() && !uids.insert(client.pod_uid.clone()) {
                mistakes.push(format!("{}.pod_uid is there a second time", place(at, &client)));
            }
            promised += u64::from(client.quota_ppm.min(WHOLE_PPM));
            clients.extend(definition(at, client, &mut mistakes));
        }
        if promised > u64::from(WHOLE_PPM) {
            mistakes.push(format!("quota_ppm of all clients adds up to {promised}, more than one GPU"));
        }
        if !mistakes.is_empty() {
            return Err(mistakes.join("; "));
        }
        Ok(Self { generation: request.generation, agent_instance: request.agent_instance, clients })
    }
}

/// How a mistake names a client.
fn place(at: usize, client: &Client) -> String {
    format!("clients[{at}] ({:?}/{:?})", client.namespace, client.pod)
}

fn definition(at: usize, client: Client, mistakes: &mut Vec<String>) -> Option<Definition> {
    let before = mistakes.len();
    let place = place(at, &client);
    let mut expect = |holds: bool, what: String| {
        if !holds {
            mistakes.push(format!("{place}.{what}"));
        }
    };
    // The names appear in logs and labels, so only what the API server accepts is allowed.
    let plain = |text: &str, most: usize| {
        (1..=most).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte))
    };
    for (field, text, most) in [
        ("pod_uid", &client.pod_uid, MAX_UID),
        ("namespace", &client.namespace, MAX_NAMESPACE),
        ("pod", &client.pod, MAX_POD),
    ] {
        expect(
            plain(text, most),
            format!("{field} is {text:?}, expected 1 to {most} letters, digits, dashes and dots"),
        );
    }
    let gang = Some(&client.gang).filter(|gang| !gang.is_empty());
    expect(
        gang.is_none_or(|gang| plain(gang, MAX_GANG)),
        format!(
            "gang is {:?}, expected none, or 1 to {MAX_GANG} letters, digits, dashes and dots",
            client.gang
        ),
    );
    let class = match ClassWord::try_from(client.class) {
        Ok(ClassWord::LatencyCritical) => Some(Class::LatencyCritical),
        Ok(ClassWord::High) => Some(Class::High),
        Ok(ClassWord::Normal) => Some(Class::Normal),
        Ok(ClassWord::BestEffort) => Some(Class::BestEffort),
        Ok(ClassWord::Unspecified) | Err(_) => None,
    };
    expect(
        class.is_some(),
        format!("class is {}, expected that of latency-critical, high, normal or best-effort", client.class),
    );
    let (quota, limit) = (client.quota_ppm, client.limit_ppm);
    expect(quota <= WHOLE_PPM, format!("quota_ppm is {quota}, expected at most {WHOLE_PPM}"));
    expect((1..=WHOLE_PPM).contains(&limit), format!("limit_ppm is {limit}, expected 1 to {WHOLE_PPM}"));
    expect(quota <= limit, format!("limit_ppm is {limit}, expected at least quota_ppm, {quota}"));
    expect(client.memory_bytes > 0, "memory_bytes is 0, expected more".to_owned());
    expect(
        !client.overcommit || class != Some(Class::LatencyCritical),
        "overcommit is true for a latency-critical client, expected false: its memory never leaves the GPU"
            .to_owned(),
    );
    if mistakes.len() > before {
        return None;
    }
    let spec = ClientSpec { request: Share::from_ppm(quota)?, limit: Share::from_ppm(limit)?, class: class? };
    let gang = Some(client.gang).filter(|gang| !gang.is_empty());
    let key = ClientKey::Pod { uid: client.pod_uid, namespace: client.namespace, name: client.pod };
    Some(Definition {
        key,
        spec,
        memory: client.memory_bytes,
        slo_ns: client.slo_ns,
        overcommit: client.overcommit,
        suspended: client.suspended,
        gang,
    })
}

#[cfg(test)]
mod tests;
