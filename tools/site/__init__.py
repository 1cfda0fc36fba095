"""The documentation as a site: `python -m tools.site` (`make docs`) builds it into build/docs."""
