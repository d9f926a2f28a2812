//! Writes a request as annotations: the oracle of the round-trip tests and of the fuzz target `gpu_request`.

use std::collections::BTreeMap;

use sluice_units::Share;

use super::{Amount, GpuRequest, keys};

impl GpuRequest {
    /// Annotations that read back as this request.
    #[must_use]
    pub fn to_annotations(&self) -> BTreeMap<String, String> {
        let mut map = BTreeMap::from([(keys::PRIORITY, self.priority.name().to_owned())]);
        match self.demand.amount {
            Amount::Share(Share::ZERO) => None,
            Amount::Share(quota) => map.insert(keys::QUOTA, quota.to_string()),
            Amount::Whole(gpus) => map.insert(keys::QUOTA, gpus.to_string()),
        };
        if self.limit < Share::ONE {
            map.insert(keys::LIMIT, self.limit.to_string());
        }
        let lists = [
            (keys::GPU_MODEL, &self.demand.models),
            (keys::GPU_UUID, &self.demand.uuids),
            (keys::CONTAINER, &self.containers),
        ];
        for (key, names) in lists.into_iter().filter(|(_, names)| !names.is_empty()) {
            map.insert(key, names.join(","));
        }
        if let Some(bytes) = self.demand.memory_bytes {
            map.insert(keys::MEMORY, bytes.to_string());
        }
        if let Some(ns) = self.slo_ns {
            map.insert(keys::SLO, format!("{ns}ns"));
        }
        if let Some((name, size)) = &self.gang {
            map.insert(keys::GANG, name.clone());
            map.insert(keys::GANG_SIZE, size.to_string());
        }
        map.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }
}
