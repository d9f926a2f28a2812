//! The identity of a GPU: its UUID as the driver writes it, and its PCI address.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The text form of a GPU's identity: `GPU-` and the groups of a UUID.
pub fn uuid_text(uuid: [u8; 16]) -> String {
    format!("GPU-{}", groups(uuid))
}

/// The text form of the identity of an instance of a GPU (MIG).
pub fn instance_uuid_text(uuid: [u8; 16]) -> String {
    format!("MIG-{}", groups(uuid))
}

fn groups(uuid: [u8; 16]) -> String {
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// Parses the text that [`uuid_text`] or [`instance_uuid_text`] returns; the prefix may be left out.
/// Errors: the text has another form.
pub fn parse_uuid(text: &str) -> Result<[u8; 16], String> {
    let wrong = || format!("{text:?} is no UUID of a GPU such as GPU-01234567-89ab-cdef-0123-456789abcdef");
    let digits = text.strip_prefix("GPU-").or_else(|| text.strip_prefix("MIG-")).unwrap_or(text);
    let groups: Vec<&str> = digits.split('-').collect();
    let lengths = groups.iter().map(|group| group.len());
    let is_hex = groups.iter().flat_map(|group| group.bytes()).all(|byte| byte.is_ascii_hexdigit());
    if !lengths.eq([8, 4, 4, 4, 12]) || !is_hex {
        return Err(wrong());
    }
    let number = u128::from_str_radix(&groups.concat(), 16).map_err(|_| wrong())?;
    Ok(number.to_be_bytes())
}

/// An address on the PCI bus; a GPU's function is always 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct PciAddress {
    /// Domain.
    pub domain: u32,
    /// Bus.
    pub bus: u8,
    /// Device, less than 32.
    pub device: u8,
}

impl fmt::Display for PciAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:04x}:{:02x}:{:02x}.0", self.domain, self.bus, self.device)
    }
}

impl FromStr for PciAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no PCI address of a GPU such as 0000:18:00.0");
        let hex = |part: Option<&str>| {
            let part =
                part.filter(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
            u32::from_str_radix(part, 16).ok()
        };
        let address = text.strip_suffix(".0").ok_or_else(wrong)?;
        let mut parts = address.split(':');
        let numbers = (hex(parts.next()), hex(parts.next()), hex(parts.next()), parts.next());
        let (Some(domain), Some(bus), Some(device), None) = numbers else { return Err(wrong()) };
        let bus = u8::try_from(bus).map_err(|_| wrong())?;
        let device = u8::try_from(device).ok().filter(|device| *device < 32).ok_or_else(wrong)?;
        Ok(Self { domain, bus, device })
    }
}

#[cfg(test)]
mod tests;
