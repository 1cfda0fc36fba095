"""Settings of every test run.

Property tests draw the same examples on every machine; search wider by hand with
`pytest --hypothesis-profile=default`.
"""

from hypothesis import settings

settings.register_profile("ci", derandomize=True, deadline=None)
settings.load_profile("ci")
