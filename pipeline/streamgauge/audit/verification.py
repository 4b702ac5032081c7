"""Whether a kept run that was made again has the same bytes, and what differs if not."""

import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from streamgauge.audit.result import InvoiceUsed, Result, encode
from streamgauge.audit.runs import FileUsed, Inputs, Run


def with_kept_names(result: Result, kept: Result) -> Result:
    """A result whose invoices have the names that the files of the same bytes had in the kept one: a file may have moved."""
    if result.provenance is None or kept.provenance is None:
        return result
    names = {invoice.sha256: invoice.name for invoice in kept.provenance.invoices}
    invoices = [
        msgspec.structs.replace(invoice, name=names.get(invoice.sha256, invoice.name))
        for invoice in result.provenance.invoices
    ]
    invoices.sort(key=_order)
    renamed = {invoice.name: names[invoice.sha256] for invoice in result.provenance.invoices if invoice.sha256 in names}
    return msgspec.structs.replace(
        result,
        notes=[_renamed(note, renamed) for note in result.notes],
        provenance=msgspec.structs.replace(result.provenance, invoices=invoices),
    )


def _renamed(note: str, names: Mapping[str, str]) -> str:
    """A note with other names of files, each replaced once."""
    if not names:
        return note
    longest_first = sorted(names, key=len, reverse=True)
    return re.sub("|".join(map(re.escape, longest_first)), lambda found: names[found[0]], note)


def _order(invoice: InvoiceUsed) -> tuple[str, str]:
    return invoice.sha256, invoice.name


def differences(run: Run, kept: Result, again: Result, inputs: Inputs, ledger_sha256: str) -> list[str]:
    """A sentence for each thing that differs between a kept run and the same run made again; none if its bytes are the same.

    `kept`: the result of `run`; `again`: the new one, by `with_kept_names`; `inputs`, `ledger_sha256`: of the new one.
    """
    if encode(again) == bytes(run.result):
        return []
    assert run.inputs is not None  # a run without them cannot be made again
    said = [*_of_inputs(run.inputs, inputs), *_of_price_lists(kept, again)]
    if ledger_sha256 != run.ledger_sha256:
        said.append(
            "The ledger's records of the period are not the same: records came, were removed, or got another cost."
        )
    members = [
        name
        for name in Result.__struct_fields__
        if name != "provenance" and getattr(kept, name) != getattr(again, name)
    ]
    if members:
        said.append(f"The result differs in: {', '.join(map(_shown, members))}.")
    elif not said:
        said.append("The result is the same, written in another form.")
    if kept.lines != again.lines:
        before = {msgspec.json.encode(line) for line in kept.lines}
        count = sum(msgspec.json.encode(line) not in before for line in again.lines)
        said.append(f"Lines: {len(kept.lines)} kept, {len(again.lines)} now, {count} of them not as they were.")
    return said


def _shown(name: str) -> str:
    return name.replace("_", " ")


def _of_inputs(kept: Inputs, now: Inputs) -> Iterator[str]:
    if kept.version != now.version:
        yield f"The version of Streamgauge is {now.version}, and was {kept.version}."
    yield from _of_invoices(kept.invoices, now.invoices)
    yield from _of_files(kept.files, now.files)


def _of_invoices(kept: Sequence[FileUsed], now: Sequence[FileUsed]) -> Iterator[str]:
    before, after = {file.sha256 for file in kept}, {file.sha256 for file in now}
    for file in kept:
        if file.sha256 not in after:
            yield f"No invoice has the bytes of {file.path} (SHA-256 {file.sha256})."
    for file in now:
        if file.sha256 not in before:
            yield f"The invoice {file.path} has other bytes than each invoice of the run (SHA-256 {file.sha256})."


def _of_files(kept: Mapping[str, FileUsed], now: Mapping[str, FileUsed]) -> Iterator[str]:
    for name in sorted(kept.keys() | now.keys()):
        before, after = kept.get(name), now.get(name)
        if before is None or after is None:
            then, today = ("not given", "given") if before is None else ("given", "not given")
            yield f"--{name} was {then}, and is {today} now."
        elif before.sha256 != after.sha256:
            yield f"The file of --{name} is not the same: its SHA-256 is {after.sha256}, and was {before.sha256}."


def _of_price_lists(kept: Result, again: Result) -> Iterator[str]:
    before, after = kept.provenance, again.provenance
    if before is not None and after is not None and before.price_list != after.price_list:
        yield f"The list of prices is {after.price_list or 'none'}, and was {before.price_list or 'none'}."
