"""What a row of a cloud's bill counts: its model and kind of token, by the name of its meter, and its tokens, by its unit.

The operator's table ([meters] of --map) comes first. A name is read only as far as a public source shows its structure:

- Azure: meters of Foundry Models in Azure's retail price API (prices.azure.com): "gpt 4o mini 0718 Inp glbl Tokens",
  "gpt 4o 1120 cached Inp glbl Tokens", "GPT 5 outpt Glbl 1M Tokens", "5.4 opt Gl 1M Tokens" of "Azure OpenAI GPT5".
- AWS: usage types of AmazonBedrock and AmazonBedrockFoundationModels in the AWS Price List: "USE1-NovaLite-input-tokens",
  "USE1-NovaPro-cache-read-input-token-count", "USE1-MP:USE1_InputTokenCount_Global-Units" of "Claude Sonnet 4.6 (Amazon
  Bedrock Edition)", whose price is for "Million Input Tokens".
- Google: SKUs of the Gemini API and Vertex AI in the Cloud Billing Catalog: "Generate content cached input token count
  gemini 2.5 flash short input text", "Gemini 2.5 Pro Thinking Text Output - Predictions".
"""

import re
from collections.abc import Iterable
from decimal import Decimal
from functools import lru_cache

from streamgauge.audit.amounts import EXACT, Tokens
from streamgauge.audit.invoices.contract import BadFieldError, InvoiceLine, Meter, Meters, signs
from streamgauge.audit.invoices.values import MAX_COUNT, Values, money, shown, text

MICROSOFT, AWS, GOOGLE = "microsoft", "aws", "google cloud"
# How clouds name themselves in FOCUS, in lower case.
CLOUDS = {
    "microsoft": MICROSOFT,
    "microsoft azure": MICROSOFT,
    "azure": MICROSOFT,
    "aws": AWS,
    "amazon web services": AWS,
    "amazon web services, inc.": AWS,
    "google cloud": GOOGLE,
    "google cloud platform": GOOGLE,
    "google": GOOGLE,
}
# A row of a whole cloud's bill is for models if one of these words is in the name of its service, product or meter.
_SERVES_MODELS = re.compile(
    r"openai|foundry|bedrock|vertex|gemini|generative language|claude|anthropic|\bllm\b|tokens?\b|cognitive services"
    r"|mistral|deepseek|\bgrok\b|\bllama",
    re.IGNORECASE,
)
# A count of tokens, or a multiple of them: "Tokens", "1K tokens", "1,000,000 Tokens", "Million tokens", "1K", "1M", "count".
_UNIT = re.compile(
    r"(?:(?P<number>\d{1,3}(?:,\d{3})+|\d{1,9}) ?)?(?P<multiple>K|M|thousand|million)?(?: ?(?P<word>tokens?|counts?))?",
    re.IGNORECASE,
)
_MULTIPLES = {"": 1, "k": 1_000, "thousand": 1_000, "m": 1_000_000, "million": 1_000_000}
# A double holds 15 digits: sums of hours in it miss a whole number of tokens by less than this.
_NOISE = Decimal("0.001")
_TIERS = {"batch": "batch", "flex": "flex", "priority": "priority", "pp": "priority"}
# Units of what is no token: time, storage, requests, pages.
_NO_TOKENS = re.compile(
    r"hours?\b|\bhrs?\b|seconds?\b|minutes?\b|days?\b|month|bytes?\b|\b[kmgtp]i?b\b|gigabyte|gibibyte|requests?\b|images?\b"
    r"|pages?\b|characters?\b|quer(?:y|ies)\b|calls?\b|sessions?\b|records?\b|transactions?\b",
    re.IGNORECASE,
)
_MILLION = re.compile(r"\bmillion\b.*\btokens?\b", re.IGNORECASE)
_THOUSAND = re.compile(r"\b(?:1k|1,?000|thousand)\b.*\btokens?\b", re.IGNORECASE)


def serves_models(*names: str | None) -> bool:
    """Whether a row with these names of service, product and meter may be for a model."""
    return any(name is not None and _SERVES_MODELS.search(name) for name in names)


@lru_cache(maxsize=4_096)
def _read_name(cloud: str, name: str, about: str) -> Meter | None:
    return {MICROSOFT: _azure, AWS: _aws, GOOGLE: _google}[cloud](name, about)


def meter_of(names: Iterable[str | None], meters: Meters, provider: str, about: str = "") -> Meter | None:
    """What a row counts: by the first of its names in the operator's table, else by the structure of one of its names.

    `about`: what the provider says of the row's product beside its names. None: no name says it.
    """
    given = [name for name in names if name]
    for name in given:
        if (meter := meters.get(name)) is not None:
            return meter
    if provider not in (MICROSOFT, AWS, GOOGLE):
        return None
    return next((meter for name in given if (meter := _read_name(provider, name, about)) is not None), None)


def tokens_of(
    values: Values,
    quantities: Iterable[tuple[str, str]],
    meter: Meter | None,
    name: str,
    about: str = "",
    *,
    signed: bool,
) -> int | None:
    """The tokens of a row, by the first of its quantities (columns of a number and of its unit) with a unit of tokens.

    None: it counts no tokens. `meter`: what it counts, if that is known; `name`: of its meter; `about`: what else is said of
    it, for the decision whether it may count tokens; `signed`: whether it may be negative. Raises BadFieldError for a unit
    of tokens that is not known, and for parts of a token.
    """
    units: list[tuple[str, str]] = []
    for quantity, unit_column in quantities:
        amount, unit = money(values, quantity), text(values, unit_column)
        if amount is None:
            continue
        multiple = None if meter is None else meter.multiple
        if multiple is None and unit is not None:
            multiple = _multiple_of(unit, meter)
        if multiple is not None:
            return _whole(values, quantity, unit or "", amount, multiple, signed)
        if unit is not None or meter is not None:
            units.append((unit_column, unit or ""))
    if not units:
        if meter is None:
            return None
        raise BadFieldError(next(iter(quantities))[0], f"{shown(name)} counts tokens, and the row has no quantity")
    if meter is None and (
        all(_NO_TOKENS.search(unit) for _, unit in units)
        or not re.search(r"tokens?\b", f"{name} {about} {units}", re.IGNORECASE)
    ):
        return None
    column, unit = units[0]
    how = f'write {shown(name)} = {{model = "...", kind = "...", multiple = 1000}} in [meters] of --map, or'
    raise BadFieldError(
        column, f"{shown(unit)} may count tokens, and is no unit that is known: {how} {{charge = ...}} if it does not"
    )


def _multiple_of(unit: str, meter: Meter | None) -> int | None:
    match = _UNIT.fullmatch(unit.strip())
    if match is None or not any(match.groups()):
        return None
    if meter is None and (match["word"] or "").lower() not in ("token", "tokens"):
        return None  # a number without the word: only a meter that is known to count tokens says what it counts
    return int((match["number"] or "1").replace(",", "")) * _MULTIPLES[(match["multiple"] or "").lower()]


def _whole(values: Values, quantity: str, unit: str, amount: Decimal, multiple: int, signed: bool) -> int:
    tokens = EXACT.multiply(amount, Decimal(multiple))
    whole = tokens.to_integral_value()
    given = shown(values.get(quantity))
    if abs(tokens - whole) >= _NOISE:
        raise BadFieldError(quantity, f"{given} {unit} is a fraction of a token")
    if tokens < 0 and not signed:
        raise BadFieldError(quantity, f"{given} is negative, and the row is no correction")
    if abs(tokens) > MAX_COUNT:
        raise BadFieldError(quantity, f"{given} is too large for a count")
    return int(whole)


def metered(
    values: Values,
    quantities: Iterable[tuple[str, str]],
    line: InvoiceLine,
    meter: Meter | None,
    column: str,
    about: str = "",
    *,
    signed: bool,
) -> InvoiceLine:
    """A row of usage: `line`, which is for no tokens, or its model and tokens if it counts any.

    `column`: of the meter's name. The other parameters are those of `tokens_of`. Raises BadFieldError, also for a row of
    tokens whose meter is not known.
    """
    if meter is not None and meter.charge is not None:
        return line._replace(charge=meter.charge)
    name = text(values, column) or ""
    tokens = tokens_of(values, quantities, meter, name, about, signed=signed)
    if tokens is None:
        return line
    if meter is None:
        fault = f"{shown(name)} counts tokens: name its model and kind in [meters] of --map"
        raise BadFieldError(column, fault)
    counts = Tokens()._replace(**{str(meter.kind): tokens})
    return line._replace(model=meter.model, kind=meter.kind, tier=meter.tier, tokens=counts, charge=None, label=None)


# --- the structure of names -----------------------------------------------------------------------------------------

_AZURE_INPUT = signs("inp inpt input")
_AZURE_OUTPUT = signs("out outp outpt output opt")
_AZURE_CACHED = signs("cached cache cchd cd")
# Where it was served, the length of the context, the modality, and the unit: no part of a model's name.
_AZURE_OTHER = signs(
    "gl glbl global rgnl regnl regional reg dz dzn dzone datazone shortco longco txt text aud audio img image "
    "token tokens 1k 1m 1000"
)
# A meter that begins with a version leaves its family to the name of the product.
_AZURE_FAMILIES = (("deepseek", "deepseek"), ("grok", "grok"), ("gpt", "gpt"))


def _azure(name: str, product: str) -> Meter | None:
    words = [word for word in re.split(r"[\s_-]+", name.lower()) if word]
    kinds = [word for word in words if word in _AZURE_INPUT or word in _AZURE_OUTPUT]
    embeds = any(word.startswith("embed") for word in words)
    if "training" in words or len(set(kinds)) > 1 or not (kinds or embeds):
        return None
    kind = "output" if kinds and kinds[0] in _AZURE_OUTPUT else "input_uncached"
    if kind == "input_uncached" and _AZURE_CACHED & set(words):
        kind = "input_cached"
    tier = next((_TIERS[word] for word in words if word in _TIERS), None)
    known = _AZURE_INPUT | _AZURE_OUTPUT | _AZURE_CACHED | _AZURE_OTHER | _TIERS.keys()
    model = [word for place, word in enumerate(words) if word not in known or (embeds and not place)]
    if not model or words[-1] not in ("token", "tokens"):
        return None
    if model[0][0].isdigit() or model[0].startswith("v"):
        model[:0] = [family for mark, family in _AZURE_FAMILIES if mark in product.lower()][:1]
    return Meter("-".join(model), kind, tier=tier)


_AWS_REGION = re.compile(r"^(?:[A-Z]{2,4}\d?-)?(?:MP:)?(?:[A-Z]{3,4}\d_)?")
_AWS_KINDS = re.compile(r"[-_]?(?:text[-_])?(input|output|response|cache[-_]?read|cache[-_]?write)", re.IGNORECASE)
_AWS_EDITION = re.compile(r"(.+?)\s*\(Amazon Bedrock Edition\)", re.IGNORECASE)


def _aws(name: str, about: str) -> Meter | None:
    plain = _AWS_REGION.sub("", name)
    match = _AWS_KINDS.search(plain)
    if match is None or " " in plain or "token" not in plain.lower():
        return None
    kind = {"input": "input_uncached", "cacheread": "input_cached", "cachewrite": "input_cache_write"}.get(
        re.sub("[-_]", "", match[1].lower()), "output"
    )
    words = re.split(r"[-_]", plain[match.start() :].lower())
    if "custom" in words or "training" in words or "reserved" in words:
        return None
    tier = next((_TIERS[word] for word in words if word in _TIERS), None)
    edition = _AWS_EDITION.search(about)
    model = edition[1] if edition is not None else _hyphenated(plain[: match.start()])
    if not model:
        return None
    multiple = 1_000_000 if _MILLION.search(about) else 1_000 if _THOUSAND.search(about) else None
    return Meter(model, kind, multiple if plain.endswith("Units") else None, tier)


def _hyphenated(model: str) -> str:
    """A model's name of an AWS usage type with its words apart: Claude4.5Sonnet is claude-4.5-sonnet."""
    if "." in model and model.islower():  # qwen.qwen3-32b-mantle is an id already
        return model.removesuffix("-mantle")
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=\d)(?=[A-Z][a-z])", "-", model)
    apart = re.sub(r"^(Claude|Nova)(?=\d)", r"\1-", apart)
    return re.sub(r"-+", "-", apart).strip("-").lower()


_GOOGLE_COUNT = re.compile(
    r"(?:generate ?content|embed ?content|count tokens)?\s*(?P<before>.*?)\b(?P<side>input|output) token count\s*"
    r"(?:for )?(?P<model>.+)",
    re.IGNORECASE,
)
_GOOGLE_VERTEX = re.compile(r"(?P<model>(?:gemini|claude)\b.*?)\b(?P<side>input|output)\b(?P<after>.*)", re.IGNORECASE)
# What stands after a model's name: its modality, the length of the prompt, thinking, tier and cache.
_GOOGLE_OTHER = signs(
    "short long input output text image audio video thinking caching cached batch flex priority ga tokens token "
    "predictions"
)
# Gemini 1 is billed by characters on Vertex AI; from 2 on by tokens (cloud.google.com/vertex-ai/generative-ai/pricing).
_GEMINI_CHARACTERS = re.compile(r"gemini[ -]?1\b", re.IGNORECASE)


def _google(name: str, _: str) -> Meter | None:
    match = _GOOGLE_COUNT.fullmatch(name.strip())
    rest = ""
    if match is None:
        match = _GOOGLE_VERTEX.match(name.strip())
        if match is None or _GEMINI_CHARACTERS.match(name) or "hour" in name.lower():
            return None
        rest = match["after"]
    words = re.split(r"[\s-]+", match["model"].lower().strip())
    while words and words[-1] in _GOOGLE_OTHER:
        words.pop()
    said = set(re.split(r"[\s-]+", name.lower()))
    kind = "output" if match["side"].lower() == "output" else "input_uncached"
    if kind == "input_uncached" and said & {"cached", "caching", "cache"}:
        kind = "input_cached"
    tier = next((tier for word, tier in _TIERS.items() if word in said), None)
    if not words or "storage" in said or "tuning" in rest.lower():
        return None
    return Meter("-".join(words), kind, tier=tier)
