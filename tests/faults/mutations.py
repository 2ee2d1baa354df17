"""Ways to spoil the files of `valid_inputs`; each result is made of a seed alone."""

from __future__ import annotations

import gzip
import io
import json
import random
import re
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.faults.valid_inputs import MAKERS

Random = random.Random
EXTREMES = (
    "0",
    "-0",
    "1e308",
    "-1e308",
    "1e999",
    "1e-400",
    "nan",
    "inf",
    "-Infinity",
    "NA",
    "",
    "3.4028236e38",
    "2147483647",
    "2147483648",
    "9223372036854775807",
    "9223372036854775808",
    "-1",
    "0x1A",
    "1_0",
    "1,0",
    "+5",
    ".5",
    "5.",
    "1e",
    "e5",
    "99999999999999999999999999999999999999999999",
    "0." + "0" * 400 + "1",
    "true",
    "label",
    "qid:1",
    "1:1",
    "1e5",
    "0.1000000000000000055511151231257827",
    "16777217",
    "1.00000005960464477539",
)
PIECES = (
    b"\n",
    b"\r",
    b"\r\n",
    b"\n\r",
    b"\x00",
    b'"',
    b'""',
    b",",
    b";",
    b"\t",
    b" ",
    b":",
    b"#",
    b"'",
    b"\\",
    b"\xff",
    b"\xef\xbb\xbf",
    "é".encode(),
    "\u2028".encode(),
    "\x85".encode(),
    "\u0661".encode(),
    "𝟙".encode(),
    b"\x1a",
    b"\x0b",
    b"\x0c",
    b"\x1c",
    b"-",
)
NUMBER = re.compile(rb"[-+]?\d+\.?\d*(?:e[-+]?\d+)?")


def flip(content: bytes, rng: Random) -> bytes:
    """Some bits."""
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 5, 20))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def find_span(content: bytes, rng: Random) -> tuple[int, int]:
    start = rng.randrange(len(content))
    return start, min(len(content), start + rng.choice((1, 1, 2, 4, 8, 30, 200)))


def delete(content: bytes, rng: Random) -> bytes:
    start, stop = find_span(content, rng)
    return content[:start] + content[stop:]


def insert(content: bytes, rng: Random) -> bytes:
    at = rng.randrange(len(content) + 1)
    return content[:at] + (rng.choice(PIECES) if rng.random() < 0.8 else rng.randbytes(5)) + content[at:]


def duplicate(content: bytes, rng: Random) -> bytes:
    start, stop = find_span(content, rng)
    return content[:stop] + content[start:stop] + content[stop:]


def swap(content: bytes, rng: Random) -> bytes:
    (a, b), (c, d) = sorted((find_span(content, rng), find_span(content, rng)))
    return content if b > c else content[:a] + content[c:d] + content[b:c] + content[a:b] + content[d:]


def truncate(content: bytes, rng: Random) -> bytes:
    return content[: rng.randrange(len(content))]


def change_number(content: bytes, rng: Random) -> bytes:
    found = list(NUMBER.finditer(content))
    if not found:
        return insert(content, rng)
    number = rng.choice(found)
    return content[: number.start()] + rng.choice(EXTREMES).encode() + content[number.end() :]


def change_line_ends(content: bytes, rng: Random) -> bytes:
    """All of them, or each as it comes."""
    ends = [rng.choice((b"\n", b"\r", b"\r\n"))] if rng.random() < 0.4 else [b"\n", b"\n", b"\r", b"\r\n"]
    return re.sub(rb"\r\n|\r|\n", lambda _: rng.choice(ends), content)


def quote(content: bytes, rng: Random) -> bytes:
    """A cell, a half of one, or a few lines at once."""
    start, stop = find_span(content, rng)
    if rng.random() < 0.6 and (found := list(re.finditer(rb"[^,;\t\r\n]+", content))):
        start, stop = rng.choice(found).span()
    return content[:start] + b'"' + content[start:stop] + b'"' + content[stop:]


BYTES = (flip, delete, insert, duplicate, swap, truncate)
TEXT = (*BYTES, change_number, change_number, change_line_ends, quote, insert)


def mutate(content: bytes, other: bytes, ways: tuple[Callable[[bytes, Random], bytes], ...], rng: Random) -> bytes:
    """Spoil it in one way or a few; sometimes it goes on as another one does, and sometimes it stays as it is."""
    if rng.random() < 0.1:
        return content
    if rng.random() < 0.06:
        content = content[: rng.randrange(len(content))] + other[rng.randrange(len(other)) :]
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if content:
            content = rng.choice(ways)(content, rng)
    return content


def mutate_members(content: bytes, other: bytes, rng: Random) -> bytes:
    """Spoil an array within a zip whose checksums are right again; or the zip itself."""
    if rng.random() < 0.35:
        return mutate(content, other, BYTES, rng)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        compression = rng.choice((archive.infolist()[0].compress_type, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
        members = [(name, archive.read(name)) for name in archive.namelist()]
    at = rng.randrange(len(members))
    name, array = members[at]
    change = rng.random()
    if change < 0.1:
        members.pop(at)
    elif change < 0.2:
        members[at] = (rng.choice((members[0][0], "z.npy", name + "x", "../" + name)), array)
    else:
        members[at] = (name, mutate_array(array, members[rng.randrange(len(members))][1], rng))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", compression) as archive:
        for each, array in {name: (name, array) for name, array in members}.values():
            archive.writestr(each, array)
    return packed.getvalue()


def mutate_array(content: bytes, other: bytes, rng: Random) -> bytes:
    """Spoil the bytes of a .npy, or write other values with a header that is right."""
    if rng.random() < 0.5:
        split = content.find(b"\n") + 1
        if rng.random() < 0.6 and split:
            return mutate(content[:split], other, TEXT, rng) + content[split:]
        return mutate(content, other, BYTES, rng)
    array = np.load(io.BytesIO(content), allow_pickle=False)
    packed = io.BytesIO()
    np.save(packed, change_array(array, rng))
    return packed.getvalue()


def change_array(array: Any, rng: Random) -> Any:
    """Another type, shape or value."""
    kind = rng.randrange(6)
    if kind == 0 and array.dtype.kind not in "US":
        with np.errstate(all="ignore"):
            return array.astype(
                rng.choice(("f4", "f8", ">f8", "f2", "i4", "i8", "u8", "u1", "U5", "b1", "S3", "g")), copy=True
            )
    if kind == 1:
        return array[None] if rng.random() < 0.5 else array.reshape(-1)
    if kind == 2:
        return (
            array[:-1] if array.ndim and rng.random() < 0.5 else np.concatenate((array, array)) if array.ndim else array
        )
    changed = np.array(array)
    if changed.dtype.kind == "U":
        return np.array(spoil_json(str(array), rng)) if not array.ndim else changed
    if changed.size and changed.dtype.kind in "iuf":
        values = (
            (0, -1, 1, 2**31 - 1, 2**62, 7) if changed.dtype.kind in "iu" else (np.nan, np.inf, 1e308, -0.0, 1e38, 0.5)
        )
        with np.errstate(all="ignore"):
            changed.reshape(-1)[rng.randrange(changed.size)] = np.array(rng.choice(values)).astype(changed.dtype)
    return changed


def spoil_json(text: str, rng: Random) -> str:
    """Another value, or none, for one of the entries, at any depth; or other text."""
    if rng.random() < 0.3:
        return mutate(text.encode(), text.encode(), TEXT, rng).decode(errors="replace").replace("\0", "0")
    about = json.loads(text)
    inner = about
    while True:
        name = rng.choice(sorted(inner))
        if not (isinstance(inner[name], dict) and inner[name]) or rng.random() < 0.2:
            break
        inner = inner[name]
    if rng.random() < 0.15:
        del inner[name]
    else:
        inner[name] = rng.choice(
            (None, True, 0, -1, 3, 2**31 - 1, 2**63, 1e308, float("nan"), "x", "", [], [1], {}, ["a", "b"])
        )
    return json.dumps(about)


def pack_text(content: bytes, rng: Random) -> tuple[bytes, str]:
    """One file in ten is compressed, one in twenty spoiled after that."""
    if rng.random() > 0.1:
        return content, ""
    packed = gzip.compress(content)
    return (mutate(packed, packed, BYTES, rng) if rng.random() < 0.5 else packed), ".gz"


def make_input(kind: str, seed: int, index: int) -> tuple[bytes, str, Random]:
    """Return the contents of a spoiled file, the ending of its name, and what is left of chance."""
    rng = random.Random(f"{kind} {seed} {index}")
    make, ending = MAKERS[kind]
    content, other = make(rng), make(rng)
    if kind in ("svmlight", "csv"):
        spoiled, packed = pack_text(mutate(content, other, TEXT, rng), rng)
        return spoiled, ending + packed, rng
    if kind in ("npz", "model"):
        return mutate_members(content, other, rng), ending, rng
    return (
        (mutate_array if kind == "npy" else lambda *given: mutate(*given[:2], BYTES, given[2]))(content, other, rng),
        ending,
        rng,
    )
