"""The messages of the protocol against tritonclient's, which were generated from the protocol's own file."""

from google.protobuf import descriptor
from tritonclient.grpc import service_pb2

from sluice.serve import messages


def kind(field):
    return (field.number, field.type, field.is_repeated, field.message_type.full_name if field.message_type else None, field.containing_oneof.name if field.containing_oneof else None)


def fields(message: descriptor.Descriptor):
    return {field.name: kind(field) for field in message.fields}


def test_every_field_is_the_one_of_the_protocol():
    compared = 0
    for path, made in messages.CLASSES.items():
        theirs = service_pb2.DESCRIPTOR.message_types_by_name[path.partition(".")[0]]
        if "." in path:
            theirs = theirs.nested_types_by_name[path.partition(".")[2]]
        for name, field in fields(made.DESCRIPTOR).items():
            assert fields(theirs)[name] == field, f"{path}.{name}"
            compared += 1
    assert compared > 40


def test_every_method_is_one_of_the_protocol():
    service = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]
    for name in messages.METHODS:
        method = service.methods_by_name[name]
        assert (method.input_type.name, method.output_type.name) == (f"{name}Request", f"{name}Response")
