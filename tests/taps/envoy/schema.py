"""The parts of Envoy's API v3 that the tap reads, as messages of Google's own protobuf library: what tests encode with, and
an oracle for what the tap decodes. Field numbers are those of Envoy's .proto files.
"""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto

_TYPES = {
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "string": FieldDescriptorProto.TYPE_STRING,
    "int32": FieldDescriptorProto.TYPE_INT32,
    "int64": FieldDescriptorProto.TYPE_INT64,
    "uint64": FieldDescriptorProto.TYPE_UINT64,
    "double": FieldDescriptorProto.TYPE_DOUBLE,
}
# Each message: its fields as "NUMBER NAME TYPE", "*" after the type of a repeated one.
_MESSAGES = {
    "HeaderValue": ("1 key string", "2 value string", "3 raw_value bytes"),
    "HeaderMap": ("1 headers HeaderValue*",),
    "HttpHeaders": ("1 headers HeaderMap", "3 end_of_stream bool"),
    "HttpBody": ("1 body bytes", "2 end_of_stream bool"),
    "HttpTrailers": ("1 trailers HeaderMap",),
    "Value": ("2 number_value double", "3 string_value string"),
    "StructEntry": ("1 key string", "2 value Value"),
    "Struct": ("1 fields StructEntry*",),
    "AttributesEntry": ("1 key string", "2 value Struct"),
    "ProcessingRequest": (
        "2 request_headers HttpHeaders", "3 response_headers HttpHeaders", "4 request_body HttpBody",
        "5 response_body HttpBody", "6 request_trailers HttpTrailers", "7 response_trailers HttpTrailers",
        "9 attributes AttributesEntry*", "10 observability_mode bool",
    ),
    "Time": ("1 seconds int64", "2 nanos int32"),
    "ResponseFlags": tuple(f"{number} flag_{number} bool" for number in range(1, 29)),
    "AccessLogCommon": (
        "5 start_time Time", "9 time_to_first_upstream_rx_byte Time", "10 time_to_last_upstream_rx_byte Time",
        "16 response_flags ResponseFlags", "18 upstream_transport_failure_reason string", "23 duration Time",
        "27 intermediate_log_entry bool", "33 access_log_type int32",
    ),
    "RequestProperties": ("9 request_id string",),
    "ResponseProperties": ("3 response_body_bytes uint64", "6 response_code_details string"),
    "Entry": (
        "1 common_properties AccessLogCommon", "3 request RequestProperties", "4 response ResponseProperties",
    ),
    "Entries": ("1 log_entry Entry*",),
    "StreamAccessLogsMessage": ("2 http_logs Entries",),
}  # fmt: skip


def _made() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="envoy_parts.proto", package="parts", syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for text in fields:
            number, of_field, kind = text.split()
            field = message.field.add(name=of_field, number=int(number))
            repeated = (
                FieldDescriptorProto.LABEL_REPEATED if kind.endswith("*") else FieldDescriptorProto.LABEL_OPTIONAL
            )
            field.label = repeated
            kind = kind.rstrip("*")
            field.type = _TYPES.get(kind, FieldDescriptorProto.TYPE_MESSAGE)
            if kind not in _TYPES:
                field.type_name = f".parts.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"parts.{name}")) for name in _MESSAGES}


MESSAGES = _made()


def headers(*pairs: tuple[str, str], ends: bool = False) -> Any:
    """HttpHeaders, as Envoy sends them: values in `raw_value`."""
    fields = [MESSAGES["HeaderValue"](key=name, raw_value=value.encode()) for name, value in pairs]
    return MESSAGES["HttpHeaders"](headers=MESSAGES["HeaderMap"](headers=fields), end_of_stream=ends)


def body(data: bytes, *, ends: bool = False) -> Any:
    return MESSAGES["HttpBody"](body=data, end_of_stream=ends)


def processing(*, observed: bool = True, attributes: dict[str, str] | None = None, **part: Any) -> bytes:
    """An encoded ProcessingRequest with this part."""
    message = MESSAGES["ProcessingRequest"](observability_mode=observed, **part)
    if attributes:
        entries = [
            MESSAGES["StructEntry"](key=name, value=MESSAGES["Value"](string_value=value))
            for name, value in attributes.items()
        ]
        message.attributes.add(key="envoy.filters.http.ext_proc", value=MESSAGES["Struct"](fields=entries))
    return bytes(message.SerializeToString())


def time(ns: int) -> Any:
    return MESSAGES["Time"](seconds=ns // 10**9, nanos=ns % 10**9)


def entry(
    request_id: str = "id-1",
    started_ns: int = 0,
    *flags: int,
    first_rx_ns: int | None = None,
    last_rx_ns: int | None = None,
    duration_ns: int | None = None,
    details: str = "",
    failure: str = "",
    body_bytes: int = 0,
    kind: int = 6,
    intermediate: bool = False,
) -> Any:
    """A HTTPAccessLogEntry."""
    common = MESSAGES["AccessLogCommon"](
        start_time=time(started_ns),
        upstream_transport_failure_reason=failure,
        access_log_type=kind,
        intermediate_log_entry=intermediate,
    )
    if flags:
        common.response_flags.CopyFrom(MESSAGES["ResponseFlags"](**{f"flag_{number}": True for number in flags}))
    for name, ns in (
        ("time_to_first_upstream_rx_byte", first_rx_ns),
        ("time_to_last_upstream_rx_byte", last_rx_ns),
        ("duration", duration_ns),
    ):
        if ns is not None:
            getattr(common, name).CopyFrom(time(ns))
    return MESSAGES["Entry"](
        common_properties=common,
        request=MESSAGES["RequestProperties"](request_id=request_id),
        response=MESSAGES["ResponseProperties"](response_code_details=details, response_body_bytes=body_bytes),
    )


def log(*entries: Any) -> bytes:
    """An encoded StreamAccessLogsMessage."""
    logs = MESSAGES["Entries"](log_entry=entries)
    return bytes(MESSAGES["StreamAccessLogsMessage"](http_logs=logs).SerializeToString())
