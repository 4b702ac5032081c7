"""The key: its fingerprint is that of every copy, and it is never made or shown."""

import shutil
from pathlib import Path

from streamgauge.doctor.key_file import fingerprint
from streamgauge.recorder.installation_key import installation_key
from tests.doctor.examined import FAIL, OK, installation, only


def test_a_missing_key_is_not_made(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o700)
    seen = only("key", installation("tap", tmp_path))
    assert (seen.level, "the first start makes one" in seen.says) == (OK, True)
    assert list((tmp_path / "data").iterdir()) == []


def test_installations_with_one_key_have_one_fingerprint(tmp_path: Path) -> None:
    one, other, copy = (tmp_path / name for name in ("one", "other", "copy"))
    for folder in (one, other, copy):
        (folder / "data").mkdir(parents=True, mode=0o700)
    key = installation_key(one / "data")
    installation_key(other / "data")
    shutil.copy2(one / "data" / "key", copy / "data" / "key")
    says = [only("key", installation("up", folder)).says for folder in (one, other, copy)]
    assert says[0] == says[2] != says[1]
    assert fingerprint(key) in says[0]
    assert key.hex() not in says[0]


def test_a_key_that_others_can_read_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o700)
    installation_key(tmp_path / "data")
    (tmp_path / "data" / "key").chmod(0o644)
    seen = only("key", installation("up", tmp_path))
    assert (seen.level, "can read or change the key" in seen.says) == (FAIL, True)
    assert seen.cure.startswith("chmod 600 ")
