"""Builds SentencePiece's `precompiled_charsmap`."""

from __future__ import annotations

import struct

LONGEST_SEQUENCE = 5
"""Maximum length of a sequence, in bytes: longer clusters are not looked up as a whole."""


def charsmap(replacements: dict[str, str]) -> bytes:
    """A double array of the sequences, then the replacements, as SentencePiece's `precompiled_charsmap`."""
    text, places = b"", {}
    for replacement in dict.fromkeys(replacements.values()):
        places[replacement] = len(text)
        text += replacement.encode() + b"\0"
    root: dict = {}
    for sequence, replacement in replacements.items():
        node = root
        for byte in sequence.encode():
            node = node.setdefault(byte, {})
        node[0] = places[replacement]
    # A unit belongs to the node whose base is the unit's place without its byte, so every node needs its own base.
    units, used, bases = {}, {0}, set()
    waiting = [(0, 0, root)]
    first = 1
    while waiting:
        at, label, node = waiting.pop()
        base = first
        while base in bases or any(base ^ byte in used for byte in node):
            base += 1
        bases.add(base)
        offset = at ^ base
        assert offset < 1 << 21
        units[at] = label | (0 in node) << 8 | offset << 10
        for byte, child in node.items():
            used.add(base ^ byte)
            if byte == 0:
                units[base] = child | 1 << 31
            else:
                waiting.append((base ^ byte, byte, child))
        while first in used:
            first += 1
    length = (max(units) + 256) // 256 * 256
    return struct.pack("<I", length * 4) + struct.pack(f"<{length}I", *(units.get(at, 0) for at in range(length))) + text
