use super::*;

#[test]
fn every_order_survives_encoding() {
    let opens = StreamKind::ALL.map(|kind| Order::Open { group: 3, kind, priority: -5, last_seq: 9 });
    let copies = CopyEngine::ALL.map(|engine| Order::Work(Work::Copy { engine, bytes: u64::MAX }));
    let waits = Compare::ALL.map(|compare| Condition { address: 8, value: 9, compare, is_wide: true });
    let params = HoldParams {
        ticket: 5,
        activity: u32::MAX,
        timeout_ns: 9,
        linger_ns: 10,
        still_ns: 11,
        longest_ns: 1_000_000_000,
    };
    let rank = CollectiveRank { communicator: u64::MAX, rank: 6, ranks: 8, parts: 14 };
    let others = [
        Order::Close,
        Order::Work(Work::Kernel { ns: 7, sms: 132, name: 2 }),
        Order::Work(Work::Fill { bytes: 8 }),
        Order::Work(Work::Empty),
        Order::Graph { graph: 4 },
        Order::Mark { event: None },
        Order::Mark { event: Some(65_535) },
        Order::Wait { slot: 8_191, seq: 1 },
        Order::Host,
        Order::HostDone { seq: 5 },
        Order::Watch { seq: 6 },
        Order::Work(Work::Hold { address: 1 << 47, params, name: 3, times: [7, 8, 9] }),
        Order::Work(Work::Collective { rank, ns: u64::MAX, sms: 24, name: 3 }),
        Order::MemOp(None),
        Order::Word { address: 8, value: u64::MAX },
    ];
    let waits = waits.map(|condition| Order::MemOp(Some(condition)));
    for order in opens.into_iter().chain(copies).chain(waits).chain(others) {
        let record = Record { stamp: 11, slot: 12, order };
        assert_eq!(Record::decode(record.encode()), Some(record));
    }
}

#[test]
fn invalid_bytes_decode_to_no_order() {
    for [code, a, b] in [[0, 0, 0], [18, 0, 0], [1, 0, 3], [4, 3, 0]] {
        let words = [0, code, 0, a, b, 0, 0, 0, 0, 0, 0];
        assert_eq!(Record::decode(words), None);
    }
}
