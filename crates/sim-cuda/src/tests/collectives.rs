//! Collective kernels, launched and captured.

use super::*;

const REDUCE: &[u8] = b"SLUICE-SIM 1
kernel reduce params=communicator:u64,rank:u32,ranks:u32,iters:u32 ns_per_iter=1000 effect=collective
\0";

fn load_reduce() -> Ptr<CUfunc_st> {
    let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
    cuModuleLoadData(Ptr::of(&mut module), Ptr::first_of(&mut REDUCE.to_vec()).cast()).unwrap();
    let mut name: Vec<c_char> = b"reduce\0".iter().map(|byte| c_char::from_ne_bytes([*byte])).collect();
    cuModuleGetFunction(Ptr::of(&mut function), handle(module), Ptr::first_of(&mut name)).unwrap();
    handle(function)
}

fn reduce(of: Ptr<CUfunc_st>, mut communicator: u64, mut rank: u32, on: Ptr<CUstream_st>) -> Status {
    let (mut ranks, mut iters) = (2u32, 50u32);
    let mut params: [*mut c_void; 4] = [
        (&raw mut communicator).cast(),
        (&raw mut rank).cast(),
        (&raw mut ranks).cast(),
        (&raw mut iters).cast(),
    ];
    cuLaunchKernel(of, 24, 1, 1, 512, 1, 1, 0, on, Ptr::first_of(&mut params), Ptr::null())
}

#[test]
fn launched_rank_waits_for_the_rank_of_a_captured_graph() {
    let _test = begin_test();
    let function = load_reduce();
    let (launched, captured) = (stream(CU_STREAM_NON_BLOCKING), stream(CU_STREAM_NON_BLOCKING));
    let (mut graph, mut exec) = (std::ptr::null_mut(), std::ptr::null_mut());
    cuStreamBeginCapture_v2(captured, 0).unwrap();
    reduce(function, 1, 1, captured).unwrap();
    cuStreamEndCapture(captured, Ptr::of(&mut graph)).unwrap();
    cuGraphInstantiateWithFlags(Ptr::of(&mut exec), handle(graph), 0).unwrap();
    // Each launch of the graph is the next collective of its rank.
    for _ in 0..3 {
        reduce(function, 1, 0, launched).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert_eq!(cuStreamQuery(launched), Err(CUresult::ERROR_NOT_READY));
        cuGraphLaunch(handle(exec), captured).unwrap();
        cuStreamSynchronize(launched).unwrap();
        cuStreamSynchronize(captured).unwrap();
    }
    cuGraphExecDestroy(handle(exec)).unwrap();
}

#[test]
fn rank_beyond_the_number_of_ranks_is_refused() {
    let _test = begin_test();
    assert_eq!(reduce(load_reduce(), 2, 2, legacy()), Err(CUresult::ERROR_INVALID_VALUE));
}
