import pytest

pytest.importorskip("tiktoken", reason="needs the extra `recount`")
