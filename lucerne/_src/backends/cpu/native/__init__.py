"""The eager fast path: object types whose slots are machine code, and a native dispatcher."""
