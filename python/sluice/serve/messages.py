"""The messages of the open inference protocol (KServe v2) for gRPC, https://github.com/kserve/open-inference-protocol.

They are built when this module is imported, in a pool of their own: no generated code is kept, any version of protobuf fits, and another
library with the same messages, such as tritonclient, can be used in the same process. A test compares them with tritonclient's.
"""

from __future__ import annotations

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "inference"
SERVICE = f"{PACKAGE}.GRPCInferenceService"
TENSOR = "name: string=1, datatype: string=2, shape: int64*=3"
FILLED = f"{TENSOR}, parameters: map=4, contents: InferTensorContents=5"

# Field: type=number; * is repeated, `map` is a map from strings to InferParameter.
MESSAGES = {
    "ServerLiveRequest": "", "ServerLiveResponse": "live: bool=1",
    "ServerReadyRequest": "", "ServerReadyResponse": "ready: bool=1",
    "ModelReadyRequest": "name: string=1, version: string=2", "ModelReadyResponse": "ready: bool=1",
    "ServerMetadataRequest": "", "ServerMetadataResponse": "name: string=1, version: string=2, extensions: string*=3",
    "ModelMetadataRequest": "name: string=1, version: string=2",
    "ModelMetadataResponse": "name: string=1, versions: string*=2, platform: string=3, inputs: ModelMetadataResponse.TensorMetadata*=4, outputs: ModelMetadataResponse.TensorMetadata*=5",
    "ModelMetadataResponse.TensorMetadata": TENSOR,
    "ModelInferRequest": "model_name: string=1, model_version: string=2, id: string=3, parameters: map=4, inputs: ModelInferRequest.InferInputTensor*=5, "
                         "outputs: ModelInferRequest.InferRequestedOutputTensor*=6, raw_input_contents: bytes*=7",
    "ModelInferRequest.InferInputTensor": FILLED,
    "ModelInferRequest.InferRequestedOutputTensor": "name: string=1, parameters: map=2",
    "ModelInferResponse": "model_name: string=1, model_version: string=2, id: string=3, parameters: map=4, outputs: ModelInferResponse.InferOutputTensor*=5, raw_output_contents: bytes*=6",
    "ModelInferResponse.InferOutputTensor": FILLED,
    "InferParameter": "bool_param: bool=1, int64_param: int64=2, string_param: string=3, double_param: double=4, uint64_param: uint64=5",
    "InferTensorContents": "bool_contents: bool*=1, int_contents: int32*=2, int64_contents: int64*=3, uint_contents: uint32*=4, uint64_contents: uint64*=5, "
                           "fp32_contents: float*=6, fp64_contents: double*=7, bytes_contents: bytes*=8",
}
# The messages of which at most one field is set.
ONE_OF = {"InferParameter": "parameter_choice"}
METHODS = ("ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelMetadata", "ModelInfer")
Field = descriptor_pb2.FieldDescriptorProto


def add_field(message: descriptor_pb2.DescriptorProto, path: str, text: str) -> None:
    """Adds the field that `text` describes to the message at `path`."""
    name, _, rest = text.partition(": ")
    kind, _, number = rest.partition("=")
    field = message.field.add(name=name, number=int(number), label=Field.LABEL_REPEATED if kind.endswith("*") or kind == "map" else Field.LABEL_OPTIONAL)
    kind = kind.rstrip("*")
    if kind == "map":
        entry = message.nested_type.add(name="".join(word.capitalize() for word in name.split("_")) + "Entry")
        entry.options.map_entry = True
        add_field(entry, "", "key: string=1")
        add_field(entry, "", "value: InferParameter=2")
        kind = f"{path}.{entry.name}"
    if kind[0].isupper():
        field.type, field.type_name = Field.TYPE_MESSAGE, f".{PACKAGE}.{kind}"
    else:
        field.type = getattr(Field, f"TYPE_{kind.upper()}")
    if path in ONE_OF:
        field.oneof_index = 0


def build() -> dict[str, type]:
    """The class of each message, by its path."""
    file = descriptor_pb2.FileDescriptorProto(name="sluice/open_inference.proto", package=PACKAGE, syntax="proto3")
    found: dict[str, descriptor_pb2.DescriptorProto] = {}
    for path, fields in MESSAGES.items():
        outer, _, name = path.rpartition(".")
        found[path] = message = found[outer].nested_type.add(name=name) if outer else file.message_type.add(name=name)
        if path in ONE_OF:
            message.oneof_decl.add(name=ONE_OF[path])
        for text in filter(None, fields.split(", ")):
            add_field(message, path, text)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {path: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{path}")) for path in MESSAGES}


CLASSES = build()
