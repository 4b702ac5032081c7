"""The model of a request whose body is a form: of any form, in bounded time."""

import time

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.core.dialects import model_in_form, names_model_in_form

FIELD = b'\r\nContent-Disposition: form-data; name="model"\r\n'


@pytest.mark.parametrize(
    ("form", "model"),
    [
        (b"--b" + FIELD + b"\r\nm-1\r\n--b--", "m-1"),
        (b"--b" + FIELD + b"Content-Type: text/plain; charset=utf-8\r\nX: y\r\n\r\n m-1 \r\n--b--", "m-1"),
        (b"--b\r\ncontent-disposition:form-data; NAME=model\r\n\r\nm-1\r\n", "m-1"),
        (b"--b" + FIELD + b"\r\n" + "mödel".encode() + b"\r\n", "mödel"),
        (b"--b" + FIELD + b"\r\nm-1", None),  # the end of what was kept
        (b"--b" + FIELD + b"\r\n\r\n--b--", None),
        (b"--b" + FIELD + b"\r\n" + b"m" * 201 + b"\r\n", None),
        (b'--b\r\nContent-Disposition: form-data; name="model_2"\r\n\r\nm-1\r\n', None),
        (b'--b\r\nContent-Disposition: form-data; name="model"; filename="a"\r\n\r\nm-1\r\n', None),
        (b"", None),
    ],
)
def test_the_field_is_found(form: bytes, model: str | None) -> None:
    assert model_in_form(form) == model


@given(st.dictionaries(st.sampled_from(["prompt", "language", "n"]), st.text(max_size=20)), st.binary(max_size=99))
def test_a_form_of_httpx_names_its_model(fields: dict[str, str], content: bytes) -> None:
    request = httpx.Request("POST", "http://a", data={**fields, "model": "m-1"}, files={"file": ("a.wav", content)})
    assert model_in_form(request.read()) == "m-1"


@given(st.binary(max_size=200))
def test_any_bytes_are_searched(data: bytes) -> None:
    model_in_form(data)
    model_in_form(b"--b" + FIELD + data)


@pytest.mark.parametrize(
    "hostile", [FIELD * 1_400, b"\nContent-Disposition:" + b"; name=" * 9_000, b"\ncontent-disposition:;" * 3_000]
)
def test_a_hostile_form_takes_little_time(hostile: bytes) -> None:
    begun = time.thread_time()
    model_in_form(hostile)
    assert time.thread_time() - begun < 1  # by far: it takes milliseconds


def test_which_requests_are_forms() -> None:
    assert names_model_in_form("POST", "/openai/v1/audio/transcriptions?a=b")
    assert not names_model_in_form("GET", "/v1/audio/transcriptions")
    assert not names_model_in_form("POST", "/v1/audio/speech")
