"""TLS as the standard library speaks it, out of settings; and its failures, told so that one knows what to
change.

A context is made for each connection, so certificates that are renewed hold from the next one on. Blocks, as
files do.
"""

from __future__ import annotations

import os
import ssl

from broker.client.security.disclosure import disclose
from broker.client.security.settings import TlsSettings
from broker.client.security.text_source import TextSource
from broker.errors import AuthenticationError, BrokerError, ConfigurationError, ConnectionFailedError
from broker.types import HostPort

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_ALERTS = {
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it asks for a client certificate, and there is none "
    "(ssl.keystore.location)",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust who issued the client certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it does not accept the client certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it asks for a client certificate, and there is none that it accepts "
    "(ssl.keystore.location)",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the client certificate has expired",
    "TLSV1_ALERT_PROTOCOL_VERSION": "it speaks other versions of TLS (ssl.enabled.protocols)",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "no version, cipher or certificate that both sides accept",
    "WRONG_VERSION_NUMBER": "it does not answer in TLS: is security.protocol that of the listener?",
}


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """What a client's connection begins with.

    Raises ConfigurationError that names option and file.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = _VERSIONS[settings.versions[0]]
    context.maximum_version = _VERSIONS[settings.versions[-1]]
    context.check_hostname = settings.checks_host
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # whoever stands among the trusted is, as in Java
    context.options |= ssl.OP_NO_RENEGOTIATION
    if settings.trusted is None:
        context.load_default_certs()
    else:
        trust(context, settings.trusted)
    if settings.certificate is not None:
        _identify(context, settings.certificate, settings)
    return context


def trust(context: ssl.SSLContext, source: TextSource) -> None:
    """Trust the certificates of a PEM text. Raises ConfigurationError."""
    try:
        context.load_verify_locations(cadata=disclose(source))
    except (ssl.SSLError, ValueError) as error:
        raise ConfigurationError([f"{source.where}: holds no certificate in PEM"]) from error


def _identify(context: ssl.SSLContext, certificate: TextSource, settings: TlsSettings) -> None:
    key = settings.key
    texts = [disclose(source) for source in (key, certificate) if source is not None]
    password = disclose(settings.key_password) if settings.key_password is not None else ""
    pem = "\n".join(texts)
    where = " and ".join(source.where for source in (certificate, key) if source is not None)
    descriptor = os.memfd_create("identity")  # the library reads files only, and keys must not lie about
    try:
        with open(descriptor, "w", encoding="utf-8", closefd=False) as file:
            file.write(pem)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=lambda: password)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigurationError([f"{where}: {_identity_problem(error, pem)}"]) from None
    finally:
        os.close(descriptor)


def _identity_problem(error: Exception, pem: str) -> str:
    if "-----BEGIN CERTIFICATE-----" not in pem:
        return "holds no certificate in PEM"
    if "PRIVATE KEY-----" not in pem:
        return "holds no private key in PEM"
    if "KEY_VALUES_MISMATCH" in str(error):
        return "the private key is not that of the certificate"
    if "ENCRYPTED" in pem:
        return "the private key is not opened by the password (ssl.key.password)"
    return "is no certificate with its private key in PEM"


def tls_failure(address: HostPort, error: Exception | None, *, during: str) -> BrokerError:
    """What a failure of TLS means, by its peer. One that another attempt would not meet is a
    ConnectionFailedError, all others are AuthenticationErrors.
    """
    match error:
        case ssl.SSLCertVerificationError():
            return AuthenticationError(
                f"{address}: its certificate is refused: {error.verify_message.rstrip('.')}"
                f" (check {error.verify_code})"
            )
        case ssl.SSLEOFError() | ssl.SSLZeroReturnError() | ssl.SSLSyscallError() | None:
            hint = ": does it speak TLS there?" if during == "the TLS handshake" else ""
            return ConnectionFailedError(f"{address}: closed by the peer during {during}{hint}")
        case ssl.SSLError():
            reason = error.reason or str(error)
            meaning = _ALERTS.get(reason, reason.lower().replace("_", " "))
            return AuthenticationError(f"{address}: no TLS: {meaning}")
        case _:
            return ConnectionFailedError(f"{address}: connection lost during {during}: {error}")
