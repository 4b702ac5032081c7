"""What an error of a client's library says of the end of an exchange, for each library by its own classes."""

import http.client
import socket
import ssl

import botocore.exceptions
import httpx
import httpx2
import pytest
import urllib3.exceptions

from streamgauge.core.capture.segments import Ending, TransportFault
from streamgauge.taps.inprocess.endings import ending_of, fault_of


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


URL = {"endpoint_url": "http://a"}
POOL: urllib3.HTTPConnectionPool = urllib3.HTTPConnectionPool("a")
FAULTS: list[tuple[Exception, TransportFault | None]] = [
    (httpx.ConnectTimeout("x"), TransportFault.CONNECT_TIMEOUT),
    (httpx2.ReadTimeout("x"), TransportFault.IDLE_TIMEOUT),
    (httpx.RemoteProtocolError("Server disconnected without sending a response."), TransportFault.CLOSED),
    (httpx.RemoteProtocolError("illegal status line"), TransportFault.NOT_HTTP),
    (httpx.ConnectError("x"), TransportFault.UNREACHABLE),
    (caused(httpx.ConnectError("x"), socket.gaierror()), TransportFault.DNS),
    (botocore.exceptions.ConnectTimeoutError(**URL), TransportFault.CONNECT_TIMEOUT),
    (botocore.exceptions.ReadTimeoutError(**URL), TransportFault.IDLE_TIMEOUT),
    (caused(botocore.exceptions.EndpointConnectionError(**URL), ConnectionRefusedError()), TransportFault.REFUSED),
    (
        caused(botocore.exceptions.SSLError(**URL, error="x"), ssl.SSLCertVerificationError()),
        TransportFault.TLS_CERTIFICATE,
    ),
    (
        caused(botocore.exceptions.ConnectionClosedError(**URL), http.client.RemoteDisconnected("x")),
        TransportFault.CLOSED,
    ),
    (urllib3.exceptions.ReadTimeoutError(POOL, "/", "x"), TransportFault.IDLE_TIMEOUT),
    (urllib3.exceptions.ProtocolError("Response ended prematurely"), TransportFault.CLOSED),
    (urllib3.exceptions.ProtocolError("Connection aborted."), None),
    (caused(urllib3.exceptions.ProtocolError("x"), http.client.IncompleteRead(b"")), TransportFault.CLOSED),
    (caused(urllib3.exceptions.ProtocolError("x"), ConnectionResetError()), TransportFault.RESET),
    (ValueError("closed"), None),
]


@pytest.mark.parametrize(("error", "fault"), FAULTS, ids=lambda value: str(value)[:40])
def test_the_fault_that_an_error_shows(error: Exception, fault: TransportFault | None) -> None:
    assert fault_of(error) is fault


def test_a_chain_of_causes_that_never_ends() -> None:
    one, other = ValueError(), ValueError()
    one.__cause__, other.__cause__ = other, one
    assert fault_of(one) is None


@pytest.mark.parametrize(
    ("error", "ending"),
    [
        (botocore.exceptions.ConnectTimeoutError(**URL), Ending.TIMEOUT),
        (botocore.exceptions.ReadTimeoutError(**URL), Ending.TIMEOUT),
        (urllib3.exceptions.ReadTimeoutError(POOL, "/", "x"), Ending.TIMEOUT),
        (botocore.exceptions.ConnectionClosedError(**URL), Ending.RESET),
        (urllib3.exceptions.ProtocolError("x"), Ending.RESET),
    ],
)
def test_the_ending_that_an_error_of_botocore_shows(error: Exception, ending: Ending) -> None:
    assert ending_of(error) is ending
