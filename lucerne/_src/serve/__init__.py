"""`lucerne serve`: exported programs behind the Open Inference Protocol (version 2, REST).

`http.py` is what the server needs of ASGI, `tensors.py` the protocol's tensors, `programs.py` a
program with what it takes, `queues.py` puts requests together, `repository.py` holds versions,
`metrics.py` counts, `app.py` has the routes, `command.py` the command line. Only `command.py`
needs the extra `serve` (uvicorn).
"""
