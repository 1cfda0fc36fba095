"""Types that take op calls over: `__torch_function__`, `__torch_dispatch__`, types with a table."""
