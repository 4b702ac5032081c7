"""Forms of masked events: many at a time become what they become one by one."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.core.assembly.forms import BLANK, Hole
from streamgauge.core.masking.mask_forms import (
    Mask,
    MaskForm,
    mask_id,
    mask_line,
    mask_same,
    mask_text,
    masked_column,
)

TEXT = MaskForm([b'data: {"t":"', b'"}'], [Hole.TEXT], [b'data: {"t":"', b'"}'], [mask_text])
# An id, which is gone, and a count, which stays.
USAGE = MaskForm(
    [b'data: {"i":"', b'","n":', b"}"],
    [Hole.STRING, Hole.USAGE],
    [b'data: {"m":"masked","n":', b"}"],
    [None, mask_same],
)
INSIDES = st.sampled_from(
    [b"a", b"abc", "ü".encode(), rb"\n", rb"\u00e9", rb"\ud800", b'"', b"\\", b"", b"\x00", b"\xff", b"\n\n"]
)


@pytest.mark.parametrize(("form", "frame"), [(TEXT, b'data: {"t":"%b"}'), (USAGE, b'data: {"i":"%b","n":12}')])
@given(insides=st.lists(INSIDES, max_size=8))
def test_many_are_the_same_as_one_by_one(form: MaskForm, frame: bytes, insides: list[bytes]) -> None:
    blocks = [frame % inside for inside in insides]
    count, masked = form.mask(blocks)
    each = form.each(blocks)
    assert (len(each), b"".join(each)) == (count, masked)
    for block, became in zip(blocks, each, strict=False):
        assert form.one(block + BLANK) == became
        assert form.plain(block + BLANK) in (None, became)
    if count == 0 and len(blocks) == 1:
        assert form.one(blocks[0] + BLANK) is None


def test_what_is_gone_is_gone_and_what_is_kept_stays() -> None:
    assert USAGE.each([b'data: {"i":"secret","n":12}', b'data: {"i":"other","n":7}', b'data: {"i":1,"n":7}']) == [
        b'data: {"m":"masked","n":12}\n\n',
        b'data: {"m":"masked","n":7}\n\n',
    ]


@pytest.mark.parametrize(
    ("mask", "value", "became"),
    [
        (mask_text, "aü🌲".encode(), b"xxx"),
        (mask_text, rb"a\n\u00e9\ud83d\ude00", b"xxxx"),
        (mask_text, rb"\x", None),
        (mask_text, b"\xff", None),
        (mask_line, b"a\xff", b"xx"),
        (mask_id, b"call_1", b"call_1"),
        (mask_id, "ü".encode(), b"masked"),
        (mask_same, b"12", b"12"),
    ],
)
def test_how_a_value_is_masked(mask: Callable[[bytes], bytes | None], value: bytes, became: bytes | None) -> None:
    assert mask(value) == became


@given(st.lists(INSIDES, max_size=6), st.sampled_from([mask_text, mask_line, mask_id, mask_same]))
def test_a_column_is_masked_as_its_values_are(values: list[bytes], mask: Mask) -> None:
    assert list(masked_column(mask, values)) == [mask(value) for value in values]
