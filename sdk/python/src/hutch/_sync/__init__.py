"""The package for programs without asyncio. All but _io.py is made of hutch/_async by make generate."""
