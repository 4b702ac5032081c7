"""Write the structs of core/record.py from records.py, which declares the record: `make generated`.

The core makes records without checks, and without pydantic, which checks the public model. So it has structs of its own, with
the same names, order and defaults. Their types are wider in two ways: an enumeration is a text, and any value is an object.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "pipeline" / "streamgauge"
DECLARED, MADE = PACKAGE / "records.py", PACKAGE / "core" / "record.py"
BEGIN = "# --- Generated from records.py by `make generated`: do not edit.\n"
END = "# --- End of the generated structs.\n"

# Parts of which the core names only the fields that it has seen: those that may be null are null by default.
_PARTIAL = {"Request", "Error", "Gaps", "Timing", "ProviderTiming"}
# Defaults of the models, and what they are in a struct, which copies an empty dict for each record.
_DEFAULTS = {"None": "None", "Field(default_factory=dict)": "{}"}


class _Wider(ast.NodeTransformer):
    """Replaces enumerations by the type of their values, and Any by object."""

    def __init__(self, enumerations: dict[str, str]) -> None:
        self._enumerations = enumerations

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        kind = _type_of_values(node)
        return ast.Name(kind) if kind else ast.Subscript(node.value, self.visit(node.slice), node.ctx)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Name("object" if node.id == "Any" else self._enumerations.get(node.id, node.id))


def _type_of_values(node: ast.expr | None) -> str | None:
    """The name of the type of a Literal's values; None if this is no Literal."""
    if not (isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "Literal"):
        return None
    values = ast.literal_eval(node.slice)
    return type(values[0] if isinstance(values, tuple) else values).__name__


def structs(declared: str) -> str:
    """The source of the structs. `declared`: the source of records.py."""
    body = ast.parse(declared).body
    enumerations = {
        target.id: kind
        for node in body
        if isinstance(node, ast.Assign) and (kind := _type_of_values(node.value))
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    parts = [node for node in body if isinstance(node, ast.ClassDef) and _is_part(node)]
    return "\n\n".join("".join(_struct(part, _Wider(enumerations))) for part in parts)


def _is_part(node: ast.ClassDef) -> bool:
    return any(isinstance(base, ast.Name) and base.id == "Part" for base in node.bases)


def _struct(part: ast.ClassDef, wider: _Wider) -> Iterator[str]:
    yield f"class {part.name}(msgspec.Struct{', kw_only=True' if part.name == 'Record' else ''}):\n"
    yield f'    """The struct of `streamgauge.records.{part.name}`, which describes the fields."""\n\n'
    for field in part.body:
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            kind = ast.unparse(wider.visit(field.annotation))
            yield f"    {field.target.id}: {kind}{_default(part, field, kind)}\n"


def _default(part: ast.ClassDef, field: ast.AnnAssign, kind: str) -> str:
    """The default as source: that of the model, which is for a field that earlier versions lack; none for most fields."""
    if field.value is not None:
        return f" = {_DEFAULTS[ast.unparse(field.value)]}"
    return " = None" if part.name in _PARTIAL and kind.endswith("| None") else ""


def with_structs(made: str, declared: str) -> str:
    """The source of core/record.py with present structs. `made`, `declared`: the sources of core/record.py and records.py."""
    before, _, rest = made.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{structs(declared)}\n\n{END}{after}"


if __name__ == "__main__":
    MADE.write_text(with_structs(MADE.read_text(), DECLARED.read_text()))
    sys.stdout.write(f"{MADE.relative_to(PACKAGE.parent.parent)}\n")
