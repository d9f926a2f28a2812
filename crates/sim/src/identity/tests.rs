use super::*;
use proptest::prelude::*;

proptest! {
    #[test]
    fn uuids_are_read_as_written(uuid: [u8; 16]) {
        prop_assert_eq!(parse_uuid(&uuid_text(uuid)), Ok(uuid));
    }

    #[test]
    fn pci_addresses_are_read_as_written(domain: u32, bus: u8, device in 0..32u8) {
        let address = PciAddress { domain, bus, device };
        prop_assert_eq!(address.to_string().parse(), Ok(address));
    }

    #[test]
    fn no_text_panics_the_parsers(text in "(GPU-)?[0-9a-fA-F:.é+-]{0,40}") {
        if let Ok(uuid) = parse_uuid(&text) {
            prop_assert!(text.to_lowercase().ends_with(&uuid_text(uuid)[4..]));
        }
        if let Ok(address) = text.parse::<PciAddress>() {
            prop_assert!(address.device < 32);
        }
    }
}

#[test]
fn almost_valid_text_is_refused() {
    let texts =
        ["GPU-0", "GPU-01234567-89ab-cdef-0123-456789abcde", "GPU-+1234567-89ab-cdef-0123-456789abcdef", ""];
    assert!(texts.iter().all(|text| parse_uuid(text).is_err()));
    let texts =
        ["0000:18:00", "0000:18:00.1", "0000:100:00.0", "0000:18:20.0", "1:2:3:4.0", ":18:00.0", "+1:2:3.0"];
    assert!(texts.iter().all(|text| text.parse::<PciAddress>().is_err()));
}
