"""The package for asyncio. hutch/_sync is made of it by make generate: change this."""
