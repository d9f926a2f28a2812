use super::*;

fn group(channels: usize) -> EscrowMessage {
    let channels = (0..channels).map(|channel| u32::try_from(channel).unwrap() + 7).collect();
    let handles = ContextHandles { descriptor: 0, client: 1, subdevice: 2, channel_group: 3, channels };
    EscrowMessage::Group { group: u64::MAX, descriptor: 5, handles }
}

#[test]
fn every_packet_reads_back() {
    for deposit in [
        EscrowMessage::Descriptor(1),
        group(0),
        group(MAX_CHANNELS),
        EscrowMessage::Forget(2),
        EscrowMessage::Close(3),
    ] {
        let bytes = deposit.encode();
        assert!(bytes.len() <= MAX_LEN);
        assert_eq!(EscrowMessage::decode(&bytes), Ok(deposit));
    }
}

#[test]
fn truncated_and_longer_packets_are_refused() {
    let bytes = group(2).encode();
    for len in 0..bytes.len() {
        let refused = EscrowMessage::decode(bytes.get(..len).unwrap());
        assert!(matches!(refused, Err(EscrowError::Length { found, .. }) if found == len), "{refused:?}");
    }
    let longer = [bytes.as_slice(), &[0]].concat();
    assert_eq!(EscrowMessage::decode(&longer), Err(EscrowError::Length { found: 49, expected: 48 }));
}

#[test]
fn invalid_packet_is_refused_with_its_mistake() {
    let mut bytes = EscrowMessage::Descriptor(1).encode();
    bytes[4] = 9;
    assert_eq!(EscrowMessage::decode(&bytes), Err(EscrowError::Kind(9)));
    bytes[0] = 0;
    assert!(matches!(EscrowMessage::decode(&bytes), Err(EscrowError::Magic(..))));
    let many = group(MAX_CHANNELS + 1).encode();
    assert_eq!(EscrowMessage::decode(&many), Err(EscrowError::Channels(65)));
}
