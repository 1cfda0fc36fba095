"""Compiled programs on disk: found again in a new process without running the function's body.

`world` describes all that a function can see (the key), `watch` notes the code that ran while it
was captured, `programs` and `captures` write what was made as plain data and read it back, `store`
is the folder and the account of what it did.
"""
