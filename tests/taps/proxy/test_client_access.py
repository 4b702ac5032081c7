"""Who may use the proxy, with real clients: the official OpenAI client, httpx and curl, with tokens and with certificates."""

import json
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import httpx2
import pytest
import trustme

from streamgauge.recorder.protocol import Message, RequestStarted
from streamgauge.spool.read_counters import Incident, Refusal, read_refusals
from streamgauge.taps.proxy import client_access
from streamgauge.taps.proxy import relay as relay_module
from streamgauge.taps.proxy.client_access import MIN_TOKEN, ClientAccess, ClientTokens, certificate_name
from streamgauge.taps.proxy.request import Request
from tests.running import wait_for
from tests.taps.proxy.pki import Pki, make_pki, write
from tests.taps.proxy.rig import (
    RawRecorder,
    RawUpstream,
    RunningRelay,
    receive_all,
    receive_request,
    settings_for,
)

# The client takes long to import, and each test process imports this module.
if TYPE_CHECKING:
    from openai import OpenAI

ALICE, OLD, BOB = "a" * 32, "o" * 32, "b" * 32
TOKENS = f'alice = ["{ALICE}", "{OLD}"]\n"team/bob" = "{BOB}"\n'
ANSWER = json.dumps(
    {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
    }
).encode()
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(ANSWER), ANSWER)
PATH = "/v1/chat/completions"


def tokens_in(folder: Path, text: str = TOKENS) -> Path:
    path = folder / "tokens.toml"
    path.write_text(text)
    path.chmod(0o600)
    return path


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return make_pki(tmp_path_factory.mktemp("pki"))


class Protected:
    """A relay that authenticates clients. `heads`: the heads that its upstream got."""

    def __init__(self, relay: RunningRelay, recorder: RawRecorder, heads: list[bytes], folder: Path) -> None:
        self.relay, self.recorder, self.heads, self._folder = relay, recorder, heads, folder

    @property
    def refused(self) -> int:
        return read_refusals(self._folder / "counters")[Refusal.CLIENT_UNAUTHORIZED]

    def names(self, count: int) -> list[str | None]:
        """The clients' names of the first `count` exchanges, as their taps reported them."""
        return [one.client_name for one in started(self.recorder.wait(lambda found: len(started(found)) >= count))]


def started(messages: list[Message]) -> list[RequestStarted]:
    return [one for one in messages if isinstance(one, RequestStarted)]


@contextmanager
def protected(folder: Path, say: Callable[[str], None] = lambda _: None, **settings: object) -> Iterator[Protected]:
    heads: list[bytes] = []

    def answer(one: object) -> None:
        while request := receive_request(one):  # type: ignore[arg-type]
            heads.append(request.partition(b"\r\n\r\n")[0])
            one.sendall(OK)  # type: ignore[attr-defined]

    with (
        RawUpstream(answer) as upstream,
        RawRecorder(folder / "recorder.sock") as recorder,
        RunningRelay(settings_for(folder, upstream.url, **settings), say=say) as relay,
    ):
        yield Protected(relay, recorder, heads, folder)


def ask(client: "OpenAI") -> str | None:
    made = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}])
    return made.choices[0].message.content


def openai_with(
    relay: RunningRelay, scheme: str = "http", tls: ssl.SSLContext | bool = True, **headers: str
) -> "OpenAI":
    from openai import OpenAI

    return OpenAI(
        base_url=f"{scheme}://127.0.0.1:{relay.port}/v1",
        api_key="sk-of-the-upstream",
        max_retries=0,
        default_headers={name.replace("_", "-"): value for name, value in headers.items()},
        http_client=httpx2.Client(verify=tls, trust_env=False),
    )


# Tokens.


@pytest.mark.slow
def test_clients_need_a_token_which_names_them_and_does_not_reach_the_upstream(tmp_path: Path) -> None:
    with protected(tmp_path, client_token_file=tokens_in(tmp_path)) as rig:
        url = f"http://127.0.0.1:{rig.relay.port}{PATH}"
        with openai_with(rig.relay, X_Streamgauge_Token=ALICE) as client:
            assert ask(client) == "hi"
        with httpx.Client(trust_env=False) as client:
            assert client.post(url, json={}, headers={"X-Streamgauge-Token": OLD}).status_code == 200
            assert client.post(url, json={}, headers={"Proxy-Authorization": f"Bearer {BOB}"}).status_code == 200
        curl = ["curl", "-sS", "-o", str(tmp_path / "out"), "-w", "%{http_code}", "-d", "{}", "-H"]
        code = subprocess.run([*curl, f"x-streamgauge-token: {BOB}", url], check=True, capture_output=True).stdout
        assert code == b"200"
        assert rig.names(4) == ["alice", "alice", "team/bob", "team/bob"]
        assert len(rig.heads) == 4
        for head in rig.heads:
            assert b"streamgauge-token" not in head.lower() and b"proxy-authorization" not in head.lower()
            assert not any(token.encode() in head for token in (ALICE, OLD, BOB))
        assert b"Bearer sk-of-the-upstream" in rig.heads[0]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-Streamgauge-Token": "c" * 32},
        {"X-Streamgauge-Token": ALICE[:-1]},
        {"X-Streamgauge-Token": ALICE + "a"},
        {"X-Streamgauge-Token": ""},
        {"Authorization": f"Bearer {ALICE}"},
        {"Proxy-Authorization": f"Basic {ALICE}"},
        {"X-Streamgauge-Token": "c" * 32, "Proxy-Authorization": f"Bearer {ALICE}"},
    ],
)
def test_a_request_without_a_valid_token_is_refused_and_leaves_no_record(
    tmp_path: Path, headers: dict[str, str]
) -> None:
    import openai

    lines: list[str] = []
    with protected(tmp_path, lines.append, client_token_file=tokens_in(tmp_path)) as rig:
        with httpx.Client(base_url=f"http://127.0.0.1:{rig.relay.port}", trust_env=False) as client:
            refused = client.post(PATH, json={}, headers=headers)
            assert (refused.status_code, refused.json()["error"]["code"]) == (401, "client_unauthorized")
            assert client.post(PATH, json={}, headers={"X-Streamgauge-Token": ALICE}).status_code == 200
        with pytest.raises(openai.AuthenticationError), openai_with(rig.relay) as client:
            ask(client)
        assert rig.refused == 2
        assert rig.names(1) == ["alice"]  # the refused requests began no exchange
        assert len(rig.heads) == 1
    assert len(lines) == 1 and ALICE not in lines[0]


def test_two_tokens_in_one_request_are_refused(tmp_path: Path) -> None:
    with protected(tmp_path, client_token_file=tokens_in(tmp_path)) as rig, rig.relay.connect() as client:
        field = b"X-Streamgauge-Token: %b\r\n" % ALICE.encode()
        client.sendall(b"GET /x HTTP/1.1\r\nHost: c\r\n" + field * 2 + b"\r\n")
        assert receive_all(client).startswith(b"HTTP/1.1 401 ")


def test_without_the_setting_a_token_goes_to_no_upstream_either(tmp_path: Path) -> None:
    with protected(tmp_path) as rig, openai_with(rig.relay, X_Streamgauge_Token=ALICE) as client:
        assert ask(client) == "hi"
        assert rig.names(1) == [None]
        assert ALICE.encode() not in rig.heads[0]


def test_a_changed_file_is_used_and_an_unusable_one_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_module, "CHECK_S", 0.05)
    lines: list[str] = []
    file = tokens_in(tmp_path)
    with (
        protected(tmp_path, lines.append, client_token_file=file) as rig,
        httpx.Client(base_url=f"http://127.0.0.1:{rig.relay.port}", trust_env=False) as client,
    ):

        def status(token: str) -> int:
            return client.post(PATH, json={}, headers={"X-Streamgauge-Token": token}).status_code

        assert (status(OLD), status("n" * 32)) == (200, 401)
        (tmp_path / "new").write_text(f'alice = ["{"n" * 32}", "{ALICE}"]')
        (tmp_path / "new").chmod(0o600)
        (tmp_path / "new").replace(file)
        wait_for(lambda: "the tokens of clients were reloaded" in lines, "the reload")
        assert (status("n" * 32), status(ALICE), status(OLD), status(BOB)) == (200, 200, 401, 401)
        (tmp_path / "new").write_text("alice = 1")
        (tmp_path / "new").chmod(0o600)
        (tmp_path / "new").replace(file)
        wait_for(lambda: any("stays in use" in line for line in lines), "the refusal of the file")
        assert status(ALICE) == 200


def test_a_name_is_found_by_a_digest_however_many_clients_there_are(tmp_path: Path) -> None:
    """The time of a lookup by digest says nothing about a token."""
    others = "".join(f'client-{number} = "{number:032}"\n' for number in range(10_000))
    tokens = ClientTokens(tokens_in(tmp_path, TOKENS + others))
    for token, name in ((ALICE, "alice"), (BOB, "team/bob"), ("x", None), ("", None), ("y" * 5000, None)):
        assert tokens.name_of(token.encode()) == name
    began = time.process_time()
    assert not any(tokens.name_of(b"%032d" % number) for number in range(10_000, 13_000))
    assert time.process_time() - began < 0.5  # a comparison with each token would take 3,000 times 1 ms


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "holds no token"),
        ("a = []", "holds no token"),
        ('a = "short"', f"at least {MIN_TOKEN}"),
        (f'a = "{"s" * 20} {"s" * 20}"', f"at least {MIN_TOKEN}"),
        (f'"a b" = "{ALICE}"', "name may have"),
        (f'"" = "{ALICE}"', "name may have"),
        (f'a = "{ALICE}"\nb = "{ALICE}"', "the same token"),
        ("a = 1", "lines of the form"),
        (f"a = {ALICE}", "lines of the form"),
        ("#" * (client_access.MAX_FILE + 1), "more than"),
    ],
)
def test_an_unusable_file_is_a_sentence_without_a_token(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as fault:
        ClientTokens(tokens_in(tmp_path, text))
    assert "s" * 20 not in str(fault.value) and ALICE not in str(fault.value)


def test_a_missing_file_and_one_that_others_may_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        ClientTokens(tmp_path / "missing")
    file = tokens_in(tmp_path)
    for mode in (0o604, 0o602, 0o644):
        file.chmod(mode)
        with pytest.raises(ValueError, match="chmod 600"):
            ClientTokens(file)
    file.chmod(0o400)
    assert ClientTokens(file).name_of(BOB.encode()) == "team/bob"


# Certificates.


def trusting(pki: Pki, certificate: Path | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=pki.ca)
    if certificate is not None:
        context.load_cert_chain(certificate)
    return context


@pytest.mark.slow
def test_with_a_client_ca_only_clients_with_its_certificates_get_through(tmp_path: Path, pki: Pki) -> None:
    import openai

    alice = write(tmp_path, "alice.pem", pki.authority.issue_cert("alice.example", common_name="Alice"))
    forged = write(tmp_path, "forged.pem", trustme.CA().issue_cert("alice.example"))
    with protected(tmp_path, tls_certificate=pki.server, tls_client_ca=pki.ca) as rig:
        url = f"https://127.0.0.1:{rig.relay.port}{PATH}"
        with openai_with(rig.relay, "https", trusting(pki, alice)) as client:
            assert ask(client) == "hi"
        with httpx.Client(verify=trusting(pki, pki.client), trust_env=False) as client:
            assert client.post(url, json={}).status_code == 200
        curl = [
            "curl",
            "-sS",
            "--cacert",
            str(pki.ca),
            "-d",
            "{}",
            "-w",
            "%{http_code}",
            "-o",
            str(tmp_path / "out"),
            url,
        ]
        assert subprocess.run([*curl, "--cert", str(alice)], check=True, capture_output=True).stdout == b"200"
        for wrong in (None, forged):
            given = [] if wrong is None else ["--cert", str(wrong)]
            refused = subprocess.run([*curl, *given], check=False, capture_output=True)
            assert refused.returncode != 0 and refused.stdout == b"000"
            with (
                pytest.raises(httpx.TransportError),
                httpx.Client(verify=trusting(pki, wrong), trust_env=False) as client,
            ):
                client.post(url, json={})
            with (
                pytest.raises(openai.APIConnectionError),
                openai_with(rig.relay, "https", trusting(pki, wrong)) as client,
            ):
                ask(client)
        assert rig.names(3) == ["alice.example", "tap@example.com", "alice.example"]
        assert len(rig.heads) == 3
        wait_for(lambda: rig.relay.incidents(Incident.TLS_REFUSED) == 6, "the refused handshakes")


def test_a_removed_ca_is_no_longer_trusted_once_its_file_has_changed(
    tmp_path: Path, pki: Pki, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_module, "CHECK_S", 0.05)
    second = trustme.CA()
    bob = write(tmp_path, "bob.pem", second.issue_cert("bob.example"))
    authorities, lines = tmp_path / "clients.pem", list[str]()
    pki.authority.cert_pem.write_to_path(authorities)
    with protected(tmp_path, lines.append, tls_certificate=pki.server, tls_client_ca=authorities) as rig:

        def status(certificate: Path) -> int | None:
            with httpx.Client(verify=trusting(pki, certificate), trust_env=False) as client:
                try:
                    return client.post(f"https://127.0.0.1:{rig.relay.port}{PATH}", json={}).status_code
                except httpx.TransportError:
                    return None

        assert (status(pki.client), status(bob)) == (200, None)
        second.cert_pem.write_to_path(tmp_path / "next.pem")
        (tmp_path / "next.pem").replace(authorities)
        wait_for(lambda: "the TLS certificate was reloaded" in lines, "the reload")
        assert (status(pki.client), status(bob)) == (None, 200)


def test_a_token_names_the_client_before_its_certificate(tmp_path: Path, pki: Pki) -> None:
    import openai

    tokens = tokens_in(tmp_path)
    with protected(tmp_path, tls_certificate=pki.server, tls_client_ca=pki.ca, client_token_file=tokens) as rig:
        tls = trusting(pki, pki.client)
        with openai_with(rig.relay, "https", tls, X_Streamgauge_Token=BOB) as client:
            assert ask(client) == "hi"
        with pytest.raises(openai.AuthenticationError), openai_with(rig.relay, "https", tls) as client:
            ask(client)
        assert rig.names(1) == ["team/bob"]


def test_the_name_in_a_certificate() -> None:
    common = ((("organizationName", "x"),), (("commonName", "Alice-1"),))
    dns, uri = ("DNS", "a.example"), ("URI", "spiffe://a/b")
    assert certificate_name({"subject": common, "subjectAltName": (("IP Address", "1.2.3.4"), uri, dns)}) == uri[1]
    assert certificate_name({"subject": common, "subjectAltName": (dns, uri)}) == dns[1]
    assert certificate_name({"subject": common}) == "Alice-1"
    assert certificate_name({"subject": ((("commonName", "two words"),),), "subjectAltName": (dns,)}) == dns[1]
    assert certificate_name({"subject": ((("commonName", "two words"),),)}) is None
    assert certificate_name({}) is None and certificate_name(None) is None


def test_access_without_settings_admits_all() -> None:
    request = Request(b"GET", b"/", 1, [], True, 0)
    ClientAccess(None, by_certificate=False).admit(request, None)  # type: ignore[arg-type]
    assert request.client_name is None
