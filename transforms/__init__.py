"""Beam transforms over Arrow record batches. They move batches; the mathematics is in `policies`."""
