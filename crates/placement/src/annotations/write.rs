//! Writes a request as annotations: the oracle of the round-trip tests and of the fuzz target `gpu_request`.

use std::collections::BTreeMap;

use sluice_units::Share;

use super::{GpuRequest, keys};

impl GpuRequest {
    /// Annotations that read back as this request.
    #[must_use]
    pub fn to_annotations(&self) -> BTreeMap<String, String> {
        let mut map = BTreeMap::from([(keys::PRIORITY, self.class.name().to_owned())]);
        match self.demand.share {
            Share::ONE if self.demand.is_whole() => map.insert(keys::QUOTA, self.demand.gpus.to_string()),
            share => {
                if share > Share::ZERO {
                    map.insert(keys::QUOTA, share.to_string());
                }
                map.insert(keys::GPUS, self.demand.gpus.to_string())
            }
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
        for (key, is_set) in
            [(keys::MEMORY_OVERCOMMIT, self.demand.overcommits), (keys::SUSPEND, self.suspended)]
        {
            if is_set {
                map.insert(key, "true".to_owned());
            }
        }
        if let Some(ns) = self.slo_ns {
            map.insert(keys::SLO, format!("{ns}ns"));
        }
        if let Some(name) = &self.gang {
            map.insert(keys::GANG, name.clone());
        }
        map.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }
}
