//! The module format of the simulated GPU: a line of version, then one line per kernel or global variable.
//!
//! ```text
//! SLUICE-SIM 1
//! # a comment
//! kernel spin params=ptr:u64,n:u32,iters:u32 ns_per_iter=2.02 effect=mix
//! kernel tick params=ptr:u64,n:u32 ns=50000 effect=add
//! kernel wipe params=ptr:u64,n:u32,value:u64 ns=1000 effect=fill
//! kernel deep ns=1000 local=65536
//! kernel reduce params=communicator:u64,rank:u32,ranks:u32,iters:u32 ns_per_iter=1000 effect=collective
//! global table bytes=1048576
//! ```
//! A kernel lasts `ns + ns_per_iter * iters` nanoseconds per wave of its grid, and needs `local` bytes of local memory per
//! thread. Effects work on the `n` 64-bit words at `ptr`. A collective kernel works on none: it spins until the kernels of all
//! `ranks` of its `communicator` have begun, and then lasts that time. With `parts` it spins again after each part of it. The parameters with a meaning have type u32 or u64. The global variables of a module take device memory from its load on.

use crate::effect::Effect;
use crate::engine::{CollectiveRank, HoldParams};
use crate::params;
use thiserror::Error;

/// First line of every module.
pub const MAGIC: &str = "SLUICE-SIM 1";

/// The kernels that are recognised in PTX: a hold kernel, which polls a word in host memory,
pub const HOLD: &str = "sluice_hold";
/// and a copy kernel.
pub const COPY: &str = "sluice_copy";

/// Their parameters in `hook/src/hold_kernel/kernel.ptx`.
const PTX_KERNELS: [(&str, &str, EffectKind); 2] = [
    (
        HOLD,
        "word:u64,value:u32,activity:u32,timeout_ns:u64,linger_ns:u64,still_ns:u64,longest_ns:u64",
        EffectKind::Hold,
    ),
    (COPY, "to:u64,from:u64,bytes:u64", EffectKind::Copy),
];

/// The parameters with a meaning, which are read as unsigned integers.
const UNSIGNED: [&str; 8] = ["ptr", "n", "iters", "value", "communicator", "rank", "ranks", "parts"];
/// The parameters that a collective kernel needs.
const COLLECTIVE: [&str; 3] = ["communicator", "rank", "ranks"];

/// Why a module was refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ModuleError {
    /// It does not begin with [`MAGIC`].
    #[error("not a module of the simulated GPU: the first line is not \"{MAGIC}\"")]
    NotAModule,
    /// A line is wrong.
    #[error("line {line}: {what}")]
    Line {
        /// Number of the line, from 1.
        line: usize,
        /// The error.
        what: String,
    },
}

/// One parameter of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Param {
    /// Name; those of the module's format have a meaning.
    pub name: String,
    /// Size in bytes, which is also the alignment.
    pub size: usize,
    /// Byte offset in the packed parameter buffer.
    pub offset: usize,
}

/// The kind of a kernel's effect; the arguments come with the launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EffectKind {
    None,
    Mix,
    Add,
    Fill,
    Hold,
    Copy,
    Collective,
}

/// One kernel of a module.
#[derive(Debug, Clone, PartialEq)]
pub struct Kernel {
    /// Name.
    pub name: String,
    /// Parameters in order.
    pub params: Vec<Param>,
    /// Size of the packed parameter buffer in bytes.
    pub params_size: usize,
    /// Local memory per thread, in bytes.
    pub local: u32,
    ns: f64,
    ns_per_iter: f64,
    effect: EffectKind,
}

/// One launch of a kernel, with its parameters evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launch {
    /// Time on the GPU when it runs without interruption.
    pub ns: u64,
    /// Multiprocessors that it keeps busy.
    pub sms: u32,
    /// Effect on the words.
    pub effect: Effect,
    /// Address of the words.
    pub ptr: u64,
    /// Number of words.
    pub words: u64,
    /// Of a hold kernel, which polls the word at `ptr`; `ns` is its longest time.
    pub hold: Option<HoldParams>,
    /// Of a copy kernel.
    pub copy: Option<CopyParams>,
    /// Of a collective kernel, which takes `ns` from the begin of the last rank's kernel on.
    pub collective: Option<CollectiveRank>,
}

/// What a copy kernel copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyParams {
    /// Address to which it writes.
    pub to: u64,
    /// Address from which it reads.
    pub from: u64,
    /// Number of bytes.
    pub bytes: u64,
}

impl Kernel {
    /// Value of a parameter in a packed buffer. All parameters with a meaning are unsigned integers.
    fn value(&self, name: &str, packed: &[u8]) -> Option<u64> {
        let param = self.params.iter().find(|param| param.name == name)?;
        let mut bytes = [0; 8];
        bytes[..param.size].copy_from_slice(packed.get(param.offset..param.offset + param.size)?);
        Some(u64::from_le_bytes(bytes))
    }

    /// Computes one launch from its grid (`blocks` of `threads` each) and its packed parameters.
    ///
    /// `None` when the buffer is shorter than the parameters, or the place of a collective kernel is invalid.
    pub fn launch(&self, blocks: u64, threads: u32, packed: &[u8]) -> Option<Launch> {
        if packed.len() < self.params_size {
            return None;
        }
        let iters = self.value("iters", packed).unwrap_or(0);
        let copy = if self.effect == EffectKind::Copy { Some(self.copy(packed)?) } else { None };
        let copy_ns =
            copy.map_or(0.0, |copy| copy.bytes as f64 * 1e3 / params::KERNEL_COPY_BYTES_PER_US as f64);
        let per_wave = nanos(self.ns + self.ns_per_iter * iters as f64 + copy_ns);
        let per_sm = u64::from((params::THREADS_PER_SM / threads.max(1)).clamp(1, params::BLOCKS_PER_SM));
        let waves = blocks.div_ceil(per_sm * u64::from(params::SMS)).max(1);
        let effect = match self.effect {
            EffectKind::None | EffectKind::Collective | EffectKind::Copy => Effect::None,
            EffectKind::Mix => Effect::Mix,
            EffectKind::Add => Effect::Add,
            EffectKind::Fill => Effect::Fill(self.value("value", packed).unwrap_or(0)),
            EffectKind::Hold => return self.hold(packed),
        };
        let is_collective = self.effect == EffectKind::Collective;
        let collective = if is_collective { Some(self.collective(packed)?) } else { None };
        Some(Launch {
            ns: per_wave.saturating_mul(waves).max(params::MIN_KERNEL_NS),
            sms: u32::try_from(blocks).unwrap_or(u32::MAX).clamp(1, params::SMS),
            effect,
            ptr: self.value("ptr", packed).unwrap_or(0),
            words: self.value("n", packed).unwrap_or(0),
            hold: None,
            copy,
            collective,
        })
    }

    fn collective(&self, packed: &[u8]) -> Option<CollectiveRank> {
        let [communicator, rank, ranks] = COLLECTIVE.map(|name| self.value(name, packed));
        let (rank, ranks) = (u32::try_from(rank?).ok()?, u32::try_from(ranks?).ok()?);
        let parts = self.value("parts", packed).map_or(Some(1), |parts| u32::try_from(parts).ok())?;
        (rank < ranks && parts > 0).then_some(CollectiveRank {
            communicator: communicator?,
            rank,
            ranks,
            parts,
        })
    }

    fn hold(&self, packed: &[u8]) -> Option<Launch> {
        let value = |name: &str| self.value(name, packed);
        Some(Launch {
            ns: value("longest_ns")?.max(params::MIN_KERNEL_NS),
            sms: 1,
            effect: Effect::None,
            ptr: value("word")?,
            words: 0,
            hold: Some(HoldParams {
                ticket: u32::try_from(value("value")?).ok()?,
                activity: u32::try_from(value("activity")?).ok()?,
                timeout_ns: value("timeout_ns")?,
                linger_ns: value("linger_ns")?,
                still_ns: value("still_ns")?,
                longest_ns: value("longest_ns")?,
            }),
            copy: None,
            collective: None,
        })
    }

    fn copy(&self, packed: &[u8]) -> Option<CopyParams> {
        let [to, from, bytes] = ["to", "from", "bytes"].map(|name| self.value(name, packed));
        Some(CopyParams { to: to?, from: from?, bytes: bytes? })
    }
}

/// A float as whole nanoseconds; negative and NaN are 0.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "float to integer casts saturate, as intended here"
)]
fn nanos(value: f64) -> u64 {
    value.round() as u64
}

/// The contents of one module.
#[derive(Debug, Clone, PartialEq)]
pub struct Module {
    /// In order of the text.
    pub kernels: Vec<Kernel>,
    /// Size of all global variables, in bytes.
    pub global_bytes: u64,
}

impl Module {
    /// The module of a PTX text. Only the kernels of `hook/src/hold_kernel/kernel.ptx` are supported; they are recognised by their names.
    /// `None` if the text has none of them.
    pub fn of_ptx(text: &str) -> Option<Self> {
        let entries = text.split(".entry").skip(1).filter_map(|rest| rest.split_whitespace().next());
        let names = entries.filter_map(|name| name.split('(').next());
        let kernels: Vec<Kernel> = names
            .filter_map(|name| {
                let (_, params, effect) = PTX_KERNELS.into_iter().find(|(known, ..)| *known == name)?;
                Some(Kernel { effect, ..parse_kernel(&format!("kernel {name} params={params}")).ok()? })
            })
            .collect();
        (!kernels.is_empty()).then_some(Self { kernels, global_bytes: 0 })
    }

    /// Parses the text of a module.
    /// Errors: [`ModuleError`] names the line and what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, ModuleError> {
        let mut lines = text.lines().enumerate();
        if lines.next().is_none_or(|(_, line)| line.trim() != MAGIC) {
            return Err(ModuleError::NotAModule);
        }
        let mut kernels: Vec<Kernel> = Vec::new();
        let mut global_bytes = 0u64;
        for (index, line) in lines {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |what| ModuleError::Line { line: index + 1, what };
            if let Some(global) = line.strip_prefix("global ") {
                global_bytes = global_bytes.saturating_add(parse_global(global).map_err(wrong)?);
                continue;
            }
            let kernel = parse_kernel(line).map_err(wrong)?;
            if kernels.iter().any(|other| other.name == kernel.name) {
                let what = format!("a second kernel named \"{}\"", kernel.name);
                return Err(ModuleError::Line { line: index + 1, what });
            }
            kernels.push(kernel);
        }
        Ok(Self { kernels, global_bytes })
    }
}

/// Size of a global variable.
fn parse_global(text: &str) -> Result<u64, String> {
    let bytes = text.split_whitespace().nth(1).and_then(|word| word.strip_prefix("bytes="));
    let bytes = bytes.and_then(|bytes| bytes.parse().ok());
    bytes.ok_or_else(|| "expected \"global NAME bytes=NUMBER\"".into())
}

fn parse_kernel(line: &str) -> Result<Kernel, String> {
    let mut words = line.split_whitespace();
    if words.next() != Some("kernel") {
        return Err("expected \"kernel NAME key=value …\" or \"global NAME bytes=NUMBER\"".into());
    }
    let name = words.next().ok_or("the kernel has no name")?.to_owned();
    let mut kernel = Kernel {
        name,
        params: Vec::new(),
        params_size: 0,
        local: 0,
        ns: 0.0,
        ns_per_iter: 0.0,
        effect: EffectKind::None,
    };
    for word in words {
        let (key, value) = word.split_once('=').ok_or_else(|| format!("\"{word}\" is not key=value"))?;
        match key {
            "params" => (kernel.params, kernel.params_size) = parse_params(value)?,
            "local" => {
                kernel.local = value.parse().map_err(|_| format!("\"{value}\" is not a size in bytes"))?;
            }
            "ns" => kernel.ns = parse_time(value)?,
            "ns_per_iter" => kernel.ns_per_iter = parse_time(value)?,
            "effect" => {
                kernel.effect = match value {
                    "none" => EffectKind::None,
                    "mix" => EffectKind::Mix,
                    "add" => EffectKind::Add,
                    "fill" => EffectKind::Fill,
                    "collective" => EffectKind::Collective,
                    _ => return Err(format!("unknown effect \"{value}\"")),
                }
            }
            _ => return Err(format!("unknown key \"{key}\"")),
        }
    }
    let has = |wanted: &str| kernel.params.iter().any(|param| param.name == wanted);
    let needed: &[&str] = match kernel.effect {
        EffectKind::None | EffectKind::Hold | EffectKind::Copy => &[],
        EffectKind::Mix | EffectKind::Add | EffectKind::Fill => &["ptr", "n"],
        EffectKind::Collective => &COLLECTIVE,
    };
    if !needed.iter().all(|param| has(param)) {
        return Err(format!("the effect needs the parameters {}", needed.join(", ")));
    }
    if kernel.ns_per_iter > 0.0 && !has("iters") {
        return Err("ns_per_iter needs the parameter iters".into());
    }
    Ok(kernel)
}

fn parse_time(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value >= 0.0 => Ok(value),
        _ => Err(format!("\"{text}\" is not a time in nanoseconds")),
    }
}

fn parse_params(text: &str) -> Result<(Vec<Param>, usize), String> {
    let mut params = Vec::new();
    let mut end = 0usize;
    for item in text.split(',').filter(|item| !item.is_empty()) {
        let (name, kind) = item.split_once(':').ok_or_else(|| format!("\"{item}\" is not name:type"))?;
        let size = match kind {
            "u32" | "i32" | "f32" => 4,
            "u64" | "i64" | "f64" => 8,
            _ => return Err(format!("unknown type \"{kind}\"")),
        };
        if UNSIGNED.contains(&name) && !kind.starts_with('u') {
            return Err(format!("{name} has type {kind}, expected u32 or u64"));
        }
        let offset = end.next_multiple_of(size);
        end = offset + size;
        params.push(Param { name: name.to_owned(), size, offset });
    }
    Ok((params, end))
}

#[cfg(test)]
mod tests;
