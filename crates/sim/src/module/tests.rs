use super::*;

#[test]
fn local_memory_is_parsed_from_the_module_text() {
    let local = |text: &str| Module::parse(text).map(|module| module.kernels[0].local);
    assert_eq!(local("SLUICE-SIM 1\nkernel deep local=65536\n"), Ok(65_536));
    assert_eq!(local("SLUICE-SIM 1\nkernel flat\n"), Ok(0));
    assert!(local("SLUICE-SIM 1\nkernel none local=-1\n").is_err());
}

const SPIN: &str = "SLUICE-SIM 1\nkernel spin params=ptr:u64,n:u32,iters:u32 ns_per_iter=2.02 effect=mix\n";

fn packed(ptr: u64, n: u32, iters: u32) -> Vec<u8> {
    [ptr.to_le_bytes().as_slice(), &n.to_le_bytes(), &iters.to_le_bytes()].concat()
}

#[test]
fn documented_module_has_its_duration_and_effect() {
    let module = Module::parse(SPIN).unwrap();
    let launch = module.kernels[0].launch(264, 1024, &packed(4096, 16, 100_000)).unwrap();
    assert_eq!(
        launch,
        Launch {
            ns: 202_000,
            sms: 132,
            effect: Effect::Mix,
            ptr: 4096,
            words: 16,
            hold: None,
            copy: None,
            collective: None
        }
    );
}

#[test]
fn grid_larger_than_the_gpu_takes_several_waves() {
    let module = Module::parse(SPIN).unwrap();
    let launch = |blocks| module.kernels[0].launch(blocks, 1024, &packed(0, 0, 100_000)).unwrap().ns;
    assert_eq!(launch(265), 2 * launch(264));
    assert_eq!(launch(1), launch(264));
}

#[test]
fn parameters_are_laid_out_with_their_alignment() {
    let module = Module::parse("SLUICE-SIM 1\nkernel k params=a:u32,b:u64,c:f32 ns=5 effect=none").unwrap();
    let offsets: Vec<_> = module.kernels[0].params.iter().map(|param| param.offset).collect();
    assert_eq!((offsets, module.kernels[0].params_size), (vec![0, 8, 16], 20));
    assert_eq!(module.kernels[0].launch(1, 1, &[0; 19]), None);
}

#[test]
fn hold_kernel_is_recognised_in_ptx() {
    let text =
        |entry: &str| format!("// sluice_hold\n.version 6.4\n.visible .entry {entry}(\n.param .u64 word)");
    let module = Module::of_ptx(&text("sluice_hold")).unwrap();
    let packed = [4_096, 7 | 8 << 32, 9, 10, 11, 5_000_000u64].map(u64::to_le_bytes).concat();
    let launch = module.kernels[0].launch(1, 1, &packed).unwrap();
    let params = HoldParams {
        ticket: 7,
        activity: 8,
        timeout_ns: 9,
        linger_ns: 10,
        still_ns: 11,
        longest_ns: 5_000_000,
    };
    assert_eq!((launch.ptr, launch.hold, launch.ns, launch.sms), (4_096, Some(params), 5_000_000, 1));
    assert_eq!(Module::of_ptx(&text("sluice_holder")), None);
    assert_eq!(module.kernels[0].launch(1, 1, &packed[..20]), None);
}

#[test]
fn collective_kernel_has_its_place_and_its_time() {
    let params = "communicator:u64,rank:u32,ranks:u32,iters:u32";
    let text = format!("{MAGIC}\nkernel reduce params={params} ns_per_iter=1000 effect=collective");
    let kernel = Module::parse(&text).unwrap().kernels.remove(0);
    let packed = |rank: u32, ranks: u32| {
        [7u64.to_le_bytes().as_slice(), &[rank, ranks, 300].map(u32::to_le_bytes).concat()].concat()
    };
    let launch = kernel.launch(24, 512, &packed(1, 2)).unwrap();
    let rank = CollectiveRank { communicator: 7, rank: 1, ranks: 2, parts: 1 };
    assert_eq!((launch.collective, launch.ns, launch.sms), (Some(rank), 300_000, 24));
    assert_eq!(kernel.launch(24, 512, &packed(2, 2)), None, "a rank beyond the number of ranks");
}

#[test]
fn every_parse_error_names_its_line() {
    for (text, wanted) in [
        ("kernel x ns=1", ""),
        ("kernel k ns=1\nkernel k ns=2", "line 3: a second kernel"),
        ("kernel k ns=-1", "line 2: \"-1\" is not a time"),
        ("kernel k effect=mix", "line 2: the effect needs the parameters ptr, n"),
        (
            "kernel k params=rank:u32,ranks:u32 effect=collective",
            "the effect needs the parameters communicator",
        ),
        ("kernel k params=rank:i32", "rank has type i32, expected u32 or u64"),
        ("kernel k effect=burn", "unknown effect"),
        ("kernel k params=a:u16", "unknown type"),
        ("kernel k params=ptr:i64", "line 2: ptr has type i64, expected u32 or u64"),
        ("kernel k params=n:f32", "n has type f32, expected u32 or u64"),
        ("kernel k params=iters:i32", "iters has type i32, expected u32 or u64"),
        ("kernel k params=value:f64", "value has type f64, expected u32 or u64"),
        ("kernel k ns_per_iter=1", "needs the parameter iters"),
        ("colonel k", "expected \"kernel"),
        ("kernel k speed=1", "unknown key"),
    ] {
        let whole = format!("{MAGIC}\n{text}");
        match Module::parse(if wanted.is_empty() { text } else { &whole }) {
            Err(error) => assert!(error.to_string().contains(wanted), "{error}"),
            Ok(module) => panic!("accepted {module:?}"),
        }
    }
}

#[test]
fn global_variables_of_a_module_add_up() {
    let module =
        Module::parse("SLUICE-SIM 1\nglobal a bytes=100\nkernel k ns=1\nglobal b bytes=23\n").unwrap();
    assert_eq!((module.global_bytes, module.kernels.len()), (123, 1));
    let error = Module::parse("SLUICE-SIM 1\nglobal a\n").unwrap_err();
    assert_eq!(error.to_string(), "line 2: expected \"global NAME bytes=NUMBER\"");
}
