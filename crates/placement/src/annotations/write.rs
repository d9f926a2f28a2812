//! Writes a request as annotations: the oracle of the round-trip tests and of the fuzz target `gpu_request`.

use std::collections::BTreeMap;

use super::{Amount, GpuRequest, WHOLE_MILLI, amount, keys};

impl GpuRequest {
    /// Annotations that read back as this request.
    #[must_use]
    pub fn to_annotations(&self) -> BTreeMap<String, String> {
        let mut map = BTreeMap::from([(keys::PRIORITY, self.priority.name().to_owned())]);
        match self.amount {
            Amount::Share { quota_milli, limit_milli } => {
                if quota_milli > 0 {
                    map.insert(keys::QUOTA, amount::plain(quota_milli));
                }
                if limit_milli < WHOLE_MILLI {
                    map.insert(keys::LIMIT, amount::plain(limit_milli));
                }
            }
            Amount::Whole { gpus } => {
                map.insert(keys::QUOTA, gpus.to_string());
            }
        }
        let lists = [
            (keys::GPU_MODEL, &self.models),
            (keys::GPU_UUID, &self.uuids),
            (keys::CONTAINER, &self.containers),
        ];
        for (key, names) in lists.into_iter().filter(|(_, names)| !names.is_empty()) {
            map.insert(key, names.join(","));
        }
        if let Some(bytes) = self.memory_bytes {
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
