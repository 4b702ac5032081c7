"""Finds regular expressions whose time can grow exponentially: those that can match a repeated text in two ways.

Python's `re` tries all ways to match before it fails. If a loop can read the same text on two paths, each further repetition
doubles their number. This builds the automaton of a pattern (Thompson), and looks for a state from which two different paths
over the same text lead back to it ("exponential degree of ambiguity", Weber and Seidl 1991). It approximates: look-arounds
count as empty, a bounded repetition as an unbounded one, and a possessive one, which never gives back what it has read, as
one character. So it may name a pattern that is harmless, but none of the other kind passes.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from re import _constants as ops  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

# Characters beside those that a pattern names, so that its classes and their complements have members.
_SAMPLES = "aZ09_ \n\r\t-~\x00\x7fé\u3042"
_CATEGORIES: dict[Any, Callable[[str], bool]] = {
    ops.CATEGORY_DIGIT: str.isdigit,
    ops.CATEGORY_NOT_DIGIT: lambda char: not char.isdigit(),
    ops.CATEGORY_SPACE: str.isspace,
    ops.CATEGORY_NOT_SPACE: lambda char: not char.isspace(),
    ops.CATEGORY_WORD: lambda char: char.isalnum() or char == "_",
    ops.CATEGORY_NOT_WORD: lambda char: not (char.isalnum() or char == "_"),
}
_EMPTY = (ops.AT, ops.ASSERT, ops.ASSERT_NOT)
# A repetition of exactly so many times, at most, is not taken for an unbounded one.
_EXACT = 8


def is_exponential(pattern: str | bytes, flags: int = 0) -> bool:
    """Whether some text may take exponential time."""
    text = pattern.decode("latin-1") if isinstance(pattern, bytes) else pattern
    return any(_Automaton(tree, text).is_exponential() for tree in _trees(parser.parse(text, flags & ~re.DEBUG)))


def _trees(tree: Any) -> Iterator[Any]:
    """The pattern, and each of its look-arounds."""
    yield tree
    for op, argument in tree:
        if op in (ops.ASSERT, ops.ASSERT_NOT):
            yield from _trees(argument[1])
        else:
            for inner in _inner(argument):
                yield from list(_trees(inner))[1:]


def _inner(argument: Any) -> Iterator[Any]:
    if isinstance(argument, parser.SubPattern):
        yield argument
    elif isinstance(argument, list | tuple):
        for one in argument:
            yield from _inner(one)


class _Automaton:
    """States are numbers. `_silent`: where a state leads without a character; `_reads`: the characters of a state, and the
    state after them.
    """

    def __init__(self, tree: Any, text: str) -> None:
        self._silent: dict[int, list[int]] = {}
        self._reads: dict[int, tuple[frozenset[str], int]] = {}
        self._count = 0
        self._alphabet = sorted(set(_SAMPLES) | set(text) | _bounds(tree))
        self._sequence(tree, self._new())

    def _new(self) -> int:
        self._count += 1
        return self._count

    def _link(self, state: int, following: int) -> None:
        self._silent.setdefault(state, []).append(following)

    def _sequence(self, items: Iterable[Any], state: int) -> int:
        for op, argument in items:
            state = self._item(op, argument, state)
        return state

    def _item(self, op: Any, argument: Any, state: int) -> int:
        end = self._new()
        if op in _EMPTY:
            self._link(state, end)
        elif op is ops.GROUPREF:
            self._read(state, frozenset(self._alphabet), end)
        elif op is ops.BRANCH:
            for branch in argument[1]:
                begin = self._new()
                self._link(state, begin)
                self._link(self._sequence(branch, begin), end)
        elif op is ops.SUBPATTERN:
            self._link(self._sequence(argument[-1], state), end)
        elif op in (ops.ATOMIC_GROUP, ops.POSSESSIVE_REPEAT):
            self._link(state, end)
            self._read(state, self._characters(argument), end)
        elif op in (ops.MAX_REPEAT, ops.MIN_REPEAT):
            low, high, body = argument
            self._repeat(low, high, body, state, end)
        elif op is ops.GROUPREF_EXISTS:
            for branch in argument[1:]:
                self._link(self._sequence(branch or (), state), end)
        else:
            self._read(state, frozenset(self._of(op, argument)), end)
        return end

    def _repeat(self, low: int, high: int, body: Any, state: int, end: int) -> None:
        if low == high <= _EXACT:
            for _ in range(low):
                state = self._sequence(body, self._linked(state))
            self._link(state, end)
            return
        if (low, high) == (0, 1):
            self._link(self._sequence(body, self._linked(state)), end)
            self._link(state, end)
            return
        loop = self._linked(state)
        after = self._sequence(body, self._linked(loop))
        if body.getwidth()[0] == 0:  # (a*)*: the next text may belong to the same round, or to another one
            again = self._sequence(body, self._linked(after))
            self._link(after, again)
            after = again
        self._link(after, loop)
        self._link(after if low else loop, end)

    def _linked(self, state: int) -> int:
        following = self._new()
        self._link(state, following)
        return following

    def _read(self, state: int, characters: frozenset[str], end: int) -> None:
        begin = self._linked(state)
        self._reads[begin] = (characters, end)

    def _characters(self, argument: Any) -> frozenset[str]:
        found: set[str] = set()
        for tree in _inner(argument):
            for op, inner in tree:
                if op in (ops.LITERAL, ops.NOT_LITERAL, ops.ANY, ops.IN):
                    found |= set(self._of(op, inner))
                else:
                    found |= self._characters(inner)
        return frozenset(found)

    def _of(self, op: Any, argument: Any) -> Iterator[str]:
        """The characters that an item reads."""
        if op is ops.IN:
            negated = argument[0][0] is ops.NEGATE
            members = [member for member in argument if member[0] is not ops.NEGATE]
            for char in self._alphabet:
                if any(_is_in(char, *member) for member in members) != negated:
                    yield char
            return
        for char in self._alphabet:
            if (
                (op is ops.ANY and char != "\n")
                or (op is ops.LITERAL and ord(char) == argument)
                or (op is ops.NOT_LITERAL and ord(char) != argument)
            ):
                yield char

    def is_exponential(self) -> bool:
        """Whether two different paths over the same text lead from a state back to it."""
        following = {state: self._following(end) for state, (_, end) in self._reads.items()}
        return any(self._pair_returns(group, following) for group in _cycles(following))

    def _following(self, state: int) -> dict[int, int]:
        """The states that read next, each with the number of silent ways to it, at most 2."""
        ways: dict[int, int] = {}

        def visit(at: int, seen: frozenset[int]) -> None:
            if at in self._reads:
                ways[at] = min(2, ways.get(at, 0) + 1)
            for one in self._silent.get(at, ()):
                if one not in seen and ways.get(one, 0) < 2:
                    visit(one, seen | {one})

        visit(state, frozenset({state}))
        return ways

    def _pair_returns(self, group: set[int], following: dict[int, dict[int, int]]) -> bool:
        for state in group:
            if any(ways > 1 for other, ways in following[state].items() if other in group):
                return True
        steps: dict[tuple[int, int], set[tuple[int, int]]] = {}
        for first in group:
            for second in group:
                if self._reads[first][0] & self._reads[second][0]:
                    steps[first, second] = {
                        (one, other)
                        for one in following[first]
                        for other in following[second]
                        if one in group and other in group
                    }
        reaches_equal = {pair for pair in steps if pair[0] == pair[1]}
        # Backwards from equal pairs, and forwards from them: a different pair in both lies on a way from one to the other.
        back = _reached(reaches_equal, _reversed(steps))
        forth = _reached(reaches_equal, steps)
        return any(first != second for first, second in back & forth)


def _reached(begin: set[tuple[int, int]], steps: dict[tuple[int, int], set[tuple[int, int]]]) -> set[tuple[int, int]]:
    found, waiting = set(begin), list(begin)
    while waiting:
        for pair in steps.get(waiting.pop(), ()):
            if pair not in found and pair in steps:
                found.add(pair)
                waiting.append(pair)
    return found


def _reversed(steps: dict[tuple[int, int], set[tuple[int, int]]]) -> dict[tuple[int, int], set[tuple[int, int]]]:
    turned: dict[tuple[int, int], set[tuple[int, int]]] = {pair: set() for pair in steps}
    for pair, others in steps.items():
        for other in others:
            if other in turned:
                turned[other].add(pair)
    return turned


def _cycles(following: dict[int, dict[int, int]]) -> Iterator[set[int]]:
    """The groups of states that reach each other."""
    reached: dict[int, set[int]] = {}
    for state, ways in following.items():
        seen: set[int] = set()
        waiting = list(ways)
        while waiting:
            one = waiting.pop()
            if one not in seen:
                seen.add(one)
                waiting.extend(following[one])
        reached[state] = seen
    done: set[int] = set()
    for state in following:
        if state in reached[state] and state not in done:
            group = {other for other in reached[state] if state in reached[other]}
            done |= group
            yield group


def _bounds(tree: Any) -> set[str]:
    """The characters at the ends of ranges, and beside them."""
    found: set[str] = set()
    for item in _items(tree):
        if item[0] is ops.RANGE:
            low, high = item[1]
            found |= {chr(code) for code in (low, high, max(0, low - 1), min(0x10FFFF, high + 1))}
        elif item[0] in (ops.LITERAL, ops.NOT_LITERAL):
            found.add(chr(item[1]))
    return found


def _items(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple) and value and value[0] in (ops.RANGE, ops.LITERAL, ops.NOT_LITERAL):
        yield value
    elif isinstance(value, list | tuple | parser.SubPattern):
        for one in value:
            yield from _items(one)


def _is_in(char: str, op: Any, argument: Any) -> bool:
    if op is ops.LITERAL:
        return ord(char) == argument
    if op is ops.RANGE:
        return bool(argument[0] <= ord(char) <= argument[1])
    return _CATEGORIES[argument](char)
