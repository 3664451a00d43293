"""Exactly-once sinks for PySpark Structured Streaming, by two-phase commit."""
