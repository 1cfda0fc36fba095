"""`lucerne serve`: exported programs behind the Open Inference Protocol (version 2, REST), and
language models behind what OpenAI's clients speak.

`http.py` is what the server needs of ASGI, `tensors.py` the protocol's tensors, `programs.py` a
program with what it takes, `queues.py` puts requests together, `repository.py` holds versions,
`language_models.py` steps a batch of texts, `completions.py` is their protocol, `metrics.py`
counts, `app.py` has the routes, `command.py` the command line. Only `command.py` needs uvicorn (of
the extra `serve`); texts need its tokenizers, chats its jinja2.
"""
