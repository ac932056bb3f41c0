"""The contract reads the same in C and in Python: every field, both ways, with what is easy to get wrong."""
import itertools
import subprocess

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from conftest import BIN

ECHO = BIN / "tests/proto/echo_message"

with open(BIN / "proto/descriptors.pb", "rb") as f:
    FILES = descriptor_pb2.FileDescriptorSet.FromString(f.read())
POOL = descriptor_pool.DescriptorPool()
for file in FILES.file:
    POOL.Add(file)
FACTORY = message_factory.MessageFactory(POOL)
NAMES = [file.package + "." + m.name for file in FILES.file for m in file.message_type]

TEXT = "a\0b é 語 😀"
EXTREMES = {
    "TYPE_FLOAT": -1.5, "TYPE_DOUBLE": 2.0 ** -1074, "TYPE_BOOL": True, "TYPE_STRING": TEXT, "TYPE_BYTES": b"\0\xff\xfe",
    "TYPE_INT32": -2 ** 31, "TYPE_INT64": -2 ** 63, "TYPE_UINT32": 2 ** 32 - 1, "TYPE_UINT64": 2 ** 64 - 1,
}
ZEROS = {
    "TYPE_FLOAT": 0.0, "TYPE_DOUBLE": 0.0, "TYPE_BOOL": False, "TYPE_STRING": "", "TYPE_BYTES": b"",
    "TYPE_INT32": 0, "TYPE_INT64": 0, "TYPE_UINT32": 0, "TYPE_UINT64": 0,
}
TYPE_NAMES = {v: k for k, v in descriptor_pb2.FieldDescriptorProto.Type.items()}


def fill(message, values, choice):
    """Sets every field; of a oneof the choice-th member."""
    for field in message.DESCRIPTOR.fields:
        oneof = field.containing_oneof
        # A proto3 `optional` is a oneof of one member.
        if oneof is not None and len(oneof.fields) > 1 and oneof.fields[choice % len(oneof.fields)] is not field:
            continue
        repeated = field.label == field.LABEL_REPEATED
        if field.message_type is not None:
            for target in ([getattr(message, field.name).add() for _ in range(2)] if repeated else [getattr(message, field.name)]):
                target.SetInParent()
                fill(target, values, choice)
            continue
        if field.enum_type is not None:
            value = field.enum_type.values[-1 if values is EXTREMES else 0].number
        else:
            value = values[TYPE_NAMES[field.type]]
        if repeated:
            getattr(message, field.name).extend([value, ZEROS.get(TYPE_NAMES[field.type], value), value])
        else:
            setattr(message, field.name, value)


def through_c(message):
    done = subprocess.run([ECHO, message.DESCRIPTOR.full_name], input=message.SerializeToString(), stdout=subprocess.PIPE, check=True)
    return done.stdout


@pytest.mark.parametrize("name", NAMES)
def test_every_field_survives_c(name):
    cls = FACTORY.GetPrototype(POOL.FindMessageTypeByName(name))
    for values, choice in itertools.product([EXTREMES, ZEROS], range(7)):
        sent = cls()
        fill(sent, values, choice)
        packed = through_c(sent)
        # The same bytes: what C packs is what Python packs, presence of zeros included.
        assert packed == sent.SerializeToString(), (name, choice)
        assert cls.FromString(packed) == sent


@pytest.mark.parametrize("name", NAMES)
def test_unset_stays_unset_in_c(name):
    cls = FACTORY.GetPrototype(POOL.FindMessageTypeByName(name))
    assert through_c(cls()) == b""


def test_no_message_is_recursive():
    def walk(d, above):
        assert d.full_name not in above, above
        for f in d.fields:
            if f.message_type is not None:
                walk(f.message_type, above + [d.full_name])
    for name in NAMES:
        walk(POOL.FindMessageTypeByName(name), [])


def test_every_scalar_tells_unset_from_zero():
    for name in NAMES:
        for f in POOL.FindMessageTypeByName(name).fields:
            if f.label != f.LABEL_REPEATED:
                assert f.has_presence if hasattr(f, "has_presence") else f.containing_oneof is not None or f.message_type, f.full_name


def test_no_field_is_called_base():
    # protobuf-c gives every message a member of that name.
    for name in NAMES:
        assert "base" not in [f.name for f in POOL.FindMessageTypeByName(name).fields]
