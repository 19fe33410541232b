"""Golden bytes: what each version of the protocol puts on the wire and on disk.

`golden/v<major>_<minor>.txt` has a line per sample: its name and its bytes in hexadecimal digits.
Every version's bytes must be read for ever; the present version must also write them. What a later
minor version adds gets a new file:

    PEERSUB_REWRITE_GOLDEN=1 pytest tests/wire/test_golden.py

rewrites the file of the present version. Once that version is out, its file only changes by lines
for new samples.
"""

import os
from pathlib import Path
from typing import Any

import pytest

from peersub.overlays.core.versions import PROTOCOL_VERSION
from peersub.wire import FrameDecoder, decode_record, encode, encode_record
from wire import samples
from wire.message_strategies import MESSAGE_CLASSES, RECORD_CLASSES, plain

FOLDER = Path(__file__).parent / "golden"
PRESENT = FOLDER / "v{}_{}.txt".format(*PROTOCOL_VERSION)
SAMPLES = samples.MESSAGES | samples.RECORDS


def write(name: str) -> bytes:
    if name in samples.RECORDS:
        return encode_record(samples.RECORDS[name])
    return encode(samples.MESSAGES[name])


def read(name: str, data: bytes) -> Any:
    if name in samples.RECORDS:
        return decode_record(data)
    (message,) = FrameDecoder().feed(data)
    return message


def golden(path: Path) -> dict[str, bytes]:
    lines = path.read_text(encoding="ascii").splitlines()
    return {
        name: bytes.fromhex(digits) for name, _, digits in (line.partition(" ") for line in lines)
    }


def rewrite() -> None:
    FOLDER.mkdir(exist_ok=True)
    lines = [f"{name} {write(name).hex()}\n" for name in SAMPLES]
    PRESENT.write_text("".join(lines), encoding="ascii")


if os.environ.get("PEERSUB_REWRITE_GOLDEN"):
    rewrite()

GOLDEN = [
    (path.stem, name, data)
    for path in sorted(FOLDER.glob("v*.txt"))
    for name, data in golden(path).items()
]


@pytest.mark.parametrize(("version", "name", "data"), GOLDEN, ids=lambda part: str(part)[:30])
def test_the_bytes_of_each_version_are_read(version, name, data):
    assert plain(read(name, data)) == plain(SAMPLES[name])


@pytest.mark.parametrize("name", SAMPLES)
def test_the_present_version_writes_its_bytes(name):
    assert write(name) == golden(PRESENT)[name]


@pytest.mark.parametrize("name", SAMPLES)
def test_what_was_read_is_written_with_the_same_bytes(name):
    data = golden(PRESENT)[name]
    again = read(name, data)
    assert (encode_record if name in samples.RECORDS else encode)(again) == data


def test_each_kind_has_golden_bytes():
    sampled = {type(sample) for sample in SAMPLES.values()}
    assert [kind for kind in MESSAGE_CLASSES + RECORD_CLASSES if kind not in sampled] == []
