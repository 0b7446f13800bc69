"""URLFrontier's messages as protobuf has them, made here: names, numbers and types of its API."""

from __future__ import annotations

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_STRING, _UINT64, _MESSAGE = 9, 4, 11
_ONE, _MANY = 1, 3


def url_item():
    """The class of `urlfrontier.URLItem`."""
    file = descriptor_pb2.FileDescriptorProto(name="frontier.proto", package="urlfrontier", syntax="proto3")
    values = _message(file, "StringList")
    _field(values, "values", 1, _STRING, label=_MANY)
    info = _message(file, "URLInfo")
    _field(info, "url", 1, _STRING)
    _field(info, "key", 2, _STRING)
    entry = info.nested_type.add(name="MetadataEntry")
    entry.options.map_entry = True
    _field(entry, "key", 1, _STRING)
    _field(entry, "value", 2, _MESSAGE, "StringList")
    _field(info, "metadata", 3, _MESSAGE, "URLInfo.MetadataEntry", label=_MANY)
    _field(info, "crawlID", 4, _STRING)
    known = _message(file, "KnownURLItem")
    _field(known, "info", 1, _MESSAGE, "URLInfo")
    _field(known, "refetchable_from_date", 2, _UINT64)
    found = _message(file, "DiscoveredURLItem")
    _field(found, "info", 1, _MESSAGE, "URLInfo")
    item = _message(file, "URLItem")
    item.oneof_decl.add(name="item")
    _field(item, "discovered", 1, _MESSAGE, "DiscoveredURLItem").oneof_index = 0
    _field(item, "known", 2, _MESSAGE, "KnownURLItem").oneof_index = 0
    _field(item, "ID", 3, _STRING)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("urlfrontier.URLItem"))


def _message(file, name):
    return file.message_type.add(name=name)


def _field(message, name, number, kind, of=None, label=_ONE):
    field = message.field.add(name=name, number=number, type=kind, label=label)
    if of:
        field.type_name = f".urlfrontier.{of}"
    return field
