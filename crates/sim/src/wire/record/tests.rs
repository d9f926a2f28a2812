use super::*;

#[test]
fn every_order_survives_encoding() {
    let orders = [
        Order::Open { group: 3, kind: StreamKind::NonBlocking, priority: -5, last_seq: 9 },
        Order::Close,
        Order::Work(Work::Kernel { ns: 7, sms: 132, name: 2 }),
        Order::Work(Work::Copy { engine: CopyEngine::ToHost, bytes: u64::MAX }),
        Order::Work(Work::Fill { bytes: 8 }),
        Order::Work(Work::Empty),
        Order::Graph { graph: 4 },
        Order::Mark { event: None },
        Order::Mark { event: Some(65_535) },
        Order::Wait { slot: 8_191, seq: 1 },
        Order::Host,
        Order::HostDone { seq: 5 },
        Order::Watch { seq: 6 },
        Order::Work(Work::Hold { address: 1 << 47, value: 5, timeout_ns: 9, name: 3, times: [7, 8] }),
        Order::MemOp(None),
        Order::MemOp(Some(Condition { address: 8, value: 9, compare: Compare::Nor, is_wide: true })),
        Order::Word { address: 8, value: u64::MAX },
    ];
    for order in orders {
        let record = Record { stamp: 11, slot: 12, order };
        assert_eq!(Record::decode(record.encode()), Some(record));
    }
}

#[test]
fn invalid_bytes_decode_to_no_order() {
    for words in [[0, 0, 0, 0, 0, 0, 0], [0, 17, 0, 0, 0, 0, 0], [0, 1, 0, 0, 3, 0, 0], [0, 4, 0, 3, 0, 0, 0]]
    {
        assert_eq!(Record::decode(words), None);
    }
}
