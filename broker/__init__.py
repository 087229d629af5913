"""A broker node that speaks the Kafka protocol, and the client library that reaches any such node."""
