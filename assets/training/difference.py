#!/usr/bin/env python3
"""Writes the difference of two weights files of one length, byte by byte modulo 256, to standard output.

    python3 difference.py STOCK TRAINED | zstd -19 > all-MiniLM-L6-v2.int8.difference.zst

STOCK is this difference plus TRAINED.
"""

import sys
from pathlib import Path


def main() -> None:
    stock, trained = (Path(path).read_bytes() for path in sys.argv[1:])
    sys.stdout.buffer.write(bytes((of_stock - of_trained) % 256 for of_stock, of_trained in zip(stock, trained, strict=True)))


if __name__ == "__main__":
    main()
