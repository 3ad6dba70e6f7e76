"""Tests of the certificates that other tests use."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import pytest

from ...support.proxy import FaultProxy
from ...support.servers import RawClient

if TYPE_CHECKING:
    from jsync.server import LocalServer

    from ...conftest import StartServer
    from ...support.certificates import Certificate, Certificates

pytestmark = pytest.mark.server


def trusting(ca: Certificate) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(ca.cert))


def test_the_server_is_trusted_with_its_ca(
    tls_server: LocalServer, certificates: Certificates
) -> None:
    assert tls_server.url == f"tls://127.0.0.1:{tls_server.port}"
    with RawClient(tls_server.url, trusting(certificates.ca)) as client:
        assert client.info["tls_required"] is True
        assert client.connect(tls_required=True) == "PONG"


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_the_server_has_several_names(
    tls_server: LocalServer, certificates: Certificates, host: str
) -> None:
    url = f"tls://{host}:{tls_server.port}"
    with RawClient(url, trusting(certificates.ca)) as client:
        assert client.connect() == "PONG"


def test_another_ca_is_not_enough(
    tls_server: LocalServer, certificates: Certificates
) -> None:
    with pytest.raises(
        ssl.SSLCertVerificationError, match="unable to get local issuer"
    ):
        RawClient(tls_server.url, trusting(certificates.other_ca))


def test_the_name_has_to_be_right(
    own_server: StartServer, certificates: Certificates
) -> None:
    server = own_server(config=certificates.server_config(certificates.wrong_host))
    with pytest.raises(ssl.SSLCertVerificationError, match="not valid for '127"):
        RawClient(server.url, trusting(certificates.ca))


def test_a_certificate_can_be_too_old(
    own_server: StartServer, certificates: Certificates
) -> None:
    server = own_server(config=certificates.server_config(certificates.expired))
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        RawClient(server.url, trusting(certificates.ca))


def test_a_client_can_show_a_certificate(
    mutual_tls_server: LocalServer, certificates: Certificates
) -> None:
    context = trusting(certificates.ca)
    context.load_cert_chain(certificates.client.cert, certificates.client.key)
    with RawClient(mutual_tls_server.url, context) as client:
        assert client.info["tls_verify"] is True
        assert client.connect() == "PONG"


def test_a_client_without_a_certificate_is_refused(
    mutual_tls_server: LocalServer, certificates: Certificates
) -> None:
    context = trusting(certificates.ca)
    with RawClient(mutual_tls_server.url, context) as client:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            client.connect()


def test_a_certificate_can_stand_for_a_user(
    own_server: StartServer, certificates: Certificates
) -> None:
    config = certificates.server_config(verify_and_map="true")
    users = 'authorization { users: [ { user: "client@jsync.test" } ] }'
    server = own_server(config=config + users)
    context = trusting(certificates.ca)
    context.load_cert_chain(certificates.client.cert, certificates.client.key)
    with RawClient(server.url, context) as client:
        assert client.connect() == "PONG"


def test_the_handshake_can_come_before_info(
    own_server: StartServer, certificates: Certificates
) -> None:
    server = own_server(config=certificates.server_config(handshake_first="true"))
    context = trusting(certificates.ca)
    with RawClient(server.url, context, handshake_first=True) as client:
        assert client.connect() == "PONG"


def test_tls_passes_through_the_proxy(
    tls_server: LocalServer, certificates: Certificates
) -> None:
    with FaultProxy("127.0.0.1", tls_server.port, scheme="tls") as proxy:
        with RawClient(proxy.url, trusting(certificates.ca)) as client:
            assert client.connect() == "PONG"
