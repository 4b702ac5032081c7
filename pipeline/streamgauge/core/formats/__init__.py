"""The formats in which streams are written.

sse.py             server-sent events
json_text.py       JSON text -> values; cut_json.py: of an object whose middle is missing
json_validator.py  whether text that comes in pieces is valid JSON
"""
