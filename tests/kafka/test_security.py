"""Connections to brokers: files are checked for each connection, names verified, no secret shown; every client uses it."""

import ast
import asyncio
import ssl
from pathlib import Path

import pytest
import trustme
from aiokafka.client import AIOKafkaClient

from streamgauge.kafka.security import Brokers, FollowingContext, Login, Mechanism, Password, Protocol, TlsFiles
from streamgauge.worker.faust.app import create_app
from streamgauge.worker.settings import WorkerSettings
from tests.kafka_broker.secured import written

PACKAGE = Path(__file__).parent.parent.parent / "pipeline" / "streamgauge"
SECRET = "a-secret-not-to-be-shown"


def authority(folder: Path, name: str) -> tuple[trustme.CA, Path]:
    made, path = trustme.CA(), folder / name
    made.cert_pem.write_to_path(path)
    return made, path


def replace(path: Path, content: bytes) -> None:
    """As operators and orchestrators do it: at once, by another file."""
    other = path.with_suffix(".new")
    other.write_bytes(content)
    other.replace(path)


def test_the_protocol_is_what_was_given() -> None:
    tls, login = TlsFiles(), Login("u", Password(SECRET))
    assert Brokers("b:1").protocol is Protocol.PLAINTEXT
    assert Brokers("b:1", tls).protocol is Protocol.SSL
    assert Brokers("b:1", None, login).protocol is Protocol.SASL_PLAINTEXT
    assert Brokers("b:1", tls, login).protocol is Protocol.SASL_SSL


def test_no_secret_shows(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(SECRET)
    for password in (Password(SECRET), Password(file=file)):
        brokers = Brokers("b:1", TlsFiles(), Login("u", password, Mechanism.PLAIN))
        settings = WorkerSettings(brokers, tmp_path)
        app = create_app(settings, lambda message: None, None)
        for shown in (brokers, brokers.options(), settings, app.conf.broker_credentials, vars(app.conf)):
            assert SECRET not in repr(shown)
            assert SECRET not in str(shown)


@pytest.mark.parametrize("given", [SECRET, f"/{SECRET}", f"{SECRET}/{SECRET}", f"/no/such/{SECRET}", SECRET * 100])
def test_a_password_in_place_of_its_file_is_not_quoted(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="the password file cannot be read: ") as refused:
        Password(file=Path(given).absolute())
    assert SECRET not in str(refused.value)


def test_a_password_s_file_is_named_where_its_directory_is_there(tmp_path: Path) -> None:
    for file, why in ((tmp_path / "missing", "No such file or directory"), (tmp_path, "Is a directory")):
        with pytest.raises(ValueError, match=f"the password file {file} cannot be read: {why}$"):
            Password(file=file)


def test_password_file_is_read_again_and_the_last_password_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "password"
    file.write_text("one\n")
    password = Password(file=file)
    assert password.now() == "one"
    replace(file, b"two")
    assert password.now() == "two"
    assert caplog.messages == []
    replace(file, b"")
    assert [password.now(), password.now()] == ["two"] * 2
    file.unlink()
    assert password.now() == "two"
    replace(file, b"three")
    assert password.now() == "three"
    file.unlink()
    assert password.now() == "three"
    missing = f"the password file {file} cannot be read: No such file or directory; the previous password stays in use"
    assert caplog.messages == [
        f"the password file {file} does not contain exactly one line with a password; the previous password stays in use",
        missing,
        missing,
    ]


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe", b"a\nb", b"a\0b", b"x" * 5000])
def test_a_file_that_holds_no_password_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "password"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=str(file)):
        Password(file=file)


def test_aiokafkas_client_reads_the_password_for_each_connection(tmp_path: Path) -> None:
    """It is the way to a rotated password; where aiokafka keeps it elsewhere, this fails first."""
    file = tmp_path / "password"
    file.write_text("one")

    async def look() -> tuple[str, str]:
        brokers = Brokers("b:1", None, Login("u", Password(file=file)))
        client = AIOKafkaClient(**brokers.options())
        before = client._sasl_plain_password
        replace(file, b"two")
        return before, client._sasl_plain_password

    assert asyncio.run(look()) == ("one", "two")

    async def plain() -> str | None:
        return AIOKafkaClient(bootstrap_servers="b:1", sasl_plain_password="as it is")._sasl_plain_password

    assert asyncio.run(plain()) == "as it is"


def test_faust_gets_what_aiokafka_needs(tmp_path: Path) -> None:
    login = Login("u", Password(SECRET), Mechanism.SCRAM_SHA_256)
    for brokers, protocol in (
        (Brokers("b:1", TlsFiles(), login), "SASL_SSL"),
        (Brokers("b:1", None, login), "SASL_PLAINTEXT"),
        (Brokers("b:1", TlsFiles()), "SSL"),
    ):
        from faust.transport.drivers.aiokafka import credentials_to_aiokafka_auth

        app = create_app(WorkerSettings(brokers, tmp_path), lambda message: None, None)
        given = credentials_to_aiokafka_auth(app.conf.broker_credentials, app.conf.ssl_context)
        wanted = brokers.security()
        assert str(getattr(given["security_protocol"], "value", given["security_protocol"])) == protocol
        assert {name: given.get(name) for name in wanted if name not in ("security_protocol", "sasl_mechanism")} == {
            name: value for name, value in wanted.items() if name not in ("security_protocol", "sasl_mechanism")
        }
        assert given.get("sasl_mechanism") == wanted.get("sasl_mechanism")


# --- TLS ---------------------------------------------------------------------------------------------------------------


async def meet(context: ssl.SSLContext, server: ssl.SSLContext, name: str = "localhost") -> str:
    """One handshake; gives the client's common name as the server saw it. Raises what the client's side raises."""
    seen: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        shown = writer.get_extra_info("peercert") or {}
        names = dict(pair for pairs in shown.get("subject", ()) for pair in pairs)
        seen.set_result(names.get("commonName", ""))
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=server) as listening:
        port = listening.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name)
        found = await asyncio.wait_for(seen, 10)
        writer.close()
        return found


def serving(signed: trustme.LeafCert, clients: trustme.CA | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    signed.configure_cert(context)
    if clients is not None:
        clients.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def test_authority_and_name_are_checked(tmp_path: Path) -> None:
    ours, path = authority(tmp_path, "ca.pem")
    theirs, _ = authority(tmp_path, "other.pem")
    context = FollowingContext(TlsFiles(path))
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert asyncio.run(meet(context, serving(ours.issue_cert("localhost")))) == ""
    for signed in (theirs.issue_cert("localhost"), ours.issue_cert("elsewhere.example")):
        with pytest.raises(ssl.SSLCertVerificationError):
            asyncio.run(meet(context, serving(signed)))


def test_renewed_files_are_used_at_the_next_connection(tmp_path: Path) -> None:
    ours, path = authority(tmp_path, "ca.pem")
    next_one, next_path = authority(tmp_path, "next.pem")
    shown = written(tmp_path / "client.pem", ours.issue_cert("a.example", common_name="first"))
    context = FollowingContext(TlsFiles(path, shown))
    assert asyncio.run(meet(context, serving(ours.issue_cert("localhost"), ours))) == "first"
    renewed = written(tmp_path / "renewed.pem", next_one.issue_cert("a.example", common_name="second"))
    replace(shown, renewed.read_bytes())
    replace(path, next_path.read_bytes())
    assert asyncio.run(meet(context, serving(next_one.issue_cert("localhost"), next_one))) == "second"
    with pytest.raises(ssl.SSLCertVerificationError):  # who was trusted before is trusted no more
        asyncio.run(meet(context, serving(ours.issue_cert("localhost"))))


def test_files_that_become_invalid_are_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ours, path = authority(tmp_path, "ca.pem")
    context = FollowingContext(TlsFiles(path))
    replace(path, b"half a fi")
    for _ in range(3):
        assert asyncio.run(meet(context, serving(ours.issue_cert("localhost")))) == ""
    assert len(caplog.messages) == 1
    assert "the previous files stay in use" in caplog.messages[0]


@pytest.mark.parametrize("content", [None, b"", b"no certificate"])
def test_invalid_files_are_refused_at_creation(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "some.pem"
    if content is not None:
        file.write_bytes(content)
    for files in (TlsFiles(file), TlsFiles(None, file)):
        with pytest.raises(ValueError, match=f"{file}.* cannot be used"):
            Brokers("b:1", files)


def test_a_locked_key_does_not_ask_the_terminal(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    trustme.CA().issue_cert("a.example").cert_chain_pems[0].write_to_path(certificate)
    made = ec.generate_private_key(ec.SECP256R1())
    key.write_bytes(made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x")))
    with pytest.raises(ValueError, match="is encrypted"):
        Brokers("b:1", TlsFiles(None, certificate, key))


# --- every client uses the settings ------------------------------------------------------------------------------------

CLIENTS = {"AIOKafkaConsumer", "AIOKafkaProducer", "AIOKafkaAdminClient", "AIOKafkaClient"}


def calls(path: Path, names: set[str]) -> list[ast.Call]:
    text = path.read_text()
    if not any(name in text for name in names):  # to parse all modules takes seconds
        return []
    found = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    return [
        call
        for call in found
        if (isinstance(call.func, ast.Name) and call.func.id in names)
        or (isinstance(call.func, ast.Attribute) and call.func.attr in names)
    ]


@pytest.mark.slow
def test_every_client_of_kafka_is_made_with_the_brokers_own_options() -> None:
    made = [(path, call) for path in sorted(PACKAGE.rglob("*.py")) for call in calls(path, CLIENTS)]
    assert len(made) >= 6
    for path, call in made:
        spread = [ast.unparse(given.value) for given in call.keywords if given.arg is None]
        assert any(one.endswith(".options()") for one in spread), f"{path.name}:{call.lineno} has no security"
        assert "bootstrap_servers" not in {given.arg for given in call.keywords}, f"{path.name}:{call.lineno}"
    [(path, app)] = [(path, call) for path in PACKAGE.rglob("*.py") for call in calls(path, {"App"})]
    assert "broker_credentials" in {given.arg for given in app.keywords}


@pytest.mark.slow
def test_the_bare_address_of_the_settings_is_read_in_one_place() -> None:
    """A client that uses settings.kafka alone as the address would connect in plain text."""
    for path in sorted(PACKAGE.rglob("*.py")):
        if path == PACKAGE / "cli" / "kafka_options.py":
            continue
        text = path.read_text()
        if "kafka" not in text:  # to parse all modules takes seconds
            continue
        tree = ast.parse(text)
        tests = {id(node.operand) for node in ast.walk(tree) if isinstance(node, ast.UnaryOp)}
        tests |= {id(node.test) for node in ast.walk(tree) if isinstance(node, ast.If | ast.IfExp)}
        tests |= {id(node.left) for node in ast.walk(tree) if isinstance(node, ast.Compare)}
        tests |= {id(value) for node in ast.walk(tree) if isinstance(node, ast.BoolOp) for value in node.values}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr == "kafka" and isinstance(node.ctx, ast.Load):
                expression = ast.unparse(node.value)
                assert expression != "settings" or id(node) in tests, f"{path.name}:{node.lineno} uses the bare address"
