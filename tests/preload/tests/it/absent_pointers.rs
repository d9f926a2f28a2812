//! Each function of the driver's table with each of its pointers absent: the program lives, and gets the result that it gets without the
//! hook. The calls are made from the table, so a new row is tested with it.

use sluice_driver_api::nvml::*;
use sluice_driver_api::types::*;
use sluice_driver_api::{ENTRIES, Policy, driver_api, nvml_api};
use sluice_preload_tests::{Node, TenantOptions, shared};
use std::collections::BTreeSet;
use std::fs;

/// How the ABI passes an argument.
#[derive(Clone, Copy, PartialEq)]
enum Class {
    Pointer,
    Number,
    Float,
    /// A structure that is passed on the stack.
    OnStack(usize),
}

trait Passed {
    const CLASS: Class;
}

impl<T> Passed for *mut T {
    const CLASS: Class = Class::Pointer;
}

impl<T> Passed for *const T {
    const CLASS: Class = Class::Pointer;
}

/// Callbacks.
impl<T> Passed for Option<T> {
    const CLASS: Class = Class::Pointer;
}

macro_rules! classes {
    ($($class:expr => $($kind:ty)*;)*) => { $($(
        impl Passed for $kind {
            const CLASS: Class = $class;
        }
    )*)* };
}
classes! {
    Class::Number => i8 u8 i16 u16 i32 u32 i64 u64 usize CUresult CUmemLocation;
    Class::Float => f32 f64;
    Class::OnStack(64) => CUipcMemHandle CUipcEventHandle;
    Class::OnStack(size_of::<CUeglFrame>()) => CUeglFrame;
}

struct Argument {
    name: &'static str,
    kind: &'static str,
    class: Class,
}

struct Row {
    symbol: &'static str,
    name: &'static str,
    arguments: &'static [Argument],
}

macro_rules! row {
    ($symbol:ident, $name:expr, $($argument:ident : $kind:ty),*) => {
        Row {
            symbol: stringify!($symbol),
            name: $name,
            arguments: &[$(Argument {
                name: stringify!($argument),
                kind: stringify!($kind),
                class: <$kind as Passed>::CLASS,
            }),*],
        }
    };
}

macro_rules! rows {
    ($($policy:ident $symbol:ident ($name:literal, $since:literal, $variant:ident) fn($($argument:ident : $kind:ty),*);)*) => {
        static ROWS: &[Row] = &[$(row!($symbol, $name, $($argument: $kind),*)),*];
    };
}
driver_api!(rows);

macro_rules! nvml_rows {
    ($($policy:ident $symbol:ident fn($($argument:ident : $kind:ty),*);)*) => {
        static NVML_ROWS: &[Row] = &[$(row!($symbol, stringify!($symbol), $($argument: $kind),*)),*];
    };
}
nvml_api!(nvml_rows);

/// Which rows are called.
#[derive(Clone, Copy, PartialEq)]
enum Rows {
    All,
    /// Those of which the hook does more than pass the call on.
    Governed,
}

/// The word for an argument that is there (see programs/absent.c). Many functions accept these values; those that do not, refuse them with
/// the hook and without it.
fn word(row: &Row, argument: &Argument) -> String {
    let Argument { name, kind, class } = argument;
    // `stringify!` may print a blank after the asterisk.
    let kind = kind.replace("* const ", "*const ").replace("* mut ", "*mut ");
    let word = match (kind.as_str(), *class) {
        (_, Class::OnStack(bytes)) => return format!("={bytes}"),
        (_, Class::Float) => ".",
        ("nvmlDevice_t", _) => "nvml_device",
        ("CUcontext", _) => "context",
        ("CUmodule", _) => "module",
        ("CUfunction", _) => "function",
        ("CUstream", _) => "stream",
        ("CUevent", _) => "event",
        ("CUdeviceptr", _) => "memory",
        ("CUmemoryPool", _) => "pool",
        ("CUarray", _) => "array",
        ("CUmipmappedArray", _) => "mipmap",
        ("CUgraph", _) => "graph",
        ("CUgraphExec", _) => "exec",
        ("CUmemGenericAllocationHandle", _) => "physical",
        ("CUhostFn" | "CUstreamCallback", _) => "callback",
        ("*const CUmemLocation" | "*mut CUmemLocation", _) => "location",
        ("*const CUDA_ARRAY_DESCRIPTOR", _) => "array2d",
        ("*const CUDA_ARRAY3D_DESCRIPTOR", _) => "array3d",
        ("*const CUmemAllocationProp", _) => "properties",
        ("*const CUmemPoolProps", _) => "pool_properties",
        ("*mut CUDA_MEM_ALLOC_NODE_PARAMS", _) => "alloc_node",
        ("*mut CUgraphNodeParams", _) => "node",
        ("*const CUlaunchConfig", _) => "config",
        ("*const c_char", _) if *name == "symbol" => "function_name",
        ("*const c_char", _) => "kernel_name",
        (_, Class::Pointer) => match *name {
            "kernel_params" => "parameters",
            "extra" => "-",
            "image" | "code" | "fat_cubin" => "image",
            _ => "out",
        },
        // The first device.
        ("CUmemLocation", _) => "1",
        ("CUstreamCaptureMode", _) => "2",
        (_, Class::Number) => match *name {
            "cuda_version" => "12000",
            "size" if row.name == "cuMemCreate" => "0x200000",
            "flags" if row.name == "cuMemAllocManaged" => "1",
            "element_size_bytes" => "4",
            name if ["offset", "flags", "num_dependencies", "device", "dev"]
                .iter()
                .any(|zero| name.ends_with(zero)) =>
            {
                "0"
            }
            name if ["byte", "size", "width", "pitch", "value"].iter().any(|part| name.contains(part)) => {
                "256"
            }
            _ => "1",
        },
    };
    word.to_owned()
}

/// A call: its line for programs/absent.c, and what is absent.
struct Call {
    line: String,
    absent: &'static str,
}

/// All calls of the table: nothing absent, each pointer absent, all pointers absent.
fn calls(rows: Rows) -> Vec<Call> {
    let of_driver = ROWS.iter().zip(ENTRIES);
    let of_driver = of_driver.filter(|(_, entry)| rows == Rows::All || entry.policy != Policy::Forward);
    let of_nvml = NVML_ROWS.iter().filter(|_| rows == Rows::All);
    let mut calls = Vec::new();
    for row in of_driver.map(|(row, _)| row).chain(of_nvml) {
        let with = |absent: &'static str, is_absent: &dyn Fn(usize) -> bool| {
            let words = row.arguments.iter().enumerate().map(|(at, argument)| {
                if is_absent(at) && argument.class == Class::Pointer {
                    "-".to_owned()
                } else {
                    word(row, argument)
                }
            });
            let words: Vec<String> = words.collect();
            Call { line: format!("{} {} {}", row.name, row.symbol, words.join(" ")), absent }
        };
        let pointers =
            row.arguments.iter().enumerate().filter(|(_, argument)| argument.class == Class::Pointer);
        let pointers: Vec<(usize, &str)> = pointers.map(|(at, argument)| (at, argument.name)).collect();
        calls.extend(pointers.iter().map(|(absent, name)| with(name, &|at| at == *absent)));
        if pointers.len() > 1 {
            calls.push(with("all", &|_| true));
        }
        // Last, because a call that succeeds may end what the others use.
        calls.push(with("nothing", &|_| false));
    }
    calls
}

/// The result of each call, or how the process ended in it.
fn results(options: TenantOptions, calls: &[Call]) -> Vec<String> {
    let mut results = vec!["none".to_owned(); calls.len()];
    for line in options.start().finish().expect_success().lines {
        let (number, result) = line.split_once(' ').expect("a number and a result");
        let number: usize = number.parse().expect("a number");
        // The end of a process belongs to the first call without a result.
        let at = (number..).find(|at| results[*at] == "none").unwrap_or(number);
        results[at] = result.to_owned();
    }
    results
}

/// Makes the calls with the hook and without it, and compares the results. Returns the calls that succeed: symbol, and what is absent.
#[track_caller]
fn compare(mode: &str, rows: Rows) -> BTreeSet<(String, &'static str)> {
    let node = Node::start("1\nmain 0.5 1.0 8589934592\n");
    let calls = calls(rows);
    let file = node.path().join("calls");
    let lines: Vec<&str> = calls.iter().map(|call| call.line.as_str()).collect();
    fs::write(&file, lines.join("\n")).expect("a file");
    let arguments = |mode: &str| format!("{} {mode}", file.display());
    let of = |mode: &str| node.tenant("main", "absent").arguments(&arguments(mode));
    let bare = results(of(if mode == "engaged" { "" } else { mode }).without_hook(), &calls);
    let hooked = results(of(mode), &calls);
    assert!(bare.iter().all(|result| result.parse::<u32>().is_ok()), "the simulated driver ends a process");
    let differing = calls.iter().zip(bare.iter().zip(&hooked)).filter(|(_, (bare, hooked))| bare != hooked);
    let differing: Vec<String> = differing
        .map(|(call, (bare, hooked))| {
            format!("{} (absent: {}): {bare} without the hook, {hooked} with it", call.line, call.absent)
        })
        .collect();
    assert!(differing.is_empty(), "{} calls differ:\n{}", differing.len(), differing.join("\n"));
    let succeeded = calls.into_iter().zip(&bare).filter(|(_, result)| *result == "0");
    let symbol = |line: &str| line.split(' ').nth(1).unwrap_or_default().to_owned();
    succeeded.map(|(call, _)| (symbol(&call.line), call.absent)).collect()
}

#[test]
fn calls_with_an_absent_pointer_have_the_results_of_the_driver() {
    let _lock = shared();
    let succeeded = compare("", Rows::All);
    // Pointers that may be absent, by the documentation or by a driver (580), and functions whose results the hook reads.
    for (symbol, absent) in [
        ("cuMemGetInfo_v2", "free"),
        ("cuMemGetInfo_v2", "total"),
        ("cuMemGetInfo_v2", "all"),
        ("cuMemGetAddressRange_v2", "psize"),
        ("cuCtxGetStreamPriorityRange", "all"),
        ("cuStreamGetCaptureInfo_v2", "id_out"),
        ("cuMemAlloc_v2", "nothing"),
        ("cuMemAllocManaged", "nothing"),
        ("cuMemAllocPitch_v2", "nothing"),
        ("cuMemAllocAsync", "nothing"),
        ("cuArrayCreate_v2", "nothing"),
        ("cuMipmappedArrayCreate", "nothing"),
        ("cuMemCreate", "nothing"),
        ("cuMemPoolCreate", "nothing"),
        ("cuEventCreate", "nothing"),
        ("cuCtxAttach", "nothing"),
        ("cuGetProcAddress_v2", "nothing"),
        ("cuDeviceTotalMem_v2", "nothing"),
        ("nvmlDeviceGetMemoryInfo", "nothing"),
    ] {
        assert!(
            succeeded.contains(&(symbol.to_owned(), absent)),
            "{symbol} without {absent} does not succeed"
        );
    }
}

#[test]
fn absent_pointer_that_a_driver_accepts_is_accepted() {
    let _lock = shared();
    compare("accepts", Rows::Governed);
}

#[test]
fn calls_with_an_absent_pointer_have_the_results_of_the_driver_through_the_preemption_engine() {
    let _lock = shared();
    compare("engaged", Rows::Governed);
}
