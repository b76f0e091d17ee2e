"""Masks of JSON texts: what is masked is gone, and what is not stays as it is, to the byte."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mirror.relay.masking.actions import Pseudonyms, action_of
from mirror.relay.masking.json_masks import NotMasked, mask_of
from mirror.relay.masking.places import place_of

SECRET: Final = b"a secret of a test"


def masked(text: str, masks: dict[str, str]) -> str:
    rules = []
    for path, action in masks.items():
        place = place_of(f"value:{path}")
        assert place.steps is not None
        rules.append((place.steps, action_of(action, place)))
    return mask_of(rules, Pseudonyms(SECRET))(text)


def hashed(text: str) -> str:
    return Pseudonyms(SECRET).of_text(text.encode())


# --- any JSON, by an independent reading

NAMES: Final = st.sampled_from(["a", "b", "c", "ä.", 'q"\\'])
_SPACE: Final = st.sampled_from(["", "", " ", "\n\t"])
_CHARACTERS: Final = st.characters(exclude_categories=["Cs"])
_NUMBERS: Final = st.from_regex(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,4})?", fullmatch=True)


def _text_of(string: str, escapes: list[int]) -> str:
    """The string as JSON, with some characters written as escapes."""
    written = [json.dumps(one, ensure_ascii=number in escapes)[1:-1] for number, one in enumerate(string)]
    return '"' + "".join(written) + '"'


_STRINGS: Final = st.builds(
    _text_of, st.one_of(NAMES, st.text(_CHARACTERS, max_size=6)), st.lists(st.integers(0, 6), max_size=3)
)
_SCALARS: Final = st.one_of(_STRINGS, _NUMBERS, st.sampled_from(["true", "false", "null"]))
_KEYS: Final = st.builds(_text_of, NAMES, st.lists(st.integers(0, 3), max_size=1))


def _object(members: list[tuple[str, str]], space: str) -> str:
    return "{" + space + f"{space},".join(f"{name}{space}:{space}{value}" for name, value in members) + space + "}"


def _array(values: list[str], space: str) -> str:
    return "[" + space + f"{space},{space}".join(values) + space + "]"


TEXTS: Final = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.builds(_object, st.lists(st.tuples(_KEYS, inner), max_size=4), _SPACE),
        st.builds(_array, st.lists(inner, max_size=3), _SPACE),
    ),
    max_leaves=15,
)
OBJECTS: Final = st.builds(_object, st.lists(st.tuples(_KEYS, TEXTS), max_size=5), _SPACE)
STEPS: Final = st.lists(st.one_of(st.none(), st.sampled_from(["a", "b", "c"])), min_size=1, max_size=3).map(tuple)


class Raw(str):
    """A number as it is written."""

    __slots__ = ()


class Members(list[tuple[str, Any]]):
    """An object, with every member, also of one name."""

    __slots__ = ()


def parsed(text: str) -> Any:
    return json.loads(text, parse_int=Raw, parse_float=Raw, object_pairs_hook=Members)


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[tuple[str | int, ...], Any]]:
    """Each scalar with its path, in order. The numbers in a path are those of elements, and of members among others."""
    if isinstance(value, Members):
        return [leaf for name, inner in value for leaf in leaves(inner, (*path, name))]
    if isinstance(value, list):
        return [leaf for number, inner in enumerate(value) for leaf in leaves(inner, (*path, number))]
    return [(path, value)]


def leads_to(steps: tuple[str | None, ...], path: tuple[str | int, ...]) -> bool:
    """Whether a mask of ``steps`` is about a value at ``path``, or about what it is in."""
    return len(steps) <= len(path) and all(
        step is None or step == part for step, part in zip(steps, path, strict=False)
    )


def path_of(steps: tuple[str | None, ...]) -> str:
    return "$" + "".join("[*]" if step is None else f".{step}" for step in steps)


@given(OBJECTS, st.lists(STEPS, min_size=1, max_size=3, unique=True))
@example('{"a":1,"a":"b","\\u0061":2.50}', [("a",)])
@example('{"b":12345678901234567890.0e-0,"a":[]}', [("a",)])
def test_what_is_masked_is_replaced_and_all_else_stays(text: str, paths: list[tuple[str | None, ...]]) -> None:
    try:
        out = masked(text, {path_of(steps): "hash" for steps in paths})
    except NotMasked:
        return
    before, after = leaves(parsed(text)), leaves(parsed(out))
    assert [path for path, _ in before] == [path for path, _ in after]
    for (path, was), (_, now) in zip(before, after, strict=True):
        if not any(leads_to(steps, path) for steps in paths):
            assert (type(was), was) == (type(now), now), path
        elif isinstance(was, Raw):
            assert isinstance(now, Raw)
            assert now == Pseudonyms(SECRET).of_number(was.encode())
        elif isinstance(was, str):
            assert now == hashed(was)
        else:
            assert now is None
    if text == out:
        return
    # The text around is the same: without what is masked, nothing differs.
    pseudonyms = r'"[0-9a-f]{32}"|\b[0-9]{15}\b|"[0-9]{15}"|null'
    for piece in re.split(pseudonyms, out):
        assert piece in text


@given(OBJECTS, STEPS)
def test_no_text_that_is_masked_is_in_the_output(text: str, steps: tuple[str | None, ...]) -> None:
    """The masked texts are such as nothing else contains."""
    value = parsed(text)
    numbered = iter(range(10**6))

    def marked(value: Any, path: tuple[str | int, ...]) -> str:
        if isinstance(value, Members):
            inner = ",".join(f"{json.dumps(name)}:{marked(one, (*path, name))}" for name, one in value)
            return f"{{{inner}}}"
        if isinstance(value, list):
            return f"[{','.join(marked(one, (*path, number)) for number, one in enumerate(value))}]"
        mark = "secret" if leads_to(steps, path) else "public"
        return f'"{mark}-{next(numbered)}"' if isinstance(value, str) else json.dumps(value)

    for action in ("hash", "null", "constant:0"):
        try:
            out = masked(marked(value, ()), {path_of(steps): action})
        except NotMasked:
            continue
        assert "secret" not in out
        if action == "hash":
            assert out.count("public") == marked(value, ()).count("public")


@given(TEXTS, st.integers(0, 30), st.sampled_from([",", "]", "}", '"', "\\", "x", "NaN", "01", "\x00", "/*", ""]))
def test_what_json_does_not_allow_is_refused(text: str, at: int, inserted: str) -> None:
    damaged = text[:at] + inserted + text[at:] if inserted else text[:at]
    try:
        json.loads(damaged, parse_int=Raw, parse_constant=int)
    except ValueError:
        with pytest.raises(NotMasked):
            masked(damaged, {"$": "hash"})
        with pytest.raises(NotMasked):
            masked(damaged, {"$.a": "null", "$.b[*]": "hash", "$[*]": "keep"})


# --- cases


@pytest.mark.parametrize(
    ("text", "masks", "expected"),
    [
        ('{"a": {"b": "x", "d": 1.50}}', {"$.a.b": "null"}, '{"a": {"b": null, "d": 1.50}}'),
        ('{"a": "x","b":[1 , 2]}', {"$.a": "constant:0", "$.b": 'constant:""'}, '{"a": 0,"b":""}'),
        ('{"a":[{"b":"x"},{"b":"y"},{}]}', {"$.a[*].b": "null"}, '{"a":[{"b":null},{"b":null},{}]}'),
        ('{"a":{"p":{"b":1},"q":{"b":2}}}', {"$.a[*].b": "null"}, '{"a":{"p":{"b":null},"q":{"b":null}}}'),
        ('{"a.b":1,"a":{"b":2}}', {"$['a.b']": "null"}, '{"a.b":null,"a":{"b":2}}'),
        ('{"c":1}', {"$.a.b": "null"}, '{"c":1}'),
        ('{"a":null}', {"$.a.b": "null"}, '{"a":null}'),
        ('{"a":null}', {"$.a": "hash"}, '{"a":null}'),
        ('{"a":true}', {"$.a": "hash"}, '{"a":null}'),
        ("[[1]]", {"$[*][*]": "null"}, "[[null]]"),
        ('"x"', {"$": "constant:0"}, "0"),
        (' {"id":1,"x":[2],"y":{"id":3}} ', {"$": "null", "$.id": "keep"}, ' {"id":1,"x":null,"y":null} '),
        ('{"id":1,"x":[{"q":1,"r":2}]}', {"$": "null", "$.x[*].q": "keep"}, '{"id":null,"x":[{"q":1,"r":null}]}'),
        ('{"a":1,"b":2}', {"$[*]": "null", "$.b": "keep"}, '{"a":null,"b":2}'),
        ('{"a":{"s":1,"t":2}}', {"$.a": "keep", "$[*].s": "null"}, '{"a":{"s":null,"t":2}}'),
        ('{"a":{"s":1,"t":2}}', {"$[*].s": "null", "$.a.s": "keep"}, '{"a":{"s":1,"t":2}}'),
        ('{"a":"x"}', {"$": "null", "$.a.b": "keep"}, '{"a":null}'),
    ],
)
def test_paths_and_actions(text: str, masks: dict[str, str], expected: str) -> None:
    assert masked(text, masks) == expected
    assert masked(text, dict(reversed(masks.items()))) == expected


@pytest.mark.parametrize(
    ("text", "masks", "message"),
    [
        ('{"a":[{"b":1}]}', {"$.a.b": "null"}, r"\$\.a is an array \(write \[\*\]\)"),
        ('{"a":"b"}', {"$.a.b": "null"}, r"\$\.a is a text, and a path of the masks leads on from there"),
        ('{"a":5}', {"$.a.b": "null"}, r"\$\.a is a number or a truth value"),
        ("[]", {"$.a": "null"}, r"\$ is an array"),
        ('"x"', {"$['a b'].c": "null"}, r"\$ is a text"),
        ('{"a b":[5]}', {"$['a b'][*].c": "null"}, r"\$\['a b'\]\[\*\] is a number"),
        ('{"a":1}x', {"$.a": "null"}, r"it is not JSON \(at character 7\)"),
        ("", {"$.a": "null"}, "it is not JSON"),
        ('{"a":NaN}', {"$.b": "null"}, "it is not JSON"),
        ("[" * 100_000, {"$": "hash"}, "nested too deeply"),
    ],
)
def test_a_text_of_another_form_is_refused_with_the_place(text: str, masks: dict[str, str], message: str) -> None:
    with pytest.raises(NotMasked, match=message):
        masked(text, masks)


def test_integers_of_any_length_pass() -> None:
    text = f'{{"b":{"9" * 10_000},"a":1,"c":[{"9" * 10_000}]}}'
    assert masked(text, {"$.a": "null"}) == text.replace('"a":1', '"a":null')


def test_a_pseudonym_is_of_the_text_and_not_of_how_it_is_written() -> None:
    assert masked('{"a":"\\u0062ob"}', {"$.a": "hash"}) == f'{{"a":"{hashed("bob")}"}}'
    assert masked('{"a":"\\ud800"}', {"$.a": "hash"}) != masked('{"a":"\\ud801"}', {"$.a": "hash"})
