//! Arbitrary ioctls never make the observer panic; what it announces fits the attach payload and decodes to the same value.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_comm::attach::{AttachPayload, MAX_CHANNELS, MAX_CONTEXTS};
use sluice_nvrm::abi::Request;
use sluice_nvrm::ioctl_observation::{ObjectRegistry, observe};
use sluice_nvrm::transport::wire;

const REQUESTS: [Request; 4] = [Request::ALLOC, Request::ALLOC_WITH_RIGHTS, Request::CONTROL, Request::FREE];

fuzz_target!(|steps: Vec<(u8, [u8; 48], [u8; 20], u8)>| {
    let mut registry = ObjectRegistry::new();
    for (which, block, params, more) in steps {
        let request = REQUESTS[usize::from(which) % REQUESTS.len()];
        if let Some(seen) = observe(request, &block[..usize::from(request.len)]) {
            let params = seen.params().and_then(|wanted| params.get(..wanted.len)).unwrap_or_default();
            let (fd, ordinal) = (i32::from(more % 16), (more & 0x40 != 0).then_some(u32::from(more >> 7)));
            registry.record(&seen, params, fd, ordinal, registry.newest_entry());
        }
        let _ = wire::decode_request(&block);
    }
    let groups = registry.groups();
    assert!(groups.iter().all(|found| !found.handles.channels.is_empty()));
    let _ = registry.to_string();
    for only in [false, true] {
        let Ok(told) = registry.announcement(0, only) else { continue };
        assert!(told.contexts.len() <= MAX_CONTEXTS && told.contexts.len() <= groups.len());
        assert!(told.contexts.iter().all(|context| context.channels.len() <= MAX_CHANNELS));
        let payload = AttachPayload { pid: 1, device_ordinal: 0, device_uuid: [0; 16], contexts: told.contexts };
        assert_eq!(payload.descriptors(), told.descriptors.len());
        assert_eq!(AttachPayload::decode(&payload.encode()), Ok(payload));
    }
});
