"""The health check of the image: exit code 0 if the admin port answers /health/ready with 200.

The port is that of STREAMGAUGE_ADMIN; without it, the default one of a tap or of a worker. TLS is used if
STREAMGAUGE_ADMIN_TLS_CERTIFICATE is set; the certificate is not verified, since it names another host. http.client is used
because urllib would go through a proxy of the environment.
"""

import http.client
import os
import ssl
import sys

DEFAULTS = (9464, 9465)
# Less than the timeout of HEALTHCHECK for both ports (seconds).
TIMEOUT_S = 2


def is_ready(port: int) -> bool:
    """Whether the process whose admin port this is can do its work."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    if os.environ.get("STREAMGAUGE_ADMIN_TLS_CERTIFICATE"):
        unverified = ssl._create_unverified_context()  # noqa: S323 - it asks itself, by an address that no certificate names
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=TIMEOUT_S, context=unverified)
    try:
        connection.request("GET", "/health/ready")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def ports() -> tuple[int, ...]:
    """The ports that may be the admin port."""
    given = os.environ.get("STREAMGAUGE_ADMIN", "").rpartition(":")[2]
    return (int(given),) if given.isdecimal() else DEFAULTS


if __name__ == "__main__":
    sys.exit(not any(map(is_ready, ports())))
