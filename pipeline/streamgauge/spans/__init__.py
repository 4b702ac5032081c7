"""Records as OpenTelemetry spans, sent by OTLP/HTTP (`--otlp`). `span.py` makes a span of a record, `sender.py` sends spans.

Both need the extra `otlp`, and only `cli/span_export.py` imports them.
"""
