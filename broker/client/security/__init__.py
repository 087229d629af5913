"""How clients reach secured clusters: TLS, and who they are by SASL. Settings are data; secrets stay where
they are until a connection is opened.
"""
