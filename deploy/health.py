"""The health check of the image: exit code 0 if the admin port answers /health/ready with 200.

The address is that of STREAMGAUGE_ADMIN; without it, the default one of a tap or of a worker. TLS is used if
STREAMGAUGE_ADMIN_TLS_CERTIFICATE is set; the certificate is not verified, since it names another host. http.client is used
because urllib would go through a proxy of the environment.
"""

import http.client
import os
import ssl
import sys

DEFAULTS = (9464, 9465)
# By which address a process asks a listener of this host: of the default one, and of all interfaces.
LOCAL = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - it connects
# Less than the timeout of HEALTHCHECK for both ports (seconds).
TIMEOUT_S = 2


def is_ready(host: str, port: int) -> bool:
    """Whether the process whose admin port this is can do its work."""
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    if os.environ.get("STREAMGAUGE_ADMIN_TLS_CERTIFICATE"):
        unverified = ssl._create_unverified_context()  # noqa: S323 - it asks itself, by an address that no certificate names
        connection = http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=unverified)
    try:
        # The admin port accepts this name at each of its addresses.
        connection.request("GET", "/health/ready", headers={"Host": "localhost"})
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def addresses() -> list[tuple[str, int]]:
    """The addresses that may be that of the admin port."""
    host, _, port = os.environ.get("STREAMGAUGE_ADMIN", "").rpartition(":")
    host = host.strip("[]")
    if not port.isdecimal():
        return [(LOCAL[""], default) for default in DEFAULTS]
    return [(LOCAL.get(host, host), int(port))]


if __name__ == "__main__":
    sys.exit(not any(is_ready(*address) for address in addresses()))
