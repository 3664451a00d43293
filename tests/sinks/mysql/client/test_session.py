"""No file and no password ever leaves because a server asks for it."""

from __future__ import annotations

import pickle
import re
import socket
import sys
import time
from pathlib import Path

import pymysql
import pytest

from harness.certificate_authority import FolderAuthority
from tests.sinks.mysql.client.fake_server import (
    OK,
    PING,
    FakeServer,
    OtherPeer,
    file_request,
)
from twophase.errors import PreflightError, TargetUnreachableError, TwoPhaseError
from twophase.options.references import read_certificates
from twophase.sinks.mysql.client.session import SecurityError, Session, _with_names, connect
from twophase.sinks.mysql.options import Endpoint, MySqlOptions, Replaceable, Tls

URL = "mysql://app@db.example/shop"
CANARY = "canary-password-7e1d"


def endpoint(server: FakeServer | OtherPeer, **changes) -> Endpoint:
    given = {
        "host": "127.0.0.1",
        "port": server.port,
        "user": "app",
        "schema": "shop",
        "password": Replaceable(CANARY),
    }
    return Endpoint(
        **{**given, "tls": Tls.OFF, "connect_timeout_s": 3.0, "io_timeout_s": 3.0, **changes}
    )


def authorities_in(folder: Path) -> list[FolderAuthority]:
    """Two authorities, each in a folder of its own."""
    made = []
    for name in ("a", "b"):
        (folder / name).mkdir()
        made.append(FolderAuthority(folder / name))
    return made


def trusting(authority: FolderAuthority) -> Replaceable:
    """What the driver reads of it."""
    return Replaceable(read_certificates(authority.file), str(authority.file), read_certificates)


def requested_name(statement: bytes) -> str:
    found = re.search(rb"INFILE '([^']+)'", statement)
    assert found is not None
    return found[1].decode()


LOAD = "LOAD DATA LOCAL INFILE {file} INTO TABLE t"
ROWS = [memoryview(b"1\ta\n"), memoryview(b"2\tb\n")]


class TestFileRequests:
    def test_the_stream_of_the_statement_is_sent_and_nothing_else(self):
        def answer(statement: bytes) -> bytes:
            return file_request(requested_name(statement)) if statement.startswith(b"LOAD") else OK

        with FakeServer(answer) as server:
            session = Session(endpoint(server), local_infile=True)
            session.load(LOAD, ROWS)
            session.end()
            server.finish()
        assert server.received[3:6] == [b"1\ta\n", b"2\tb\n", b""]

    def test_a_long_stream_arrives_whole(self):
        def answer(statement: bytes) -> bytes:
            return file_request(requested_name(statement)) if statement.startswith(b"LOAD") else OK

        data = bytes(range(256)) * 20_000
        with FakeServer(answer) as server:
            session = Session(endpoint(server), local_infile=True)
            session.load(LOAD, [memoryview(data)])
            session.end()
            server.finish()
        assert b"".join(server.received[3:-1]) == data

    @pytest.mark.parametrize("name", ["/etc/passwd", "", "twophase-0000000000000000", "x" * 70_000])
    def test_another_name_than_the_statements_is_refused(self, name):
        with FakeServer(
            lambda statement: file_request(name) if statement.startswith(b"LOAD") else OK
        ) as server:
            session = Session(endpoint(server), local_infile=True)
            with pytest.raises(SecurityError, match="nothing was sent"):
                session.load(LOAD, ROWS)
            server.finish()
        assert not session.open
        assert server.received[3:] == []

    @pytest.mark.parametrize(
        "statement", ["SELECT 1", "XA RECOVER", "SET autocommit = 1", "XA COMMIT 'a'"]
    )
    @pytest.mark.parametrize("local_infile", [True, False])
    def test_a_request_after_any_other_statement_is_refused(self, statement, local_infile):
        asked = statement.encode()
        with FakeServer(
            lambda sent: file_request("/etc/passwd") if sent == asked else OK
        ) as server:
            session = Session(endpoint(server), local_infile=local_infile)
            with pytest.raises(SecurityError):
                session.rows(statement)
            server.finish()
        assert not session.open
        assert server.received[3:] == []

    def test_a_second_request_for_the_same_stream_is_refused(self):
        names: list[str] = []

        def answer(statement: bytes) -> bytes:
            if statement.startswith(b"LOAD"):
                names.append(requested_name(statement))
                return file_request(names[0])
            return file_request(names[0]) if names else OK

        with FakeServer(answer) as server:
            session = Session(endpoint(server), local_infile=True)
            session.load(LOAD, ROWS)
            with pytest.raises(SecurityError):
                session.run("SELECT 1")
            server.finish()
        assert server.received[7:] == []

    def test_a_request_in_place_of_the_login_reply_is_refused(self):
        with FakeServer(after_login=file_request("/etc/passwd")) as server:
            with pytest.raises((PreflightError, TargetUnreachableError)):
                connect(endpoint(server), local_infile=True)
            server.finish()
        assert server.received[1:] == []

    def test_a_request_for_the_first_statement_of_a_session_is_refused(self):
        with FakeServer(lambda _: file_request("/etc/passwd")) as server:
            with pytest.raises(PreflightError, match="which server answers"):
                connect(endpoint(server), local_infile=True)
            server.finish()
        assert server.received[2:] == []


class TestPasswords:
    @pytest.mark.parametrize("plugin", [b"mysql_clear_password", b"mysql_old_password", b"dialog"])
    def test_a_server_that_asks_for_the_password_in_the_clear_does_not_get_it(self, plugin):
        with FakeServer(after_login=b"\xfe" + plugin + b"\0Password: ") as server:
            with pytest.raises(PreflightError) as caught:
                connect(endpoint(server))
            server.finish()
        assert not any(CANARY.encode() in packet for packet in server.received)
        assert CANARY not in str(caught.value)

    @pytest.mark.parametrize("opened", [False, True])
    @pytest.mark.parametrize(
        ("plugin", "said"),
        [
            (b"auth_of_a_newer_server", "give the account a plugin that the driver has"),
            (b"client_ed25519", "or give the account another plugin"),
        ],
    )
    def test_an_account_whose_plugin_the_driver_lacks_logs_in_by_another(
        self, plugin, said, opened, monkeypatch
    ):
        monkeypatch.setitem(sys.modules, "nacl", None)  # ed25519 needs it
        with FakeServer(after_login=b"\xfe" + plugin + b"\0" + bytes(20)) as server:
            with pytest.raises((PreflightError, TargetUnreachableError)) as caught:
                connect(endpoint(server, opened=opened))
            server.finish()
        assert said in caught.value.remedy
        assert "ALTER USER ... IDENTIFIED WITH" in caught.value.remedy
        native = b"\xfemysql_native_password\0" + bytes(20)
        with FakeServer(after_login=native, after_plugin=OK) as server:
            connect(endpoint(server, opened=opened)).end()

    def test_no_repr_shows_the_password(self):
        where = Endpoint("127.0.0.1", 1, "app", "s", Replaceable(CANARY), Tls.OFF)
        assert CANARY not in repr(where) + str(where) + repr(where.password) + str(where.password)


class TestTls:
    def test_a_server_with_the_right_certificate_is_accepted(self, tmp_path):
        authority = FolderAuthority(tmp_path)
        with FakeServer(tls=authority.server("127.0.0.1")) as server:
            connect(endpoint(server, tls=Tls.VERIFY_IDENTITY, tls_ca=trusting(authority))).end()

    def test_a_plain_server_is_refused_until_it_has_a_certificate(self, tmp_path):
        with FakeServer() as server:
            with pytest.raises(PreflightError, match="give the server a certificate"):
                connect(endpoint(server, tls=Tls.INSECURE))
            server.finish()
        assert server.received == []
        with FakeServer(tls=FolderAuthority(tmp_path).server("anything")) as server:
            connect(endpoint(server, tls=Tls.INSECURE)).end()

    @pytest.mark.parametrize(
        "policy", [Tls.VERIFY_IDENTITY, Tls.VERIFY_CA], ids=["verify_identity", "verify_ca"]
    )
    def test_a_certificate_of_an_unknown_authority_is_refused(self, tmp_path, policy):
        trusted, other = authorities_in(tmp_path)
        with FakeServer(tls=other.server("127.0.0.1")) as server:
            with pytest.raises(PreflightError, match="tls_ca"):
                connect(endpoint(server, tls=policy, tls_ca=trusting(trusted)))
        assert server.received == []
        with FakeServer(tls=other.server("127.0.0.1")) as server:
            connect(endpoint(server, tls=policy, tls_ca=trusting(other))).end()

    def test_a_certificate_for_another_name_is_refused_and_one_for_its_name_is_taken(
        self, tmp_path
    ):
        authority = FolderAuthority(tmp_path)
        settings = {"tls": Tls.VERIFY_IDENTITY, "tls_ca": trusting(authority)}
        with FakeServer(tls=authority.server("db.elsewhere.example")) as server:
            with pytest.raises(PreflightError, match="a certificate for its name"):
                connect(endpoint(server, **settings))
        assert server.received == []
        with FakeServer(tls=authority.server("127.0.0.1")) as server:
            connect(endpoint(server, **settings)).end()

    def test_verify_ca_does_not_look_at_the_name(self, tmp_path):
        authority = FolderAuthority(tmp_path)
        with FakeServer(tls=authority.server("db.elsewhere.example")) as server:
            connect(endpoint(server, tls=Tls.VERIFY_CA, tls_ca=trusting(authority))).end()

    def test_an_expired_certificate_is_refused(self, tmp_path):
        authority = FolderAuthority(tmp_path)
        with FakeServer(tls=authority.server("127.0.0.1", first_day=-9, last_day=-2)) as server:
            with pytest.raises(PreflightError, match="tls_ca"):
                connect(endpoint(server, tls=Tls.VERIFY_IDENTITY, tls_ca=trusting(authority)))
        assert server.received == []

    def test_insecure_takes_any_certificate(self, tmp_path):
        with FakeServer(tls=FolderAuthority(tmp_path).server("anything")) as server:
            connect(endpoint(server, tls=Tls.INSECURE)).end()

    @pytest.mark.parametrize("on", ["the driver", "an executor"])
    def test_an_authority_that_is_replaced_is_trusted_from_the_next_login_on(self, tmp_path, on):
        before, after = authorities_in(tmp_path)
        file = tmp_path / "ca.pem"
        file.write_bytes(before.file.read_bytes())
        certificates = MySqlOptions(url=URL, table="t", tls_ca=str(file)).endpoint().tls_ca

        def log_in(authority: FolderAuthority, sent: bytes) -> None:
            trusted = certificates if on == "the driver" else pickle.loads(sent)
            with FakeServer(tls=authority.server("127.0.0.1")) as server:
                settings = {"tls": Tls.VERIFY_IDENTITY, "tls_ca": trusted, "opened": True}
                connect(endpoint(server, **settings)).end()

        sent = pickle.dumps(certificates)
        log_in(before, sent)
        with pytest.raises(TargetUnreachableError, match="CERTIFICATE_VERIFY_FAILED") as caught:
            log_in(after, sent)
        assert f"tls_ca (it is {str(file)!r} now)" in caught.value.remedy
        file.write_bytes(after.file.read_bytes())
        log_in(after, pickle.dumps(certificates))

    @pytest.mark.parametrize("size", [None, 0, 200, -30])
    def test_while_the_file_is_being_replaced_the_last_certificates_are_trusted(
        self, tmp_path, size
    ):
        authority = FolderAuthority(tmp_path)
        whole, file = authority.file.read_bytes(), tmp_path / "ca.pem"
        trusted = trusting(authority)
        if size is None:
            file.unlink()
        else:
            file.write_bytes(whole[:size])
        with FakeServer(tls=authority.server("127.0.0.1")) as server:
            settings = {"tls": Tls.VERIFY_IDENTITY, "tls_ca": trusted, "opened": True}
            connect(endpoint(server, **settings)).end()

    @pytest.mark.parametrize("content", [None, b"", b"\x30\x82\x01", b"no certificate\n"])
    def test_a_file_without_certificates_is_named_before_anything_is_opened(
        self, tmp_path, content
    ):
        file = tmp_path / "other.pem"
        if content is not None:
            file.write_bytes(content)
        options = {"url": URL, "table": "t", "tls_ca": str(file)}
        with pytest.raises(PreflightError, match=f"'{file}', named by tls_ca"):
            MySqlOptions(**options).endpoint()
        file.write_bytes(
            "Würzburg\n".encode("latin-1") + FolderAuthority(tmp_path).file.read_bytes()
        )
        assert MySqlOptions(**options).endpoint().tls_ca is not None


class TestLifetime:
    def test_a_session_is_never_opened_again(self):
        with FakeServer() as server:
            session = Session(endpoint(server))
            with pytest.raises(pymysql.InterfaceError):
                session.connect()
            session.end()
            with pytest.raises(pymysql.Error):
                session.run("SELECT 1")

    def test_a_server_that_dies_in_the_tls_handshake_is_unreachable(self):
        class Dying:
            def wrap_socket(self, connection, *, server_side):
                connection.recv(65536)
                raise EOFError

        with FakeServer(tls=Dying()) as server:  # type: ignore[arg-type]
            with pytest.raises(TargetUnreachableError, match="EOF"):
                connect(endpoint(server, tls=Tls.INSECURE))

    def test_nobody_there_is_unreachable(self):
        with FakeServer() as server:
            where = endpoint(server)
            connect(where).end()
        with pytest.raises(TargetUnreachableError, match=r"app@127\.0\.0\.1"):
            connect(where)

    def test_a_server_that_says_nothing_is_unreachable_within_the_deadline(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            where = Endpoint(
                "127.0.0.1",
                silent.getsockname()[1],
                "app",
                "s",
                Replaceable(""),
                Tls.OFF,
                connect_timeout_s=0.3,
            )
            with pytest.raises(TargetUnreachableError):
                connect(where)


OTHER_GREETINGS = {
    "ssh": b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n",
    "smtp": b"220 mail.example ESMTP Postfix\r\n",
    "http": b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n",
    "the X protocol of MySQL": b"\x05\0\0\0\x0b\x08\x05\x1a\0",
    "an older protocol": b"\x14\0\0\0\x093.20.1\0" + bytes(12),
    "postgres": b"E\0\0\0\x12SFATAL\0C0A000\0\0",
    "amqp": b"AMQP\0\0\x09\x01",
    "an empty packet": b"\0\0\0\0",
    "no number of a session": b"\x08\0\0\0\x0a8.0.12\0",
    "no end of the version": b"\x07\0\0\0\x0a8.0.12",
    "text": "Grüß Gott\n".encode("utf-16"),
}


class TestOtherPeers:
    @pytest.mark.parametrize("stays", [True, False])
    @pytest.mark.parametrize("name", OTHER_GREETINGS)
    @pytest.mark.parametrize(
        ("opened", "kind"), [(False, PreflightError), (True, TargetUnreachableError)]
    )
    def test_a_greeting_that_is_not_mysqls_is_shown(self, name, stays, opened, kind):
        says = OTHER_GREETINGS[name]
        with OtherPeer(says, stays) as peer:
            with pytest.raises(kind) as caught:
                connect(endpoint(peer, opened=opened))
        said = f"No MySQL server answers at 127.0.0.1:{peer.port}: it sent {says[:40]!r}."
        assert caught.value.what == said
        assert "correct host and port in url" in caught.value.remedy
        with FakeServer() as server:
            connect(endpoint(server, opened=opened)).end()

    @pytest.mark.parametrize("opened", [False, True])
    @pytest.mark.parametrize(
        ("stays", "seen"), [(True, "said nothing within 0.3 s"), (False, "closed it at once")]
    )
    def test_one_that_says_nothing_may_be_a_server_that_hangs(self, stays, seen, opened):
        """HTTP and Kafka servers say nothing, and so does a proxy without a server behind it."""
        with OtherPeer(b"", stays) as peer:
            began_s = time.monotonic()
            with pytest.raises(TargetUnreachableError, match=seen) as caught:
                connect(endpoint(peer, opened=opened, connect_timeout_s=0.3))
        assert time.monotonic() - began_s < 3
        assert f"No MySQL server answers at 127.0.0.1:{peer.port}" in str(caught.value)
        assert "something else has that port" in caught.value.remedy
        with FakeServer() as server:  # its port is the right one
            connect(endpoint(server, opened=opened)).end()

    @pytest.mark.parametrize("says", [b"\x30", b"\x30\0\0\0", b"\x30\0\0\0\x0a8.0"])
    @pytest.mark.parametrize("stays", [True, False])
    def test_one_that_stops_in_its_greeting_is_unreachable(self, says, stays):
        with OtherPeer(says, stays) as peer:
            with pytest.raises(TargetUnreachableError):
                connect(endpoint(peer, connect_timeout_s=0.3))

    @pytest.mark.parametrize(
        "reply", [b"", b"\x01", b"\xff", b"\xffab", b"\xfe\0", b"SSH-2.0", b"\xfb"]
    )
    @pytest.mark.parametrize(
        ("opened", "kinds"),
        [(False, (PreflightError, TargetUnreachableError)), (True, (TargetUnreachableError,))],
    )
    def test_a_strange_reply_to_the_login_is_one_of_our_errors(self, reply, opened, kinds):
        with FakeServer(after_login=reply) as server:
            with pytest.raises(TwoPhaseError) as caught:
                connect(endpoint(server, opened=opened, connect_timeout_s=0.3))
        assert isinstance(caught.value, kinds), repr(caught.value)

    @pytest.mark.parametrize("opened", [False, True])
    def test_a_garbled_reply_is_another_servers_and_the_right_url_leads_on(self, opened):
        with FakeServer(after_login=b"\xffab") as server:
            with pytest.raises((PreflightError, TargetUnreachableError)) as caught:
                connect(endpoint(server, opened=opened))
        assert "correct the url if it is another" in caught.value.remedy
        with FakeServer() as server:
            connect(endpoint(server, opened=opened)).end()


@pytest.mark.parametrize(("idle_s", "pings"), [(0.1, 0), (5, 1), (20, 1), (1000, 1)])
def test_a_session_that_was_idle_for_seconds_is_asked_for_a_sign_of_life(idle_s, pings):
    """Some firewalls forget a session after 20 seconds."""
    with FakeServer() as server:
        session = Session(endpoint(server))
        session.run("DO 0")
        session._used_s -= idle_s
        assert session.is_alive()
        session.end()
        server.finish()
    assert server.received.count(PING) == pings
    assert not session.is_alive()


def test_a_percent_sign_in_a_name_is_no_place_of_an_argument() -> None:
    assert _with_names("SELECT `a``%s` FROM `t %`.`b` WHERE x = %s", (1,)) == (
        "SELECT `a``%%s` FROM `t %%`.`b` WHERE x = %s"
    )
    assert _with_names("SELECT 1 FROM `a%b`", ()) == "SELECT 1 FROM `a%b`"
