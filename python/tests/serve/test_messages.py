"""The messages of the protocol against tritonclient's, which were generated from the protocol's own file."""

from google.protobuf import descriptor
from tritonclient.grpc import service_pb2

from sluice.serve import messages


def kind(field):
    return (field.number, field.type, field.is_repeated, field.message_type.full_name if field.message_type else None, field.containing_oneof.name if field.containing_oneof else None)


def fields(message: descriptor.Descriptor):
    return {field.name: kind(field) for field in message.fields}


def test_every_message_has_the_fields_of_the_protocol_and_no_others():
    compared = 0
    for path, made in messages.CLASSES.items():
        theirs = service_pb2.DESCRIPTOR.message_types_by_name[path.partition(".")[0]]
        if "." in path:
            theirs = theirs.nested_types_by_name[path.partition(".")[2]]
        assert fields(made.DESCRIPTOR) == fields(theirs), path
        compared += len(made.DESCRIPTOR.fields)
        # Every message that a field names is one that is compared here; a map's entry is its own.
        nested = {name for name, each in theirs.nested_types_by_name.items() if not each.GetOptions().map_entry}
        assert {name for name in nested if f"{path}.{name}" not in messages.CLASSES} == set(), path
    assert compared > 40


def test_every_method_is_one_of_the_protocol():
    service = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]
    for name in messages.METHODS:
        method = service.methods_by_name[name]
        assert (method.input_type.name, method.output_type.name) == (f"{name}Request", f"{name}Response")
