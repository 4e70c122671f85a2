"""Parts of measurements: a mock engine, a load generator, and the proxies that are compared."""
