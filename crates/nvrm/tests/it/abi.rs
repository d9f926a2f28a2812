//! Expected bytes: the layouts of drivers 580 and 595, compiled from their headers.

use proptest::collection::vec;
use proptest::prelude::*;
use sluice_nvrm::abi::{
    AllocBlock, ChannelParams, Command, ControlBlock, CtxswStats, DisableChannels, FreeBlock, GroupParams,
    Preempt, Request, XferBlock, class, group_id, handle_info, timeslice,
};

/// Little-endian words at byte offsets, zeroes elsewhere.
fn bytes<const N: usize>(words: &[(usize, u32)]) -> [u8; N] {
    let mut bytes = [0; N];
    for (at, word) in words {
        bytes[*at..at + 4].copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

#[test]
fn request_numbers_are_those_of_the_driver() {
    let numbers = [
        (Request::ALLOC, 0xc020_462b_u32),
        (Request::ALLOC_WITH_RIGHTS, 0xc030_462b),
        (Request::CONTROL, 0xc020_462a),
        (Request::FREE, 0xc010_4629),
        (Request::DUP_OBJECT, 0xc01c_4634),
        (Request::SHARE, 0xc018_4635),
        (Request::XFER, 0xc010_46d3),
    ];
    for (request, number) in numbers {
        assert_eq!(request.number(), number, "{request:?}");
        assert_eq!(Request::of(u64::from(number)), Some(request), "{number:x}");
        assert!(request.is_known());
    }
}

#[test]
fn request_is_decoded_from_function_and_size_only() {
    // Without direction bits, and with a sign-extended number as old callers pass it.
    assert_eq!(Request::of(0x0020_462b), Some(Request::ALLOC));
    assert_eq!(Request::of(0xffff_ffff_c020_462b), Some(Request::ALLOC));
    // FBIOGET_VSCREENINFO has the driver's type byte, TCGETS has not.
    assert!(Request::of(0x4600).is_some_and(|request| !request.is_known()));
    assert_eq!(Request::of(0x5401), None);
}

#[test]
fn both_alloc_blocks_have_the_drivers_layout() {
    let alloc = AllocBlock {
        client: 0xc1d0_0001,
        parent: 0x5c00_0001,
        object: 0x5c00_0015,
        class: 0xa06c,
        params: 0x1122_3344_5566_7788,
        params_len: 20,
        flags: 0,
        status: 0x1b,
    };
    let common = [
        (0, 0xc1d0_0001),
        (4, 0x5c00_0001),
        (8, 0x5c00_0015),
        (12, 0xa06c),
        (16, 0x5566_7788),
        (20, 0x1122_3344),
    ];
    let short = bytes::<32>(&[&common[..], &[(24, 20), (28, 0x1b)]].concat());
    assert_eq!(alloc.encode(), short);
    assert_eq!(AllocBlock::decode(&short), Some(alloc));
    let flagged = AllocBlock { flags: 1, ..alloc };
    let long = bytes::<48>(&[&common[..], &[(32, 20), (36, 1), (40, 0x1b)]].concat());
    assert_eq!(flagged.encode_with_rights(), long);
    assert_eq!(AllocBlock::decode(&long), Some(flagged));
    assert_eq!(AllocBlock::decode(&long[..40]), None);
}

#[test]
fn other_blocks_have_the_drivers_layout() {
    let control = ControlBlock {
        client: 1,
        object: 2,
        command: 0x2080_110b,
        flags: 3,
        params: 0xa_0000_000b,
        params_len: 536,
        status: 0x1f,
    };
    let block = bytes::<32>(&[
        (0, 1),
        (4, 2),
        (8, 0x2080_110b),
        (12, 3),
        (16, 0xb),
        (20, 0xa),
        (24, 536),
        (28, 0x1f),
    ]);
    assert_eq!((control.encode(), ControlBlock::decode(&block)), (block, Some(control)));

    let free = FreeBlock { client: 1, parent: 2, object: 3, status: 4 };
    let block = bytes::<16>(&[(0, 1), (4, 2), (8, 3), (12, 4)]);
    assert_eq!((free.encode(), FreeBlock::decode(&block)), (block, Some(free)));

    let xfer = XferBlock { nr: 0x2b, len: 48, block: 0x7f00_0000_1000 };
    let block = bytes::<16>(&[(0, 0x2b), (4, 48), (8, 0x1000), (12, 0x7f00)]);
    assert_eq!((xfer.encode(), XferBlock::decode(&block)), (block, Some(xfer)));
    assert_eq!(xfer.request(), Some(Request::ALLOC_WITH_RIGHTS));
    assert_eq!(XferBlock { nr: 0x12b, ..xfer }.request(), None);
    assert_eq!(XferBlock { len: 0x1_0030, ..xfer }.request(), None);
}

#[test]
fn handle_info_query_and_answer_have_the_drivers_layout() {
    let query = handle_info::query(0x5c00_0015, handle_info::CLASS);
    assert_eq!(query, [0x15, 0, 0, 0x5c, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(handle_info::decode_query(&query), Some((0x5c00_0015, 2)));
    let answer = handle_info::encode(0x5c00_0015, handle_info::PARENT, 0x5c00_0002);
    assert_eq!(handle_info::decode(&answer), Some(0x5c00_0002));
    assert_eq!(handle_info::decode(&answer[..15]), None);
}

#[test]
fn parameters_have_the_sizes_that_the_driver_requires() {
    let sizes = Command::ALL.map(|command| (command.number, command.params_len));
    let expected = [
        (0xa06c_0101, 3),
        (0xa06c_0103, 8),
        (0xa06c_0104, 8),
        (0xa06c_0105, 8),
        (0xa06c_0106, 4),
        (0xa06c_0107, 4),
        (0xa06c_0110, 1),
        (0xa06f_0111, 2),
        (0x2080_110b, 536),
        (0x2080_1115, 8),
        (0x2080_1210, 32),
        (0x2080_1215, 32),
        (0x2080_1235, 24),
        (0x0d02, 16),
        (0x2080_014a, 268),
    ];
    assert_eq!(sizes, expected);
    assert_eq!((GroupParams::LEN, ChannelParams::LEN), (20, 368));
    assert_eq!(Command::of(0x2080_110b), Some(Command::DISABLE_CHANNELS));
    assert_eq!(Command::of(0xa06f_0112), None);
}

#[test]
fn allocation_parameters_have_the_drivers_layout() {
    let group = bytes::<20>(&[(12, 1)]);
    assert_eq!(GroupParams { engine: 1 }.encode(), group);
    assert_eq!(GroupParams::decode(&group), Some(GroupParams { engine: 1 }));
    let channel = bytes::<368>(&[(16, 1024), (128, 11)]);
    assert_eq!(ChannelParams { entries: 1024, engine: 11 }.encode(), channel);
    assert_eq!(ChannelParams::decode(&channel), Some(ChannelParams { entries: 1024, engine: 11 }));
}

#[test]
fn control_parameters_have_the_drivers_layout() {
    assert_eq!(timeslice::encode(2048), bytes::<8>(&[(0, 2048)]));
    assert_eq!(timeslice::decode(&bytes::<8>(&[(4, 1)])), Some(1 << 32));
    assert_eq!(group_id::decode(&[7, 0, 0, 0]), Some(7));

    assert_eq!(Preempt { wait: true, timeout_us: None }.encode(), [1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(Preempt { wait: false, timeout_us: Some(100_000) }.encode(), [0, 1, 0, 0, 0xa0, 0x86, 1, 0]);

    let disable =
        DisableChannels { disable: true, only_scheduling: false, channels: vec![(0xc1, 0x16), (0xc1, 0x19)] };
    let params = bytes::<536>(&[(0, 1), (4, 2), (24, 0xc1), (28, 0xc1), (280, 0x16), (284, 0x19)]);
    assert_eq!((disable.encode(), DisableChannels::decode(&params)), (params, Some(disable.clone())));
    let scheduling = DisableChannels { disable: false, only_scheduling: true, ..disable };
    let params = bytes::<536>(&[(4, 2), (8, 1), (24, 0xc1), (28, 0xc1), (280, 0x16), (284, 0x19)]);
    assert_eq!((scheduling.encode(), DisableChannels::decode(&params)), (params, Some(scheduling)));

    assert_eq!(CtxswStats::query(0x15, true), bytes::<32>(&[(0, 0x15), (4, 1)]));
    let stats = CtxswStats { saves: 1, restores: 2, wfi: 3, cta: 4, cilp: 5, gfxp: 6 };
    let params = bytes::<32>(&[(0, 0x15), (8, 1), (12, 2), (16, 3), (20, 4), (24, 5), (28, 6)]);
    assert_eq!((stats.encode(0x15), CtxswStats::decode(&params)), (params, Some(stats)));
}

#[test]
fn disable_channels_that_the_driver_would_refuse_is_not_decoded() {
    assert_eq!(DisableChannels::decode(&bytes::<536>(&[(4, 65)])), None, "65 channels");
    assert_eq!(DisableChannels::decode(&bytes::<536>(&[(16, 8)])), None, "an event pointer");
    assert_eq!(DisableChannels::decode(&bytes::<536>(&[(8, 0x100)])), None, "the flag that drops work");
    assert_eq!(DisableChannels::decode(&[0; 535]), None);
    let many = DisableChannels { disable: true, only_scheduling: false, channels: vec![(1, 2); 65] };
    assert_eq!(DisableChannels::decode(&many.encode()).unwrap().channels.len(), 64);
}

#[test]
fn channel_classes_of_every_generation_are_recognised() {
    for channel in [0x906f, 0xa06f, 0xc06f, 0xc36f, 0xc46f, 0xc56f, 0xc86f, 0xc96f, 0xca6f] {
        assert!(class::is_channel(channel), "{channel:x}");
    }
    for other in [0, 0x41, 0x80, 0x2080, 0xa06c, 0xc8b5, 0x50a0, 0x0001_c86f, 0x9067] {
        assert!(!class::is_channel(other), "{other:x}");
    }
}

fn config() -> ProptestConfig {
    // Miri is a thousand times slower.
    let cases = if cfg!(miri) { 4 } else { 1024 };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn blocks_of_the_right_size_are_decoded_and_encoded_to_the_same_bytes(
        alloc in vec(any::<u8>(), 32), control in vec(any::<u8>(), 32), free in vec(any::<u8>(), 16),
        other in vec(any::<u8>(), 0..64),
    ) {
        prop_assert_eq!(&AllocBlock::decode(&alloc).unwrap().encode()[..], &alloc[..]);
        prop_assert_eq!(&ControlBlock::decode(&control).unwrap().encode()[..], &control[..]);
        prop_assert_eq!(&FreeBlock::decode(&free).unwrap().encode()[..], &free[..]);
        prop_assert_eq!(AllocBlock::decode(&other).is_some(), matches!(other.len(), 32 | 48));
        prop_assert_eq!(ControlBlock::decode(&other).is_some(), other.len() == 32);
        prop_assert_eq!(XferBlock::decode(&other).is_some(), other.len() == 16);
        prop_assert_eq!(GroupParams::decode(&other).is_some(), other.len() == 20);
        prop_assert_eq!(CtxswStats::decode(&other).is_some(), other.len() == 32);
    }

    #[test]
    fn any_request_number_is_decoded_as_the_kernel_does(number in any::<u32>()) {
        let request = Request::of(u64::from(number));
        prop_assert_eq!(request.is_some(), number & 0xff00 == 0x4600);
        if let Some(request) = request {
            prop_assert_eq!(u32::from(request.nr), number & 0xff);
            prop_assert_eq!(u32::from(request.len), number >> 16 & 0x3fff);
            prop_assert_eq!(request.number(), number | 0xc000_0000);
        }
    }

    #[test]
    fn disable_channels_is_decoded_as_encoded(
        disable in any::<bool>(), only_scheduling in any::<bool>(), channels in vec(any::<(u32, u32)>(), 0..=64),
    ) {
        let params = DisableChannels { disable, only_scheduling, channels };
        prop_assert_eq!(DisableChannels::decode(&params.encode()), Some(params));
    }
}
