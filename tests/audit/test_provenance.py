"""What a result was made of can be named: files by their bytes, options by their values."""

import hashlib
from pathlib import Path

import pytest

from streamgauge.audit.provenance import provenance
from streamgauge.audit.result import InvoiceUsed
from streamgauge.errors import UsageFault


def test_the_order_of_files_and_options_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / "map.toml").write_bytes(b"[tenants]\n")
    first, second = (InvoiceUsed(name, name * 64, "x", 1, None, None) for name in "ab")
    one = provenance(
        "list 1", "d", [first, second], {"--a": 1, "--b": "x"}, {"--map": str(tmp_path / "map.toml"), "--scope": None}
    )
    other = provenance(
        "list 1", "d", [second, first], {"--b": "x", "--a": 1, "--c": None}, {"--map": str(tmp_path / "map.toml")}
    )
    assert one == other
    assert one.options == {"--a": "1", "--b": "x"}
    assert one.files == {"--map": hashlib.sha256(b"[tenants]\n").hexdigest()}
    assert one.price_list == "list 1"


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageFault, match=r"--map .*none cannot be read"):
        provenance("list 1", "d", [], {}, {"--map": str(tmp_path / "none")})
