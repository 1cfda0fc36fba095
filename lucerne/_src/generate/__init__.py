"""Text, one token after the other, by three programs whatever the length.

`cache.py` is the buffer of keys and values, `decoding.py` holds the programs and runs prompts
through them, `sampling.py` chooses tokens, `beam.py` keeps several, `batching.py` serves requests
that come and go, `models.py` and `gguf_models.py` are decoders that take the cache.
"""
