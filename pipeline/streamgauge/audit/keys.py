"""Keys that are compared without a map: an invoice may call its keys as we call our tenants. Pure."""

from collections.abc import Iterable, Mapping, Sequence, Set

# The names of a row's key: ids and names of API key, workspace and project, the most specific first.
Names = tuple[str, ...]


def tenants_named(tenants: Set[str | None], files: Sequence[Set[Names]]) -> Mapping[str, str]:
    """The tenant that each key of the invoices is, by the first of the key's names; empty if they cannot be joined.

    `tenants`: the keys of all our streams of a provider. `files`: the names that the rows of each file have. Each file has to
    name tenants, all files together every tenant, and a row one tenant at most.
    """
    joined: dict[str, str] = {}
    for file in files:
        found = {names: tenants & set(names) for names in file}
        if not any(found.values()):
            return {}
        for names, named in found.items():
            for tenant in named:
                if len(named) > 1 or joined.setdefault(names[0], str(tenant)) != tenant:
                    return {}
    if tenants != set(joined.values()) or not _is_of_one_kind(files, joined):
        return {}
    return joined


def _is_of_one_kind(files: Iterable[Set[Names]], joined: Mapping[str, str]) -> bool:
    """Whether all files call other keys alike: not if the key of a row is the project of a row in another file."""
    others = [names for file in files for names in file if names and names[0] not in joined]
    return {names[0] for names in others}.isdisjoint(name for names in others for name in names[1:])
