"""What a new user pastes: the base URL of an upstream for clients, and a curl line that streams an answer through it.

Clients of Anthropic and Gemini add the version of the API themselves; those of OpenAI and compatible servers take it in their
base URL.
"""

import ipaddress
import json
import re
from typing import NamedTuple
from urllib.parse import urlsplit

from streamgauge.live.answers import Client
from streamgauge.runtime.listeners import reachable_host
from streamgauge.settings.declarations import Settings
from streamgauge.settings.types import Upstream, version_at_end

_QUESTION = "Name a river."
_VERSION_WITHIN = re.compile(r"/v[0-9]+(?:(?:alpha|beta)[0-9]*)?/", re.ASCII)


class _Form(NamedTuple):
    """How an API is asked. `base`: the end of clients' base URL; `path`: of the request; `headers`: for curl, with variables
    of the shell; `model`: one that exists, or MODEL; `body`: what is sent besides the model.
    """

    base: str
    path: str
    headers: tuple[str, ...]
    model: str
    body: dict[str, object]


_MESSAGES = [{"role": "user", "content": _QUESTION}]
_CHAT: dict[str, object] = {
    "stream": True,
    "stream_options": {"include_usage": True},
    "messages": _MESSAGES,
}
# Forms by the end of the upstream's host. Sources: the providers' own API references.
_FORMS = {
    "api.openai.com": _Form(
        "/v1", "/v1/chat/completions", ("authorization: Bearer $OPENAI_API_KEY",), "gpt-4o-mini", _CHAT
    ),
    "api.anthropic.com": _Form(
        "",
        "/v1/messages",
        ("x-api-key: $ANTHROPIC_API_KEY", "anthropic-version: 2023-06-01"),
        "claude-sonnet-4-5",
        {"stream": True, "max_tokens": 200, "messages": _MESSAGES},
    ),
    "generativelanguage.googleapis.com": _Form(
        "",
        "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse",
        ("x-goog-api-key: $GEMINI_API_KEY",),
        "",
        {"contents": [{"parts": [{"text": _QUESTION}]}]},
    ),
    ".openai.azure.com": _Form(
        "/openai/v1", "/openai/v1/chat/completions", ("api-key: $AZURE_OPENAI_API_KEY",), "MODEL", _CHAT
    ),
}


class FirstRequest(NamedTuple):
    """base_url: for clients. curl: a command for a shell."""

    base_url: str
    curl: str


def first_request(upstream: Upstream, proxy: str, *, has_tokens: bool) -> FirstRequest:
    """What reaches an upstream through the proxy. `proxy`: its URL; `has_tokens`: it asks clients for a token."""
    prefix = f"{proxy}/{upstream.name}" if upstream.name else proxy
    form = _form_of(upstream)
    body = {"model": form.model} | form.body if form.model else form.body
    headers = ["content-type: application/json", *form.headers]
    if has_tokens:
        headers.append("x-streamgauge-token: $STREAMGAUGE_TOKEN")
    # In double quotes the shell puts the values of variables in; nothing else in these texts is special there.
    words = " ".join(f'-H "{header}"' for header in headers)
    return FirstRequest(f"{prefix}{form.base}", f"curl -sN '{prefix}{form.path}' {words} -d '{json.dumps(body)}'")


def clients_of(settings: Settings) -> list[Client]:
    """What the page shows of each upstream while it has no stream; none for a proxy whose port is not known, or with TLS."""
    if not settings.listen.port or settings.tls_certificate is not None:
        return []
    proxy, has_tokens = f"http://{reachable(str(settings.listen))}", settings.client_token_file is not None
    asks = [(upstream, first_request(upstream, proxy, has_tokens=has_tokens)) for upstream in settings.upstream]
    return [Client(upstream.name or upstream.url, ask.base_url, ask.curl) for upstream, ask in asks]


def reachable(address: str) -> str:
    """HOST:PORT of a listener as a client on this host writes it: for all addresses that of the loopback."""
    host, _, port = address.rpartition(":")
    return f"{reachable_host(host)}:{port}"


def _form_of(upstream: Upstream) -> _Form:
    parts = urlsplit(upstream.url)
    host = parts.hostname or ""
    version = version_at_end(upstream.url)
    for end, form in _FORMS.items():
        is_of = host == end or (end.startswith(".") and host.endswith(end))
        if is_of and parts.path.rstrip("/") in ("", version):
            return form
    # A URL such as https://host/v1beta/openai has its version already.
    base = version or ("" if _VERSION_WITHIN.search(parts.path) else "/v1")
    headers = () if _is_near(host) else ("authorization: Bearer $API_KEY",)
    return _Form(base, f"{base}/chat/completions", headers, "MODEL", _CHAT)


def _is_near(host: str) -> bool:
    """Whether a host is one of an own network, whose servers mostly need no key."""
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return "." not in host
