"""What becomes of a file that is damaged, cut, or written to do harm."""

from __future__ import annotations

import random

BYTES = (b"\0", b"\xff", b"\n", b'"', b"{", b",", b"\\", b"\x80", b"7", b"\xff\xfe", b"\x28\xb5\x2f\xfd")


def mutated(whole: bytes, seed: int) -> bytes:
    """Some changes of a file: bits, bytes that mean something, pieces that are cut, doubled or moved."""
    chance, data = random.Random(seed), bytearray(whole)
    for _ in range(chance.randint(1, 6)):
        at, size = chance.randrange(len(data) + 1), chance.choice((1, 2, 8, 64, 512))
        match chance.randrange(6):
            case 0 if at < len(data):
                data[at] ^= 1 << chance.randrange(8)
            case 1:
                data[at : at + 1] = chance.choice(BYTES)
            case 2:
                del data[at : at + size]
            case 3:
                data[at:at] = data[at : at + size]
            case 4:
                data[at:at] = chance.randbytes(size)
            case _ if chance.random() < 0.3:
                del data[at:]
    return bytes(data)
