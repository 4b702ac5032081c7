"""The operator's map (`--map FILE`, TOML): which provider an upstream is, and which keys of a provider a tenant has.

[upstreams]
openai-eu = "openai"                                 # an upstream's name, and the provider's

[tenants]
river = ["proj_3f", "key_77", "River production"]    # ids and names of projects, workspaces and keys

[meters]
"gpt 4.1 cached Inp glbl" = {model = "gpt-4.1", kind = "input_cached"}    # by the name or id that a cloud's bill has
"Units of x" = {model = "x", kind = "output", multiple = 1000}            # tokens of a unit, if its name does not say it
"Bing grounding" = {charge = "web_search"}                                # no tokens
"""

import re
from collections.abc import Mapping as Map
from dataclasses import dataclass, field

from streamgauge.audit.amounts import KINDS
from streamgauge.audit.invoices import Meter, Meters
from streamgauge.audit.result import CHARGES
from streamgauge.core.toml_text import NotTomlError, parse_toml
from streamgauge.errors import UsageFault

# Upstreams that are named by their host: taps without names.
_HOSTS = {
    "api.openai.com": "openai",
    "api.anthropic.com": "anthropic",
    "openrouter.ai": "openrouter",
    "api.deepseek.com": "deepseek",
    "api.fireworks.ai": "fireworks",
    "api.groq.com": "groq",
    "generativelanguage.googleapis.com": "google cloud",
}
# Upstreams that are named as LiteLLM and Helicone name the clouds.
_NAMES = {
    "azure": "microsoft",
    "azure_ai": "microsoft",
    "bedrock": "aws",
    "gemini": "google cloud",
    "vertex_ai": "google cloud",
    "fireworks_ai": "fireworks",
}
# The ends of hosts that have a name for each resource or region of a cloud.
_CLOUD_HOSTS = (
    (".openai.azure.com", "microsoft"),
    (".services.ai.azure.com", "microsoft"),
    (".cognitiveservices.azure.com", "microsoft"),
    ("aiplatform.googleapis.com", "google cloud"),
)
_BEDROCK_HOST = re.compile(r"bedrock-runtime[a-z-]*\.[a-z0-9-]+\.amazonaws\.com")
# Tokens of a unit: the largest that clouds bill by is a million.
MAX_MULTIPLE = 1_000_000_000
_METER_KEYS = frozenset({"model", "kind", "multiple", "tier"})
_TABLES = ("upstreams", "tenants", "meters")


@dataclass(frozen=True)
class Mapping:
    """`providers`: by upstream. `tenants`: by the id or name that a provider uses. `meters`: the meters of clouds."""

    providers: Map[str, str] = field(default_factory=dict)
    tenants: Map[str, str] = field(default_factory=dict)
    meters: Meters = field(default_factory=dict)

    def provider_of(self, upstream: str | None) -> str:
        """The provider of an upstream: as mapped, else by its host, else its own name in lower case."""
        if upstream is None:
            return ""
        return self.providers.get(upstream) or _provider_of_host(upstream.lower())

    def our_key(self, tenant: str | None, credential_id: str | None) -> str | None:
        """The key of one of our streams: its tenant, else the tenant of its credential, else the credential's id."""
        if tenant is not None or credential_id is None:
            return tenant
        return self.tenants.get(credential_id, credential_id)

    def their_key(self, names: tuple[str, ...]) -> str | None:
        """The key of an invoice's row: the tenant of the first of its names that is mapped, else its first name."""
        for name in names:
            if (tenant := self.tenants.get(name)) is not None:
                return tenant
        return names[0] if names else None


def _provider_of_host(upstream: str) -> str:
    host = upstream.partition(":")[0]
    if _BEDROCK_HOST.fullmatch(host):
        return "aws"
    cloud = next((provider for end, provider in _CLOUD_HOSTS if host.endswith(end)), None)
    return cloud or _HOSTS.get(host) or _NAMES.get(host, upstream)


def mapping_of(text: str, source: str) -> Mapping:
    """The map in a TOML text. Raises UsageFault, which names `source` and what to write."""
    try:
        tables = parse_toml(text.encode())
    except NotTomlError as error:
        raise UsageFault(f"--map {source} is not TOML: {error}") from None
    for name, table in tables.items():
        if name not in _TABLES or not isinstance(table, dict):
            raise UsageFault(f"--map {source}: {name} is not one of the tables {', '.join(_TABLES)}")
    return Mapping(
        _providers(tables.get("upstreams", {}), source),
        _tenants(tables.get("tenants", {}), source),
        _meters(tables.get("meters", {}), source),
    )


def _providers(table: Map[str, object], source: str) -> dict[str, str]:
    for upstream, provider in table.items():
        if not isinstance(provider, str) or not provider:
            raise UsageFault(f'--map {source}: write [upstreams] lines as {upstream} = "provider"')
    return {upstream: str(provider).lower() for upstream, provider in table.items()}


def _tenants(table: Map[str, object], source: str) -> dict[str, str]:
    tenant_of: dict[str, str] = {}
    for tenant, names in table.items():
        if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
            raise UsageFault(f'--map {source}: write [tenants] lines as {tenant} = ["id or name", ...]')
        for name in names:
            if tenant_of.setdefault(name, tenant) != tenant:
                raise UsageFault(f"--map {source}: {name} belongs to two tenants, {tenant_of[name]} and {tenant}")
    return tenant_of


def _meters(table: Map[str, object], source: str) -> dict[str, Meter]:
    return {name: _meter(name, entry, source) for name, entry in table.items()}


def _meter(name: str, entry: object, source: str) -> Meter:
    """A meter: a model and a kind of token, with the tokens of a unit and the tier if they are given; or a charge."""
    given = entry if isinstance(entry, dict) else {}
    model, kind, multiple, tier = (given.get(key) for key in ("model", "kind", "multiple", "tier"))
    if given.keys() == {"charge"} and given["charge"] in CHARGES:
        return Meter(None, None, charge=str(given["charge"]))
    is_multiple = multiple is None or (
        isinstance(multiple, int) and not isinstance(multiple, bool) and 0 < multiple <= MAX_MULTIPLE
    )
    if (
        given.keys() <= _METER_KEYS
        and isinstance(model, str)
        and model
        and kind in KINDS
        and is_multiple
        and (tier is None or isinstance(tier, str))
    ):
        return Meter(model, str(kind), multiple, tier)
    kinds = ", ".join(KINDS)
    raise UsageFault(
        f'--map {source}: write [meters] {name} = {{model = "...", kind = one of {kinds}}}, and if its unit does not say it '
        f"multiple = the tokens of a unit; or {{charge = one of {', '.join(CHARGES)}}}"
    )
