"""Mail addresses, public IP addresses and phone numbers, replaced by reserved ones."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from millstream import _core
from millstream.records.processor import BlockProcessor, ProcessedBlock
from millstream.sources import RecordBlock

# As long as mail allows them to be, so that a text of a million such characters costs linear time.
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,64}"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_BYTE = r"(?:25[0-5]|2[0-4][0-9]|[01]?[0-9][0-9]?)"
_LITERAL = rf"\[(?:{_BYTE}\.){{3}}(?:{_BYTE}|[A-Za-z0-9-]*[A-Za-z0-9]:)\]"
EMAIL = re.compile(rf"\b{_ATOM}(?:\.{_ATOM}){{0,8}}@(?:(?:{_LABEL}\.){{1,16}}{_LABEL}|{_LITERAL})")
IP = re.compile(rf"(?:{_BYTE}\.){{3}}{_BYTE}")
PHONE = re.compile(
    r"(?<![\w.+-])(?:\+[0-9]{1,3}[ .-]?)?(?:\([0-9]{2,4}\) ?|[0-9]{2,4}[ .-])[0-9]{3,4}[ .-][0-9]{3,4}(?![\w-])"
)


@dataclass(frozen=True)
class MaskPII(BlockProcessor):
    """Replace mail addresses and public IPv4 addresses, and phone numbers if asked to; replacements are used in turn,
    from the first in each record. What was replaced is counted.

    >>> from millstream.sources import Record
    >>> MaskPII().process(Record("me@home.org at 8.8.8.8, not 10.0.0.1", "a.txt", 0, 0, 36)).text
    'email@example.com at 22.214.171.124, not 10.0.0.1'
    """

    name = "pii"

    emails: bool = True
    ips: bool = True
    phones: bool = False
    only_public_ips: bool = True
    email_replacements: tuple[str, ...] = ("email@example.com", "firstname.lastname@example.org")
    ip_replacements: tuple[str, ...] = (
        "22.214.171.124",
        "126.96.36.199",
        "188.8.131.52",
        "184.108.40.206",
        "220.127.116.11",
        "18.104.22.168",
    )
    phone_replacements: tuple[str, ...] = ("555-0100", "555-0199")

    def process_block(self, block: RecordBlock) -> ProcessedBlock:
        """Look closely at the records in which a native pass has seen an address sign, dotted or long numbers."""
        traits = np.zeros(len(block), np.uint8)
        _core.find_traits(block.text, block.ends, traits)
        notes: Counter[str] = Counter()
        changed: dict[int, bytes] = {}
        for place in np.flatnonzero(traits & self._suspects()).tolist():
            text = block.text_of(place)
            masked = self._masked(text, int(traits[place]), notes)
            if masked != text:
                changed[place] = masked.encode()
        parents = np.arange(len(block), dtype=np.int64)
        if changed:
            block = block.with_texts([changed.get(place) or block.bytes_of(place) for place in range(len(block))])
        return ProcessedBlock(block, parents, notes=notes)

    def _suspects(self) -> int:
        return (
            self.emails * _core.HAS_ADDRESS_SIGN
            | self.ips * _core.HAS_DOTTED_NUMBERS
            | self.phones * _core.HAS_LONG_NUMBER
        )

    def _masked(self, text: str, traits: int, notes: Counter[str]) -> str:
        if self.emails and traits & _core.HAS_ADDRESS_SIGN:
            text = _replaced(EMAIL, text, self.email_replacements, lambda _: True, notes, "mail addresses replaced")
        if self.ips and traits & _core.HAS_DOTTED_NUMBERS:
            text = _replaced(IP, text, self.ip_replacements, self._is_wanted_ip, notes, "IP addresses replaced")
        if self.phones and traits & _core.HAS_LONG_NUMBER:
            text = _replaced(PHONE, text, self.phone_replacements, lambda _: True, notes, "phone numbers replaced")
        return text

    def _is_wanted_ip(self, address: str) -> bool:
        try:
            return ipaddress.ip_address(address).is_global or not self.only_public_ips
        except ValueError:  # a leading zero
            return False


def _replaced(
    pattern: re.Pattern[str],
    text: str,
    replacements: tuple[str, ...],
    is_wanted: Callable[[str], bool],
    notes: Counter[str],
    note: str,
) -> str:
    used = 0

    def next_one(match: re.Match[str]) -> str:
        nonlocal used
        if not is_wanted(match[0]):
            return match[0]
        used += 1
        return replacements[(used - 1) % len(replacements)]

    text = pattern.sub(next_one, text)
    notes[note] += used
    return text
