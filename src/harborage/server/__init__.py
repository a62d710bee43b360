"""The Harbor Protocol served over HTTP: `app(runtime)` is an ASGI application."""
