"""Argument types of the tools: sizes with a unit, lists, choices."""

import argparse


def parse_size(text):
    """Number of bytes of, for example, "64k" or "4m"; a bare number is in bytes."""
    factor = {"k": 1 << 10, "m": 1 << 20}.get(text[-1:].lower(), 1)
    return int(text[:-1] if factor > 1 else text) * factor


def list_of(parse):
    """A parser of comma-separated values, each parsed by `parse`."""
    return lambda text: [parse(part) for part in text.split(",")]


def one_of(names):
    """A parser that accepts only these names."""

    def parse(text):
        if text not in names:
            raise argparse.ArgumentTypeError(f"{text} is none of {', '.join(names)}")
        return text

    return parse
